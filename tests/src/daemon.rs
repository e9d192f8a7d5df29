//! The process under test.

mod threads;

use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::client::Client;
use crate::launch::Launch;
use crate::leaks;
use crate::pool::TestPool;

/// Far more than anything here takes; reached only by a daemon that hangs.
const TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(3);
const LONGEST_LOG: usize = 200;

pub struct Daemon {
    child: Option<Child>,
    launch: Launch,
}

impl Daemon {
    pub(crate) fn idle(launch: Launch) -> Self {
        Self { child: None, launch }
    }

    pub async fn start(pool: &TestPool) -> Self {
        Launch::on(pool).start().await
    }

    /// Connects at the first call, and again after a restart.
    pub fn client(&self) -> Client {
        Client::new(&self.launch.socket(), self.launch.scratch().clone())
    }

    /// Of another socket than the one of `CSI_ENDPOINT`.
    pub fn client_at(&self, socket: &Path) -> Client {
        Client::new(socket, self.launch.scratch().clone())
    }

    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    pub fn log(&self) -> String {
        self.launch.log()
    }

    pub fn log_end(&self) -> String {
        self.launch.log_end()
    }

    /// A line is written a moment after the call that it is about may have been answered.
    pub fn has_logged(&self, text: &str) -> bool {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if self.log().contains(text) {
                return true;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        false
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("a running daemon").id()
    }

    /// As if the machine's memory had run out: no clean-up of any kind.
    pub fn kill9(&mut self) {
        let mut child = self.child.take().expect("a running daemon");
        child.kill().expect("kill the daemon");
        child.wait().expect("wait for the daemon");
    }

    /// Its machine goes down and does not come back: nothing of it is left there.
    pub fn lose_machine(&mut self) {
        self.kill9();
        leaks::remove_all_but(self.launch.scratch().path(), &self.launch.fixtures);
    }

    /// Its machine loses power and comes back: mounts, devices and the run directory are gone.
    pub async fn reboot_machine(&mut self) {
        self.lose_machine();
        let run = self.launch.scratch().join("run");
        std::fs::rename(&run, run.with_extension("before")).expect("put the run directory away");
        self.restart().await;
    }

    /// SIGTERM; the daemon must end well and take its socket with it.
    pub fn terminate(&mut self) {
        self.stop(Signal::TERM);
    }

    pub fn stop(&mut self, signal: Signal) {
        let mut child = self.child.take().expect("a running daemon");
        send(&child, signal);
        let Some(status) = wait(&mut child) else {
            threads::print(child.id());
            let _ = child.kill();
            let _ = child.wait();
            panic!("the daemon does not end");
        };
        assert_eq!(status.code(), Some(0), "the daemon failed while it stopped");
        let socket = self.launch.socket();
        assert!(!socket.exists(), "{} was left", socket.display());
    }

    /// Sends a signal and does not wait.
    pub fn signal(&self, signal: Signal) {
        send(self.child.as_ref().expect("a running daemon"), signal);
    }

    /// Waits for an end that was asked for by [`Self::signal`].
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("a running daemon");
        match wait(&mut child) {
            Some(status) => status,
            None => {
                self.child = Some(child);
                self.print_threads();
                panic!("the daemon does not end");
            }
        }
    }

    /// A successor, started as this one was; if this one still runs, it is terminated first.
    pub async fn restart(&mut self) {
        if self.child.is_some() {
            self.terminate();
        }
        self.start_again();
        self.wait_until_ready().await;
    }

    /// A successor that may end before it is ready, for the predecessor's end was asked for.
    pub async fn try_restart(&mut self) -> Option<ExitStatus> {
        assert!(self.child.is_none(), "the predecessor still runs");
        self.child = Some(self.launch.spawn());
        self.ready_or_ended().await
    }

    /// A successor that is not waited for, as it may not get ready.
    pub fn start_again(&mut self) {
        self.child = Some(self.launch.spawn());
    }

    /// A successor of one that was sent a signal and cannot end: a thread of it waits in the kernel.
    pub fn start_beside(&mut self) -> Predecessor {
        let child = self.child.replace(self.launch.spawn());
        Predecessor(child.expect("a running daemon"))
    }

    /// To the processes that show images to this daemon's machine.
    pub fn signal_exporters(&self, signal: Signal) {
        let exporters = leaks::exporters(self.launch.scratch().path());
        assert!(!exporters.is_empty(), "nothing is exported");
        for exporter in exporters {
            kill_process(exporter, signal).expect("send a signal to an exporter");
        }
    }

    /// kill -9 of the processes that show images to this daemon's machine, and waits for their end.
    pub fn kill_exporters(&self) {
        let ground = self.launch.scratch().path();
        let exporters = leaks::exporters(ground);
        assert!(!exporters.is_empty(), "nothing is exported");
        for exporter in exporters {
            let _ = kill_process(exporter, Signal::KILL);
        }
        let deadline = Instant::now() + TIMEOUT;
        while !leaks::exporters(ground).is_empty() {
            assert!(Instant::now() < deadline, "exporters do not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Loop devices and mounts of this test that are there now, but for the pool's own.
    pub fn leaks(&self) -> Vec<String> {
        leaks::describe(self.launch.scratch().path(), &self.launch.fixtures)
    }

    /// As [`Self::leaks`], without a look at every process of the machine.
    pub fn devices_and_mounts(&self) -> Vec<String> {
        leaks::devices_and_mounts(self.launch.scratch().path(), &self.launch.fixtures)
    }

    async fn wait_until_ready(&mut self) {
        if let Some(status) = self.ready_or_ended().await {
            panic!("the daemon ended at its start: {status}");
        }
    }

    /// `None` once it is ready.
    async fn ready_or_ended(&mut self) -> Option<ExitStatus> {
        let client = self.client();
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            let child = self.child.as_mut().expect("a running daemon");
            if let Some(status) = child.try_wait().expect("look at the daemon") {
                self.child = None;
                return Some(status);
            }
            // A daemon may hang with the connection accepted.
            let probe = tokio::time::timeout_at(deadline.into(), client.probe()).await;
            if matches!(probe, Ok(Ok(true))) {
                return None;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        self.print_threads();
        panic!("the daemon is not ready after {TIMEOUT:?}");
    }

    fn ensure_ended(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        send(&child, Signal::TERM);
        if wait(&mut child).is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn print_threads(&self) {
        if let Some(child) = &self.child {
            threads::print(child.id());
        }
    }

    fn print_log(&self) {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let first = lines.len().saturating_sub(LONGEST_LOG);
        eprintln!("--- the daemon's log\n{}\n---", lines[first..].join("\n"));
    }
}

/// A daemon that ends when the kernel lets it.
pub struct Predecessor(Child);

impl Predecessor {
    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("look at a daemon").is_some()
    }

    pub fn wait_for_end(mut self) -> ExitStatus {
        wait(&mut self.0).expect("the former daemon does not end")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.ensure_ended();
        let left = self.leaks();
        leaks::remove_all_but(self.launch.scratch().path(), &self.launch.fixtures);
        if std::thread::panicking() {
            self.print_log();
        } else if !left.is_empty() {
            self.print_log();
            panic!("left behind:\n{}", left.join("\n"));
        }
    }
}

fn send(child: &Child, signal: Signal) {
    // Not waited for yet, so the number cannot have gone to another process.
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let _ = kill_process(pid.expect("a process id"), signal);
}

pub(crate) fn wait(child: &mut Child) -> Option<ExitStatus> {
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().expect("wait for the daemon") {
            return Some(status);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    None
}

#[cfg(test)]
mod tests;
