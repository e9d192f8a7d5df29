//! What ends `orlop serve` in an orderly way.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM from a supervisor, SIGINT and SIGHUP from a terminal. One that came while this was not
/// asked is remembered.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// `None`: ignored from the start, as `nohup` does.
    hang_up: Option<Signal>,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: match ignores_hang_up() {
                true => None,
                false => Some(signal(SignalKind::hangup())?),
            },
        })
    }

    pub(crate) async fn received(&mut self) {
        let hang_up = async {
            match &mut self.hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = hang_up => {}
        }
    }
}

pub(crate) fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The first bit is that of signal 1, SIGHUP.
    ignored.is_some_and(|mask| mask & 1 == 1)
}
