//! The daemon of the demo: this program's `serve`, with its own socket, run directory, driver name and node id.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orlop_sys::dependent::DependentProgram;
use rustix::process::Signal;

use super::calls::Calls;
use super::directory::{DemoDirectory, POOL};
use super::failure::Failure;
use super::interrupt::Interrupt;

pub(super) const SETTINGS: &str = "orlop.toml";
pub(super) const SOCKET: &str = "csi.sock";
const LOG: &str = "daemon.log";
/// Also if its file was replaced since.
pub(super) const THIS_PROGRAM: &str = "/proc/self/exe";
const TIME_TO_START: Duration = Duration::from_secs(60);
const TIME_TO_STOP: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub(super) struct DemoDaemon {
    program: DependentProgram,
    log: PathBuf,
    socket: PathBuf,
}

impl DemoDaemon {
    /// Written once; `--keep` leaves it for the daemon that serves the pool later.
    pub(super) fn write_settings(
        directory: &DemoDirectory,
        image_size: u64,
    ) -> Result<(), Failure> {
        let at = |name: &str| directory.path().join(name).display().to_string();
        let text = format!(
            "endpoint = {endpoint}\n\
             run_dir = {run}\n\
             driver_name = \"demo-{suffix}.orlop.io\"\n\
             node_id = \"demo\"\n\
             \n\
             [pool]\n\
             name = \"demo\"\n\
             path = {pool}\n\
             image_size = \"{image_size}\"\n\
             # A hundred snapshots of one volume promise its size a hundred times.\n\
             overcommit = 1000\n",
            endpoint = quoted(&format!("unix://{}", at(SOCKET))),
            run = quoted(&at("run")),
            suffix = directory.suffix(),
            pool = quoted(&at(POOL)),
        );
        let written = std::fs::write(directory.path().join(SETTINGS), text);
        written.map_err(Failure::cannot("write the settings of the daemon"))
    }

    /// Returns when it is ready. The cgroup is that of the demo, and no setting of a pool that is kept.
    pub(super) fn start(
        directory: &Path,
        cgroup: Option<&str>,
        interrupt: &Interrupt,
    ) -> Result<(Self, Calls), Failure> {
        let log = directory.join(LOG);
        let output = File::options().create(true).append(true).open(&log);
        let output = output.map_err(Failure::cannot("open the log of the daemon"))?;
        let arguments =
            ["serve".into(), "--config".into(), directory.join(SETTINGS).into_os_string()];
        let mut variables = environment();
        variables.extend(cgroup.map(|group| ("ORLOP_WORKLOAD_CGROUP".into(), group.into())));
        let program =
            DependentProgram::start(Path::new(THIS_PROGRAM), &arguments, &variables, &output);
        let program = program.map_err(Failure::cannot("start the daemon"))?;
        let mut daemon = Self { program, log, socket: directory.join(SOCKET) };
        let calls = daemon.wait_until_ready(interrupt)?;
        Ok((daemon, calls))
    }

    fn wait_until_ready(&mut self, interrupt: &Interrupt) -> Result<Calls, Failure> {
        let deadline = Instant::now() + TIME_TO_START;
        loop {
            interrupt.check()?;
            if let Some(status) =
                self.program.ended().map_err(Failure::cannot("start the daemon"))?
            {
                let said = self.last_words();
                return Err(Failure::broken(format!(
                    "the daemon did not start ({status}): {said}"
                )));
            }
            // A new connection each time: the last one may have met a socket that was not there yet.
            let calls = Calls::to(&self.socket, interrupt)?;
            if calls.is_ready()? {
                return Ok(calls);
            }
            if Instant::now() > deadline {
                let said = self.last_words();
                return Err(Failure::broken(format!("the daemon does not get ready: {said}")));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.program.id()
    }

    /// kill -9.
    pub(super) fn kill(mut self) -> Result<(), Failure> {
        self.program.kill().map_err(Failure::cannot("kill the daemon"))
    }

    /// In order, and by force if that takes too long.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        let asked = self.program.send(Signal::TERM);
        asked.map_err(Failure::cannot("stop the daemon"))?;
        let ended = self.program.ended_within(TIME_TO_STOP);
        match ended.map_err(Failure::cannot("stop the daemon"))? {
            Some(status) if status.success() => Ok(()),
            Some(status) => {
                let said = self.last_words();
                Err(Failure::broken(format!("the daemon did not stop well ({status}): {said}")))
            }
            None => Err(Failure::broken("the daemon does not stop; it is killed")),
        }
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().last().unwrap_or("its log is empty").trim().to_owned()
    }
}

impl Drop for DemoDaemon {
    /// A story that ends early: calls that run are finished, so that nothing stays frozen.
    fn drop(&mut self) {
        if self.program.send(Signal::TERM).is_ok() {
            let _ = self.program.ended_within(TIME_TO_STOP);
        }
    }
}

/// Variables of the user's daemon are not for this one.
pub(super) fn environment() -> Vec<(OsString, OsString)> {
    let temporary = std::env::var_os("TMPDIR").map(|value| ("TMPDIR".into(), value));
    temporary.into_iter().collect()
}

/// As a string of TOML.
fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '"' | '\\' => format!("\\{c}"),
            c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        })
        .collect();
    format!("\"{escaped}\"")
}
