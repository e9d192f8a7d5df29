use super::*;

const BLOCKS: u64 = 4;

fn written() -> (tempfile::TempDir, std::path::PathBuf, Contents, Interrupt) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let interrupt = Interrupt::listen().unwrap();
    let mut done = 0;
    let contents =
        Contents::write(&path, BLOCKS * MIB, 1, (&interrupt, &mut |more| done += more)).unwrap();
    assert_eq!(done, BLOCKS);
    (directory, path, contents, interrupt)
}

#[test]
fn file_holds_what_was_written_and_what_was_overwritten() {
    let (_directory, path, mut contents, interrupt) = written();
    contents.compare(&path, "the file", (&interrupt, &mut |_| ())).unwrap();
    let before = contents.clone();
    contents.overwrite(&path, &[1..2, 3..4], 2, (&interrupt, &mut |_| ())).unwrap();
    contents.compare(&path, "the file", (&interrupt, &mut |_| ())).unwrap();
    assert_ne!(before.checksum(), contents.checksum());
    let error = before.compare(&path, "the file", (&interrupt, &mut |_| ())).unwrap_err();
    assert!(error.to_string().contains("from 1 MiB on"), "{error}");
}

#[test]
fn one_wrong_byte_and_a_wrong_length_are_found() {
    let (_directory, path, contents, interrupt) = written();
    let file = File::options().write(true).open(&path).unwrap();
    let last = BLOCKS * MIB - 1;
    let mut byte = [0];
    File::open(&path).unwrap().read_exact_at(&mut byte, last).unwrap();
    file.write_all_at(&[byte[0] ^ 1], last).unwrap();
    let error = contents.compare(&path, "the file", (&interrupt, &mut |_| ())).unwrap_err();
    assert!(matches!(error, Failure::Untrue(_)), "{error}");
    file.set_len(last).unwrap();
    let error = contents.compare(&path, "the file", (&interrupt, &mut |_| ())).unwrap_err();
    assert!(error.to_string().contains("bytes instead of"), "{error}");
}
