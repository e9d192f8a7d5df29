#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;

const LOCKS: &str = "1: POSIX  ADVISORY  WRITE 7 fd:01:42 0 EOF\n\
    2: FLOCK  ADVISORY  READ  8 fd:01:42 0 EOF\n\
    3: FLOCK  ADVISORY  WRITE 9 fd:02:42 0 EOF\n\
    4: FLOCK  ADVISORY  WRITE 10 fd:01:42 0 EOF\n\
    4: -> FLOCK  ADVISORY  WRITE 11 fd:01:42 0 EOF\n\
    5: FLOCK  ADVISORY  WRITE 12 00:2f:43 0 EOF\n";

#[test]
fn the_owner_is_found_by_the_locked_file() {
    assert_eq!(owner_in(LOCKS, (0xfd, 1), 42), Some(10));
    assert_eq!(owner_in(LOCKS, (0xfd, 2), 42), Some(9));
    assert_eq!(owner_in(LOCKS, (0xfd, 3), 42), None, "these are of other filesystems");
    assert_eq!(owner_in(LOCKS, (0x00, 0x2f), 43), Some(12));
    assert_eq!(owner_in(LOCKS, (0x00, 0x31), 43), None, "the only one, but of another filesystem");
    assert_eq!(owner_in(LOCKS, (0xfd, 1), 44), None);
    assert_eq!(owner_in("nonsense\n1: FLOCK ADVISORY WRITE x y 0 EOF", (0, 0), 0), None);
}

#[test]
fn a_lock_of_this_process_is_known_as_such() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lock");
    assert_eq!(lock_owner(&path), None);
    let lock = try_lock(&path).unwrap().unwrap();
    let owner = lock_owner(&path).unwrap();
    assert_eq!(owner.pid, std::process::id());
    assert!(owner.to_string().starts_with(&format!("process {} (", owner.pid)), "{owner}");
    match lock_after_brief_owners(&path, Duration::from_secs(60)).unwrap() {
        LockAttempt::HeldBy(by) => assert_eq!(by, Some(owner), "it is not waited for"),
        LockAttempt::Taken(_) => panic!("taken twice"),
    }
    drop(lock);
    assert!(matches!(
        lock_after_brief_owners(&path, Duration::ZERO).unwrap(),
        LockAttempt::Taken(_)
    ));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a child that is not waited for until later")]
fn a_process_that_is_ending_is_waited_for() {
    let running = LockOwner::of_process(std::process::id());
    assert!(!running.will_end_soon(), "{running}");
    let mut child = std::process::Command::new("true").spawn().unwrap();
    // It has no command line from then on, until its parent asks for its exit code.
    while !LockOwner::of_process(child.id()).words.is_empty() {
        thread::sleep(POLL_INTERVAL);
    }
    let ending = LockOwner::of_process(child.id());
    assert!(ending.will_end_soon(), "{ending}");
    child.wait().unwrap();
}
