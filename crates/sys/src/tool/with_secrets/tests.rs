#![allow(clippy::unwrap_used)]

use super::*;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn secrets_are_read_at_the_paths_that_stand_for_them() {
    let (first, second) = (vec![7; 4096], b"with a\nnewline".to_vec());
    let arguments = [
        SecretArgument::Secret(&first),
        SecretArgument::Secret(&second),
        SecretArgument::from("/dev/null"),
    ];
    let ended = run_with_secrets("cat", &arguments).unwrap();
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_eq!(ended.stdout, [first, second].concat());
}

#[test]
fn secret_is_in_neither_arguments_nor_environment() {
    let script = "tr '\\0' ' ' </proc/$$/cmdline; tr '\\0' ' ' </proc/$$/environ; ulimit -c; \
                  wc -c <\"$1\"";
    let arguments = [
        SecretArgument::from("-c"),
        SecretArgument::from(script),
        SecretArgument::from("name"),
        SecretArgument::Secret(b"hunter2\n"),
    ];
    let ended = run_with_secrets("sh", &arguments).unwrap();
    let said = text(&ended.stdout);
    assert!(!said.contains("hunter2"), "{said}");
    // It had the secret, and no core.
    assert!(said.ends_with("0\n8\n"), "{said}");
}

#[test]
fn other_descriptors_are_not_passed_on() {
    let held = std::fs::File::open("/proc/self/status").unwrap();
    let arguments = [
        SecretArgument::from("-c"),
        SecretArgument::from("ls /proc/$$/fd | wc -l; cat \"$1\""),
        SecretArgument::from("name"),
        SecretArgument::Secret(b"x"),
    ];
    let ended = run_with_secrets("sh", &arguments).unwrap();
    drop(held);
    // Three streams and the pipe; a shell may have its script open as well.
    let said = text(&ended.stdout);
    let count: u32 = said.lines().next().unwrap().trim().parse().unwrap();
    assert!(count <= 5, "{said}");
}
