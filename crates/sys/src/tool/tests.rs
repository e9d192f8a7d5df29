#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

use super::*;
use crate::filesystem::FsKind;
use crate::testbed::{Disk, Mounted, SMALL, root, scratch};

#[test]
fn programs_are_found_by_name_only() {
    assert!(find("sh").unwrap().is_absolute());
    assert_eq!(find("no-such-program"), None);
    assert_eq!(find("../bin/sh"), None);
    assert!(matches!(run("no-such-program", ["-x"]), Err(Error::ToolMissing { .. })));
}

#[test]
fn a_program_sees_a_clean_environment_and_no_input() {
    let output = run("env", [""; 0]).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut variables: Vec<&str> = text.lines().collect();
    variables.sort_unstable();
    let path = format!("PATH={SEARCH_PATH}");
    assert_eq!(variables, ["BLKID_FILE=/dev/null", "LC_ALL=C", &path]);
    assert!(run("cat", [""; 0]).unwrap().stdout.is_empty());
}

#[test]
fn failure_has_name_status_and_stderr_but_no_arguments() {
    let error = run("sh", ["-c", "echo first >&2; echo cannot >&2; exit 3 # hidden"]).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("sh") && message.contains("3"), "{message}");
    assert!(message.contains("first; cannot"), "{message}");
    assert!(!message.contains("hidden"), "{message}");
}

#[test]
fn reasons_on_stdout_are_reported() {
    let error = run("sh", ["-c", "echo verdict >&2; echo reason; exit 4"]).unwrap_err();
    assert!(error.to_string().ends_with("reason; verdict"), "{error}");
}

#[test]
fn reason_is_kept_and_usage_text_dropped() {
    let usage = "Usage: tool\\n$(seq 100)";
    let script = format!("echo banner; printf \"\\n why it is\\n{usage}\\n\" >&2; exit 1");
    let error = run("sh", ["-c", &script]).unwrap_err();
    assert!(error.to_string().ends_with("banner; why it is"), "{error}");
    // Nothing else was said.
    let error = run("sh", ["-c", "echo usage: tool FILE >&2; exit 1"]).unwrap_err();
    assert!(error.to_string().ends_with("usage: tool FILE"), "{error}");
}

#[test]
fn other_statuses_may_be_accepted_but_a_signal_never() {
    assert!(run_accepting("sh", ["-c", "exit 1"], &[0, 1]).is_ok());
    assert!(run_accepting("sh", ["-c", "exit 2"], &[0, 1]).is_err());
    let killed = run_accepting("sh", ["-c", "kill -TERM $$"], &[0, 1]).unwrap_err();
    assert!(killed.to_string().contains("signal"), "{killed}");
}

#[test]
fn much_output_does_not_block_a_program() {
    let output = run("sh", ["-c", "head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2"]);
    assert_eq!(output.unwrap().stdout.len(), 1_000_000);
}

#[test]
fn long_error_output_is_truncated_at_a_character() {
    let text = "ä".repeat(2 * KEPT_BYTES);
    let kept = last_lines(&text);
    assert!(kept.len() <= KEPT_BYTES && kept.chars().all(|character| character == 'ä'));
    let lines = "line\n".repeat(100);
    assert_eq!(last_lines(&lines).matches("line").count(), KEPT_LINES);
}

/// Where mounts are private, as they are in most containers, a namespace of its own keeps what it copied.
#[test]
fn disk_unmounted_while_mkfs_runs_is_free_at_once() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::formatted(dir.path(), SMALL, FsKind::Ext4);
    let mounted = Mounted::new(&disk, FsKind::Ext4, dir.path().join("mnt"), &[]);
    let mkfs = dir.path().join("mkfs.xfs");
    std::fs::write(&mkfs, "#!/bin/sh\necho runs\nread -r end\n").unwrap();
    std::fs::set_permissions(&mkfs, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut running = start(&mkfs, [""; 0], Stdio::piped()).unwrap();
    let mut line = String::new();
    BufReader::new(running.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "runs\n");

    mounts::ensure_unmounted(&mounted.point).unwrap();
    let claim = || File::options().read(true).custom_flags(libc::O_EXCL).open(disk.path());
    claim().unwrap();

    drop(running.stdin.take());
    assert!(running.wait().unwrap().code().is_some());
}
