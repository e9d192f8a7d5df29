#![allow(clippy::unwrap_used)]

use tempfile::tempdir;

use super::*;

#[test]
fn ending_threads_are_waited_for() {
    let root = tempdir().unwrap();
    let former = enter(root.path(), "p").unwrap();
    let begun = Instant::now();
    let entering = thread::spawn({
        let root = root.path().to_owned();
        move || enter(&root, "p").unwrap()
    });
    thread::sleep(4 * POLL_INTERVAL);
    assert!(!entering.is_finished() || begun.elapsed() >= SETTLE_TIME);
    drop(former);
    let entered = entering.join().unwrap();
    // The next daemon sees it.
    assert!(Presence::try_alone(&Layout::new(root.path()).staging()).unwrap().is_none());
    drop(entered);
}

#[test]
fn threads_waiting_for_another_pool_are_not_waited_for() {
    let root = tempdir().unwrap();
    let former = enter(root.path(), "p").unwrap();
    let begun = Instant::now();
    let entered = enter(root.path(), "p").unwrap();
    assert!(begun.elapsed() >= SETTLE_TIME);
    drop(former);
    // Also of those who entered beside others it is known that they are there.
    assert!(Presence::try_alone(&Layout::new(root.path()).staging()).unwrap().is_none());
    drop(entered);
}
