//! Registers this daemon with kubelet, without a sidecar: a socket in kubelet's directory for plugins, on
//! which kubelet asks where the CSI socket is.
//!
//! kubelet asks once for each socket that appears. If it then fails, as while the API server does not answer,
//! it does not try again by itself: the socket has to be made again.

use std::path::PathBuf;
use std::time::Duration;

use orlop_csi::{KubeletCall, RegisteredPlugin, Routes, ServeError, Socket};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

const FIRST_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(60);
/// After the socket could not be made.
const BIND_RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// kubelet sees a new socket within a second or two.
const KUBELET_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Registration {
    socket: PathBuf,
    plugin: RegisteredPlugin,
    retry: Duration,
    /// Was it said that kubelet does not ask?
    is_noted: bool,
}

impl Registration {
    pub(crate) fn new(socket: PathBuf, plugin: RegisteredPlugin) -> Self {
        Self { socket, plugin, retry: FIRST_RETRY, is_noted: false }
    }

    /// Until the daemon stops; then the socket is removed. The CSI socket has to answer by now.
    pub(crate) async fn keep(mut self, stopped: watch::Receiver<bool>) -> Result<(), ServeError> {
        while !*stopped.borrow() {
            let stop = stopping(stopped.clone());
            tokio::pin!(stop);
            let socket = tokio::select! {
                socket = self.bind() => socket,
                () = &mut stop => return Ok(()),
            };
            let (heard, mut calls) = watch::channel(KubeletCall::None);
            let routes = Routes::registration(self.plugin.clone(), heard);
            let until = async {
                tokio::select! {
                    () = stop => {}
                    () = self.refused(&mut calls) => {}
                }
            };
            orlop_csi::serve_registration(socket, routes, until).await?;
        }
        Ok(())
    }

    /// What is wrong with kubelet's directory is no reason to end: volumes that are in use go on, and
    /// kubelet may be about to make it, or another program to end that holds the name.
    async fn bind(&self) -> Socket {
        let mut said = None;
        loop {
            let path = self.socket.clone();
            let failure = match tokio::task::spawn_blocking(move || orlop_csi::bind(&path)).await {
                Ok(Ok(socket)) => return socket,
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            if said.as_ref() != Some(&failure) {
                tracing::error!(
                    why = failure,
                    "cannot register with kubelet, and trying again; if node-driver-registrar runs \
                     beside this daemon, take it or ORLOP_REGISTER out"
                );
                said = Some(failure);
            }
            sleep(BIND_RETRY_INTERVAL).await;
        }
    }

    /// Returns when kubelet has to be given another occasion.
    async fn refused(&mut self, calls: &mut watch::Receiver<KubeletCall>) {
        let unasked = sleep(KUBELET_TIMEOUT);
        tokio::pin!(unasked);
        let mut due: Option<Instant> = None;
        loop {
            let retry = sleep_until(due.unwrap_or_else(Instant::now));
            tokio::select! {
                called = calls.changed() => {
                    if called.is_err() {
                        return std::future::pending().await;
                    }
                    match *calls.borrow_and_update() {
                        KubeletCall::None => {}
                        KubeletCall::Asked => self.is_noted = true,
                        KubeletCall::Registered => {
                            self.is_noted = true;
                            due = None;
                            self.retry = FIRST_RETRY;
                        }
                        // It tries again by itself after some failures.
                        KubeletCall::Refused => {
                            self.is_noted = true;
                            due = due.or(Some(Instant::now() + self.retry));
                        }
                    }
                }
                () = retry, if due.is_some() => {
                    self.retry = (self.retry * 2).min(MAX_RETRY);
                    return;
                }
                () = &mut unasked, if !self.is_noted => {
                    tracing::warn!(
                        socket = %self.socket.display(),
                        "kubelet has not asked for this plugin yet; is this socket in kubelet's own \
                         directory plugins_registry?"
                    );
                    self.is_noted = true;
                }
            }
        }
    }
}

async fn stopping(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a reason to stop as well.
    let _ = stopped.wait_for(|stop| *stop).await;
}
