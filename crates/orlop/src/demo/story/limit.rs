//! An I/O limit that changes under a running writer.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orlop_model::Bytes;
use orlop_sys::cgroup_io::IoController;
use orlop_sys::dependent::DependentProgram;
use rustix::fs::{major, minor};

use super::{Scene, rate};
use crate::demo::MIB;
use crate::demo::daemon::{THIS_PROGRAM, environment};
use crate::demo::directory::DemoDirectory;
use crate::demo::failure::{Failure, check};
use crate::demo::interrupt::Interrupt;
use crate::demo::limited_writer::SUBCOMMAND;

/// What the kernel has already accepted is not held back.
const SETTLE: Duration = Duration::from_millis(300);
const MEASURE: Duration = Duration::from_millis(700);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const TIMEOUT: Duration = Duration::from_secs(30);
const SECTOR: u64 = 512;

/// The cgroup of the writer. `DemoDirectory` removes it.
pub(super) struct LimitedGroup {
    name: String,
    processes: PathBuf,
}

impl LimitedGroup {
    /// The error says why the machine cannot limit I/O.
    pub(super) fn new(directory: &DemoDirectory) -> Result<Self, String> {
        let found = IoController::detect("/").map_err(|error| error.to_string())?;
        let mount = match found {
            Some(IoController::V1 { mount, .. } | IoController::V2 { mount, .. }) => mount,
            None => return Err("no cgroup here can limit I/O, or all are read-only".to_owned()),
        };
        let name = format!("orlop-demo-{}", directory.suffix());
        let path = mount.join(&name);
        directory.note_cgroup(&path).map_err(|failure| failure.to_string())?;
        std::fs::create_dir(&path)
            .map_err(|error| format!("cannot make the cgroup {}: {error}", path.display()))?;
        Ok(Self { name, processes: path.join("cgroup.procs") })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Scene<'_> {
    pub(super) fn limit_writer(
        &mut self,
        group: Result<&LimitedGroup, &String>,
    ) -> Result<(), Failure> {
        self.screen.begin("limit");
        let group = match group {
            Ok(group) if self.calls.offers_limits()? => group,
            Ok(_) => return self.screen.left_out("the daemon offers no limits; its log says why"),
            Err(why) => return self.screen.left_out(why),
        };
        let interrupt = self.story.interrupt;
        let output = File::create(self.story.directory.path().join("writer.log"));
        let output = output.map_err(Failure::cannot("make a log for the writer"))?;
        let file = self.data.target.join("limited");
        let arguments = [SUBCOMMAND.as_ref(), group.processes.as_os_str(), file.as_os_str()];
        let started =
            DependentProgram::start(Path::new(THIS_PROGRAM), &arguments, &environment(), &output);
        let mut writer = started.map_err(Failure::cannot("start a writer"))?;
        let device = WrittenDevice::of(&self.data.target)?;
        device.wait_for_write(&mut writer, interrupt)?;
        let before = device.measure(interrupt)?;
        let limit = (before / 8 / MIB).max(1) * MIB;
        self.calls.limit_writes(&self.data, limit)?;
        pause(SETTLE, interrupt)?;
        let after = device.measure(interrupt)?;
        self.calls.limit_writes(&self.data, 0)?;
        let runs = writer.ended().map_err(Failure::cannot("inspect the writer"))?.is_none();
        writer.kill().map_err(Failure::cannot("end the writer"))?;
        check(runs, || "the writer has ended while it was limited".to_owned())?;
        if before < 2 * limit {
            return self.screen.left_out("the disk is too slow for a limit to show");
        }
        check(after < 2 * limit, || {
            format!("a writer with a limit of {}/s writes {}/s", Bytes(limit), Bytes(after))
        })?;
        check(after > 0, || "a writer with a limit writes nothing".to_owned())?;
        let text = format!(
            "a running writer goes from {}/s to {}/s when its limit becomes {}/s",
            Bytes(before),
            Bytes(after),
            Bytes(limit)
        );
        self.screen.done(&text)
    }
}

/// What the kernel counts for the device of a mounted volume.
struct WrittenDevice(PathBuf);

impl WrittenDevice {
    fn of(mount_point: &Path) -> Result<Self, Failure> {
        let found = std::fs::metadata(mount_point);
        let number = found.map_err(Failure::cannot("inspect a volume"))?.dev();
        Ok(Self(format!("/sys/dev/block/{}:{}/stat", major(number), minor(number)).into()))
    }

    fn bytes(&self) -> Result<u64, Failure> {
        let text = std::fs::read_to_string(&self.0);
        let text = text.map_err(Failure::cannot("read how much a device has written"))?;
        // Documentation/block/stat.rst: the seventh is "write sectors", of 512 bytes each.
        let sectors = text.split_whitespace().nth(6).and_then(|word| word.parse::<u64>().ok());
        sectors
            .map(|count| count * SECTOR)
            .ok_or_else(|| Failure::broken("cannot read the statistics of a device"))
    }

    fn wait_for_write(
        &self,
        writer: &mut DependentProgram,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        let (start, deadline) = (self.bytes()?, Instant::now() + TIMEOUT);
        while self.bytes()? < start + MIB {
            let ended = writer.ended().map_err(Failure::cannot("inspect the writer"))?;
            if let Some(status) = ended {
                return Err(Failure::broken(format!("the writer has ended: {status}")));
            }
            check(Instant::now() < deadline, || "the writer does not write".to_owned())?;
            pause(POLL_INTERVAL, interrupt)?;
        }
        Ok(())
    }

    fn measure(&self, interrupt: &Interrupt) -> Result<u64, Failure> {
        let (start, began) = (self.bytes()?, Instant::now());
        pause(MEASURE, interrupt)?;
        Ok(rate(self.bytes()?.saturating_sub(start), began.elapsed()))
    }
}

fn pause(time: Duration, interrupt: &Interrupt) -> Result<(), Failure> {
    interrupt.run(async {
        tokio::time::sleep(time).await;
        Ok(())
    })
}
