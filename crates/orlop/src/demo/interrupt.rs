//! Ctrl-C and its like end the story between two pieces of work, and what was made is removed.

use std::sync::Arc;

use rustix::process::Signal;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::failure::Failure;
use crate::signals::ignores_hang_up;

/// Cheap to clone; also the runtime that calls are made on.
#[derive(Clone)]
pub(super) struct Interrupt {
    runtime: Arc<Runtime>,
    received: watch::Receiver<Option<Signal>>,
}

impl Interrupt {
    /// From now on signals no longer end the process.
    pub(super) fn listen() -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(Failure::cannot("start threads"))?;
        let (send, received) = watch::channel(None);
        let mut kinds =
            vec![(SignalKind::interrupt(), Signal::INT), (SignalKind::terminate(), Signal::TERM)];
        if !ignores_hang_up() {
            kinds.push((SignalKind::hangup(), Signal::HUP));
        }
        for (kind, name) in kinds {
            let entered = runtime.enter();
            let mut stream = signal(kind).map_err(Failure::cannot("listen for signals"))?;
            drop(entered);
            let send = send.clone();
            runtime.spawn(async move {
                while stream.recv().await.is_some() {
                    // The first one counts.
                    send.send_if_modified(|known| {
                        known.is_none() && {
                            *known = Some(name);
                            true
                        }
                    });
                }
            });
        }
        Ok(Self { runtime: Arc::new(runtime), received })
    }

    pub(super) fn check(&self) -> Result<(), Failure> {
        match *self.received.borrow() {
            None => Ok(()),
            Some(signal) => Err(Failure::Interrupted(signal)),
        }
    }

    /// Waits for `work`, unless a signal comes first.
    pub(super) fn run<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut received = self.received.clone();
        self.runtime.block_on(async {
            let signal = async {
                match received.wait_for(Option::is_some).await {
                    Ok(signal) => signal.unwrap_or(Signal::TERM),
                    Err(_closed) => std::future::pending().await,
                }
            };
            tokio::select! {
                done = work => done,
                signal = signal => Err(Failure::Interrupted(signal)),
            }
        })
    }
}
