//! Threads that a killed daemon left behind in the kernel (decision 0041).
//!
//! Nothing ends a thread that waits for a disk but the disk. It runs no code of the daemon any more,
//! but finishes the one call that it is in. So a pool is not touched before none is left, or those
//! that are left have to be waiting for something else.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::Result;
use orlop_sys::file::{self, Presence};

use super::failure::cannot;
use super::layout::{Layout, ensure_private_directory};
use super::managed;

/// After a pool has answered for this long, no thread is blocked by it any more.
const SETTLE_TIME: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The caller holds the pool's lock. While the pool hangs, this does not return.
pub(super) fn enter(root: &Path, name: &str) -> Result<Presence> {
    let entering = || format!("open pool {name}");
    let staging = Layout::new(root).staging();
    ensure_private_directory(&staging)?;
    let mut answers_since = None;
    loop {
        if let Some(alone) = Presence::try_alone(&staging).map_err(cannot(entering))? {
            return Ok(alone);
        }
        try_storage(root);
        let since = answers_since.get_or_insert_with(|| {
            tracing::warn!(
                pool = name,
                "threads of the previous daemon are blocked in the kernel; checking whether \
                 the pool responds"
            );
            Instant::now()
        });
        if since.elapsed() >= SETTLE_TIME {
            tracing::warn!(
                pool = name,
                "the pool responds, so those threads are blocked elsewhere; opening it"
            );
            return Presence::beside_others(&staging).map_err(cannot(entering));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// In the directory, and in the image of a managed pool if that is mounted.
fn try_storage(root: &Path) {
    for root in [root, &managed::mount_point_in(root)] {
        // An error is an answer too.
        let _ = file::try_write(&Layout::new(root).staging());
    }
}

#[cfg(test)]
mod tests;
