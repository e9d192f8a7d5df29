//! Failures say what to do, and their exit codes tell them apart.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use orlop_tests::*;

use super::Terminal;

#[tokio::test(flavor = "multi_thread")]
async fn usage_refusal_and_failure_have_different_exit_codes() {
    needs_root!();
    let mut at = Terminal::new().await;
    for usage in [
        &["volume"][..],
        &["volume", "lst"],
        &["volume", "create", "x", "--size", "10GB GB"],
        &["volume", "create", "x", "--fs", "xfs", "--block"],
        &["volume", "create", "x", "--parameter", "novalue"],
        &["volume", "create", "x", "-p", "a=1", "-p", "a=2"],
        &["volume", "list", "--output", "xml"],
        &["volume", "list", "--endpoint", "tcp://127.0.0.1:1"],
        &["volume", "list", "--secrets-file", "/no/such/file"],
    ] {
        at.fails(2, usage);
    }
    let why = at.fails(2, &["volume", "lst"]);
    assert!(why.contains("similar subcommand") && why.contains("list"), "{why}");
    let why = at.fails(3, &["volume", "create", "x", "--size", "64MiB", "-p", "nonsense=1"]);
    let expected = "orlop: cannot create volume x: the plugin refused it (INVALID_ARGUMENT): ";
    assert!(why.starts_with(expected) && why.lines().count() == 1, "{why}");
    at.fails(3, &["volume", "create", "x", "--size", "900TiB"]);

    at.daemon.terminate();
    let why = at.fails(1, &["volume", "list"]);
    assert!(why.contains("orlop serve") && why.contains("--endpoint"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_a_plugin_is_said_to_be_none() {
    needs_root!();
    let at = Terminal::new().await;
    let socket = at.path("other.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let deaf = std::thread::spawn(move || {
        // Hangs up on each caller: the first only looks, the others ask.
        for connection in listener.incoming().take(2) {
            drop(connection);
        }
    });
    let endpoint = format!("unix://{socket}");
    let why = at.fails(1, &["volume", "list", "--endpoint", &endpoint, "--timeout", "20"]);
    assert!(why.contains("does not answer as a CSI plugin"), "{why}");
    deaf.join().unwrap();
    // The listener is gone, and its socket is left.
    let why = at.fails(1, &["volume", "list", "--endpoint", &endpoint]);
    assert!(why.contains("nothing listens on it"), "{why}");
    // A file is no socket either.
    let file = at.path("file.sock");
    std::fs::write(&file, "").unwrap();
    at.fails(1, &["volume", "list", "--endpoint", &file]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_is_closed_to_the_user_says_so() {
    needs_root!();
    let at = Terminal::new().await;
    // The binary may be where only root reaches it.
    let program = at.path("orlop");
    std::fs::copy(binary(), &program).unwrap();
    let open =
        |path: &std::path::Path| std::fs::set_permissions(path, PermissionsExt::from_mode(0o755));
    open(at.pool.scratch().path()).unwrap();
    let socket = at.daemon.launch().socket();
    let arguments = ["--reuid=65534", "--clear-groups", &program, "volume", "list", "--endpoint"];
    let words = arguments.into_iter().chain([socket.to_str().unwrap()]);
    let output = orlop_sys::tool::run_accepting("setpriv", words, &[1]).unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(why.contains("closed to this user") && why.contains("as root"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_does_not_answer_is_not_waited_for_without_an_end() {
    needs_root!();
    let at = Terminal::new().await;
    at.daemon.signal(rustix::process::Signal::STOP);
    let why = at.fails(1, &["volume", "list", "--timeout", "1"]);
    at.daemon.signal(rustix::process::Signal::CONT);
    assert!(why.contains("has not answered within 1 s") && why.contains("--timeout"), "{why}");
}

/// They reach the plugin, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_come_from_a_file_and_are_not_repeated() {
    needs_root!();
    let at = Terminal::new().await;
    let file = at.path("secrets");
    std::fs::write(&file, "token=hunter2\n").unwrap();
    at.ok(&["volume", "create", "x", "--size", "16MiB", "--block", "--secrets-file", &file]);
    at.ok(&["volume", "delete", "x", "--yes", "--secrets-file", &file]);
    std::fs::write(&file, "{\"token\": [\"hunter2\"]}").unwrap();
    let why = at.fails(2, &["volume", "list", "--secrets-file", &file]);
    assert!(!why.contains("hunter2"), "{why}");
    // An invalid key is refused by the daemon: so they do arrive.
    std::fs::write(&file, "{\"a b\": \"hunter2\"}").unwrap();
    let words = ["volume", "create", "x", "--size", "16MiB", "--block", "--secrets-file", &file];
    let why = at.fails(3, &words);
    assert!(why.contains("INVALID_ARGUMENT") && !why.contains("hunter2"), "{why}");
    assert!(!at.daemon.launch().log().contains("hunter2"));
}
