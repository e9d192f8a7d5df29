#![allow(clippy::unwrap_used)]

use super::*;

fn failed(errno: Errno) -> Error {
    Err::<(), _>(errno).on("open", Path::new("/some/file")).unwrap_err()
}

#[test]
fn the_message_names_operation_path_and_cause() {
    let message = failed(Errno::NOENT).to_string();
    assert!(message.starts_with("open /some/file: "), "{message}");
    assert!(message.contains("No such file"), "{message}");
}

#[test]
fn errno_is_kept_and_classified() {
    assert_eq!(failed(Errno::LOOP).errno(), Some(Errno::LOOP));
    assert!(failed(Errno::NOENT).is_not_found());
    assert!(failed(Errno::NOSPC).is_no_space());
    assert!(failed(Errno::DQUOT).is_no_space());
    assert!(failed(Errno::BUSY).is_busy());
    assert!(failed(Errno::ROFS).is_read_only());
    assert!(!failed(Errno::IO).is_busy());
}

#[test]
fn std_error_without_errno_counts_as_eio() {
    let short = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    let error = Err::<(), _>(short).on("read", Path::new("/x")).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::IO));
}

#[test]
fn an_open_file_is_named_by_its_path() {
    let file = std::fs::File::open("/proc/self/mountinfo").unwrap();
    let error = Err::<(), _>(Errno::IO).on_fd("read", &file).unwrap_err();
    assert!(error.to_string().contains("mountinfo"), "{error}");
}
