//! A reader that is killed after each of its effects.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use super::super::metadata::ThinMetadata;
use super::is_reserved;
use super::thin_devices::ThinPool;

const ROLE: &str = "ORLOP_TEST_READER_OF";

/// Run by the test below, in a process that it lets end.
#[test]
fn reader_that_may_be_killed() {
    let Some(role) = std::env::var_os(ROLE) else { return };
    let role = role.into_string().unwrap();
    let (group, marker) = role.split_once(' ').unwrap();
    let metadata = ThinMetadata::new(&group.parse().unwrap(), "tp", PathBuf::from(marker));
    metadata.release_abandoned().unwrap();
    for _ in 0..2 {
        drop(Arc::new(&metadata).reserve().unwrap());
    }
}

#[test]
#[allow(clippy::disallowed_methods)]
fn killed_reader_leaves_nothing_that_the_next_one_does_not_release() {
    let Some(mut pool) = ThinPool::new(1, 64) else { return };
    let directory = tempfile::tempdir().unwrap();
    let (at, crashed) = (directory.path().join("at"), directory.path().join("crashed"));
    let mut abandoned = 0;
    for effects in 0.. {
        let _ = std::fs::remove_file(directory.path().join("armed"));
        let _ = std::fs::remove_file(&crashed);
        let _ = std::fs::remove_dir_all(&pool.marker);
        std::fs::write(&at, effects.to_string()).unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lvm::changes::tests::killed::reader_that_may_be_killed"])
            .env(ROLE, format!("{} {}", pool.bed.group, pool.marker.display()))
            .env("ORLOP_TEST_CRASH", directory.path())
            .output()
            .unwrap()
            .status;
        abandoned += usize::from(is_reserved(&pool));
        pool.reopen();
        assert!(!is_reserved(&pool), "{effects}: {:?}", std::fs::read_to_string(&crashed));
        drop(pool.metadata.reserve().unwrap());
        if status.success() {
            assert!(!crashed.exists());
            // Directory, then marker, reservation, release and removal of the marker, twice.
            assert!(effects >= 9, "only {effects} effects");
            break;
        }
        assert_eq!(status.signal(), Some(9), "{status}");
    }
    assert_eq!(abandoned, 2, "killed while it had the reservation");
}
