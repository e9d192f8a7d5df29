//! Reads from disks that may hang, for commands that read several: one that hangs must hide no other.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Far more than it takes on a disk that answers.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The result of `read`, or why there is none. A thread that hangs ends with the process.
pub(crate) fn within_timeout<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (sender, found) = mpsc::sync_channel(1);
    // The receiver is gone only if it took too long.
    let reading = move || drop(sender.send(read()));
    let started = thread::Builder::new().name("read".to_owned()).spawn(reading);
    started.map_err(|error| format!("cannot start a thread: {error}"))?;
    let timeout = |_| {
        format!("it was not read within {} seconds; its disk is slow or hangs", TIMEOUT.as_secs())
    };
    found.recv_timeout(TIMEOUT).map_err(timeout)?
}
