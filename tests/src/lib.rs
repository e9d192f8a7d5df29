//! The harness of the black-box tests: the real binary on a real pool, driven over its socket as
//! an orchestrator drives it.
//!
//! ```no_run
//! # use orlop_tests::*;
//! # async fn example() {
//! let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
//! let daemon = Daemon::start(&pool).await;
//! let client = daemon.client();
//! let volume = client.create("data").size(GIB).fs("ext4").done().await;
//! let node = client.on_node(&volume, mount("ext4"));
//! node.up().await;
//! Pattern::new(1).write(&node.target.join("file"), 5 * MIB);
//! node.down().await;
//! client.delete(&volume.volume_id).await.unwrap();
//! # }
//! ```
//!
//! Whatever a test leaves behind fails it, and is removed so that the next one is not disturbed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test says what it expects by unwrapping it"
)]

mod authority;
mod capability;
mod ceph;
mod cgroup;
mod child_watcher;
mod client;
mod connection;
mod create;
mod daemon;
mod group;
mod launch;
mod leaks;
mod lvm;
mod mount_holder;
mod on_node;
mod pattern;
mod pool;
mod recorded_freeze;
mod scratch;
mod sequence_writer;
mod silent_mount;
mod sizes;
mod unread_log;
mod usage;
mod variable;
mod volume_group;
mod workload;

pub use authority::Authority;
pub use capability::{Mode, VolumeCapabilityExt, block, mount};
pub use ceph::{ClusterOutage, TestCeph};
pub use cgroup::{Cgroup, Job, device_at};
pub use child_watcher::{ChildWatcher, files_that_hold};
pub use client::{Answer, Client, expect_code, int};
pub use connection::is_connection_lost;
pub use create::Create;
pub use daemon::{Daemon, Predecessor};
pub use fastrand::Rng;
pub use group::GroupSnapshotExt;
pub use launch::{Ended, Launch, Ran, Running, binary};
pub use leaks::{detach_by_hand, mounts_at};
pub use lvm::{LvmLock, LvmSize, TestLvm, device_mapper, mapped_devices};
pub use mount_holder::MountHolder;
pub use on_node::OnNode;
pub use orlop_csi::proto::csi::{v0, v1};
pub use orlop_csi::proto::{encryptionkeyrotation, identity, monitor, reclaimspace, volumegroup};
pub use pattern::{Pattern, fingerprint, is_all_zero, write_direct};
pub use pool::{PoolFs, TestPool};
pub use recorded_freeze::RecordedFreeze;
pub use scratch::Scratch;
pub use sequence_writer::{SequenceWriter, assert_one_instant, read_sequence};
pub use silent_mount::SilentMount;
pub use sizes::{assert_size, may_grow_ext4_mounted};
pub use tonic::{Code, Status};
pub use unread_log::{FullPipe, UnreadLog};
pub use usage::{allow_descriptors, descriptors, forget_peak, peak_resident_bytes, resident_bytes};
pub use variable::{random_seed, variable};
pub use volume_group::VolumeGroups;
pub use workload::Workload;

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// Shows a figure also if the test passes, whose output is captured otherwise.
pub fn report(figure: &str) {
    use std::io::Write;
    // Not by a macro: what those print is held back.
    let _ = writeln!(std::io::stderr().lock(), "figure: {figure}");
}

/// False if the run opted out of tests that need root; without that, being another user fails.
pub fn root() -> bool {
    if std::env::var_os("ORLOP_TEST_SKIP_ROOT").is_some_and(|value| value == "1") {
        return false;
    }
    assert!(rustix::process::geteuid().is_root(), "run as root, or set ORLOP_TEST_SKIP_ROOT=1");
    true
}

/// False, with a line that says so, where the kernel has no device-mapper or cryptsetup is missing.
pub fn can_encrypt() -> bool {
    let missing = orlop_sys::crypt::missing();
    if let Some(why) = &missing {
        assert!(std::env::var_os("ORLOP_TEST_DISK").is_none(), "{why}, and this is the guest");
        eprintln!("skipped: {why}; `tests/guest/run` has it");
    }
    missing.is_none()
}

/// As [`needs_root`], of tests that need encrypted volumes as well.
#[macro_export]
macro_rules! needs_encryption {
    () => {
        $crate::needs_root!();
        if !$crate::can_encrypt() {
            return;
        }
    };
}

/// Leaves the test if the run opted out of those that need root.
#[macro_export]
macro_rules! needs_root {
    () => {
        if !$crate::root() {
            return;
        }
    };
}

/// One test for each kind of pool, out of an `async fn(PoolFs)`.
#[macro_export]
macro_rules! on_every_pool {
    ($($test:ident),+ $(,)?) => {$(
        mod $test {
            #[tokio::test(flavor = "multi_thread")]
            async fn on_an_xfs_pool() {
                $crate::needs_root!();
                super::$test($crate::PoolFs::Xfs).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn on_a_btrfs_pool() {
                $crate::needs_root!();
                super::$test($crate::PoolFs::Btrfs).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn on_a_plain_directory() {
                $crate::needs_root!();
                super::$test($crate::PoolFs::Directory).await;
            }
        }
    )+};
}
