//! A look at the machine from outside the daemon: devices, mounts, records, freezes and limits
//! that no longer belong to anything.
//!
//! Nothing is changed before a finding's repair is performed, and nothing beside a daemon, which
//! may be in the middle of a call.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use orlop_model::{
    BehindDevice, Device, Error, Finding, IoLimits, LabelledDevice, NodeRecord, PoolId, Remedy,
    Result, TargetPath, VolumeId,
};
use orlop_sys::loopdev::{self, LoopDevice};
use orlop_sys::mounts;

use super::failure::cannot;
use super::freezer::Freezer;
use super::limits::Limiter;
use super::mount_lookup::mounts_of_device;
use super::mounting::drop_copies;
use super::records::NodeRecords;
use super::run_dir::{RunDirectory, RunDirectoryClaim};
use super::run_files::RunFiles;

/// udev looks at each device for a moment when it is attached, or no longer mounted.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// Of a volume that a node record speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeExistence {
    Exists,
    Gone,
    /// Its pool is none of those that are configured.
    PoolNotConfigured,
    /// Its pool may be one that could not be inspected, or cannot be read.
    Unknown,
}

/// No daemon starts in a run directory that had none, as long as this lives.
pub struct MachineScan {
    run_dir: RunDirectory,
    claim: RunDirectoryClaim,
    records: Rc<NodeRecords>,
    workload_cgroup: String,
}

impl MachineScan {
    /// Makes nothing: a machine that never served anything has no run directory.
    pub fn of(run_dir: &Path, workload_cgroup: &str) -> Result<Self> {
        let run_dir = RunDirectory::at(run_dir)?;
        let records = Rc::new(NodeRecords::new(run_dir.volumes()));
        let claim = run_dir.claim()?;
        Ok(Self { run_dir, claim, records, workload_cgroup: workload_cgroup.to_owned() })
    }

    /// Does a daemon use the run directory?
    pub fn is_served(&self) -> bool {
        self.claim.by_daemon
    }

    /// Devices with labels of a pool that is looked at. A run directory that is not the one of the
    /// pool's last daemon has no records either, so there what looks forgotten may be in use. The
    /// pool's stamp tells.
    pub fn devices(
        &self,
        pool: &PoolId,
        stamp: Option<&str>,
        devices: &[LabelledDevice],
    ) -> Result<Vec<Finding>> {
        let is_its_own = self.run_dir.is_of_pool(pool, stamp)?;
        let mut findings = Vec::new();
        for labelled in devices {
            let record = match self.records.read(&labelled.volume) {
                Ok(record) => record,
                // Reported by `node_records`.
                Err(Error::Damaged { .. }) => continue,
                Err(error) => return Err(error),
            };
            let finding = judge(labelled, &record, uses_of(labelled)?);
            findings.extend(match labelled.behind {
                BehindDevice::Volume if !is_its_own => finding.map(|it| self.report_only(it)),
                BehindDevice::Volume | BehindDevice::LostData | BehindDevice::Nothing => finding,
            });
        }
        Ok(findings)
    }

    fn report_only(&self, mut finding: Finding) -> Finding {
        finding.remedy = Remedy::ByHand(format!(
            "the run directory {} is not the one of all daemons that served this pool since this \
             machine started: look with the ORLOP_RUN_DIR and ORLOP_DRIVER_NAME of the others",
            self.run_dir
        ));
        finding
    }

    pub fn node_records(
        &self,
        existence: impl Fn(&VolumeId) -> VolumeExistence,
    ) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for id in self.records.ids()? {
            match self.records.read(&id) {
                Ok(record) => match existence(&id) {
                    VolumeExistence::Gone => findings.push(self.record_of_nothing(id, &record)?),
                    VolumeExistence::PoolNotConfigured => {
                        findings.push(self.record_without_pool(&id));
                    }
                    VolumeExistence::Exists | VolumeExistence::Unknown => {}
                },
                Err(error) => findings.push(Finding::by_hand(
                    "node-record-damaged",
                    format!("volume {id}"),
                    error.to_string(),
                    "start the daemon, which sets that file aside; then unpublish and unstage the \
                     volume",
                )),
            }
        }
        Ok(findings)
    }

    /// The record stays: only with the pool can be undone what it names.
    fn record_without_pool(&self, id: &VolumeId) -> Finding {
        Finding::by_hand(
            "pool-not-configured",
            format!("volume {id}"),
            format!("it is in use here, but its pool {} is not configured", id.pool()),
            format!(
                "configure that pool again, and unpublish and unstage the volume; if the pool is \
                 gone for good, unmount and detach what is left of the volume, and remove {}",
                self.records.path(id).display()
            ),
        )
    }

    fn record_of_nothing(&self, id: VolumeId, record: &NodeRecord) -> Result<Finding> {
        const CODE: &str = "stale-node-record";
        let subject = format!("volume {id}");
        let mut occupied = Vec::new();
        for path in paths_of(record) {
            match mounts::mount_at(path.as_path()) {
                Ok(None) => {}
                Ok(Some(_)) => occupied.push(path.to_string()),
                // Only what is missing is certainly not in use.
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    return Ok(Finding::by_hand(
                        CODE,
                        subject,
                        format!(
                            "a record says that it is in use here, but the pool has no such volume; \
                             whether it is in use is not known: {error}"
                        ),
                        format!("make {path} accessible, then look again"),
                    ));
                }
            }
        }
        if !occupied.is_empty() {
            return Ok(Finding::by_hand(
                CODE,
                subject,
                "a record says that it is in use here, but the pool has no such volume",
                format!("something is mounted at {}; unmount it first", occupied.join(", ")),
            ));
        }
        let records = Rc::clone(&self.records);
        Ok(Finding::repairable(
            CODE,
            subject,
            "a record says that it is in use here, but the pool has no such volume",
            "remove that record",
            move || records.save(&id, &NodeRecord::default()),
        ))
    }

    /// Only for when no daemon runs: for one, these are normal.
    pub fn frozen(&self) -> Result<Vec<Finding>> {
        let freezer = Rc::new(Freezer::without_helper(self.run_dir.frozen()));
        let mut findings = Vec::new();
        for mount in freezer.marked()? {
            let freezer = Rc::clone(&freezer);
            findings.push(Finding::repairable(
                "frozen",
                mount.to_string(),
                "a daemon was killed while it held this filesystem still: all that writes to it \
                 waits",
                "thaw it",
                move || freezer.thaw_marked(&mount),
            ));
        }
        Ok(findings)
    }

    /// Limits stay with a device's number when the device is gone, and apply to the next device with it.
    pub fn limits(&self) -> Result<Vec<Finding>> {
        let markers = RunFiles::new(self.run_dir.limited());
        let mut findings = Vec::new();
        for number in markers.names()? {
            let Some((major, minor)) = parse_number(&number) else { continue };
            if is_attached(major, minor)? {
                continue;
            }
            let (group, markers) = (self.workload_cgroup.clone(), self.run_dir.limited());
            let device = Device { path: PathBuf::from(&number), major, minor };
            findings.push(Finding::repairable(
                "stray-limit",
                format!("device {number}"),
                "I/O limits are set for this number, but no volume has it any more",
                "lift them",
                move || Limiter::detect(&group, markers)?.ensure(&device, &IoLimits::default()),
            ));
        }
        Ok(findings)
    }
}

fn paths_of(record: &NodeRecord) -> impl Iterator<Item = &TargetPath> {
    let targets = record.publications.iter().map(|publication| &publication.target);
    record.stage.iter().map(|stage| &stage.path).chain(targets)
}

fn parse_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn is_attached(major: u32, minor: u32) -> Result<bool> {
    let devices = loopdev::all_backed().map_err(cannot("list the loop devices"))?;
    Ok(devices.iter().any(|it| it.device.device_number().is_ok_and(|at| at == (major, minor))))
}

/// What uses a device, whether or not a record asks for it.
struct Uses {
    /// Where it is mounted in this mount namespace.
    mounted: Vec<PathBuf>,
    /// A use that a repair could not end without harm: a process that has a node of the device would find
    /// another volume behind it once its number is used again.
    lasting: Option<String>,
}

fn uses_of(labelled: &LabelledDevice) -> Result<Uses> {
    let device = &labelled.device;
    let number = (device.major, device.minor);
    let shown = mounts_of_device(device)?;
    let bound = shown.iter().find(|entry| entry.binds_node(number, Path::new("/")));
    let bound = bound.map(|entry| format!("its node is bound at {}", entry.mount_point.display()));
    let lasting = bound.or_else(|| {
        LoopDevice::from_path(&device.path).and_then(|device| loopdev::user_elsewhere(&device))
    });
    Ok(Uses { mounted: shown.into_iter().map(|entry| entry.mount_point).collect(), lasting })
}

/// A record names all that the daemon did. With one, further mounts of the filesystem are the
/// orchestrator's own, such as those of sub-paths.
fn judge(labelled: &LabelledDevice, record: &NodeRecord, uses: Uses) -> Option<Finding> {
    let Uses { mounted, lasting } = uses;
    let device = labelled.device.path.display().to_string();
    let subject = format!("volume {}", labelled.volume);
    let places: Vec<String> = mounted.iter().map(|path| path.display().to_string()).collect();
    let places = places.join(", ");
    match labelled.behind {
        BehindDevice::Volume if !record.is_empty() => None,
        BehindDevice::Volume | BehindDevice::Nothing if lasting.is_some() => {
            let user = lasting.unwrap_or_default();
            Some(Finding::by_hand(
                if mounted.is_empty() { "stray-device" } else { "forgotten-mount" },
                subject,
                format!("{device} shows it and is in use, but no record asks for it: {user}"),
                "end what uses it there; then look again",
            ))
        }
        BehindDevice::Volume if mounted.is_empty() => Some(Finding::repairable(
            "stray-device",
            subject,
            format!("{device} shows it, but nothing uses it and no record asks for it"),
            "detach the device",
            detaching(labelled),
        )),
        BehindDevice::Volume => {
            let detach = detaching(labelled);
            let perform = move || {
                for path in &mounted {
                    mounts::ensure_unmounted(path).map_err(cannot("unmount a path"))?;
                    drop_copies(path);
                }
                detach()
            };
            Some(Finding::repairable(
                "forgotten-mount",
                subject,
                format!("it is mounted at {places}, but no record asks for it"),
                format!("unmount it there, unless it is busy, and detach {device}"),
                perform,
            ))
        }
        BehindDevice::LostData => Some(Finding::by_hand(
            "stale-device",
            subject,
            format!("{device} shows a file that is no longer the volume's data"),
            "it may be the only copy: copy it from the device, then unmount and detach that",
        )),
        BehindDevice::Nothing if mounted.is_empty() => Some(Finding::repairable(
            "stale-device",
            subject,
            format!("{device} shows it, but the pool has no such volume"),
            "detach the device",
            detaching(labelled),
        )),
        BehindDevice::Nothing => Some(Finding::by_hand(
            "forgotten-mount",
            subject,
            format!("it is mounted at {places}, but the pool has no such volume"),
            format!("what is there is the only copy: copy it, unmount it, detach {device}"),
        )),
    }
}

fn detaching(labelled: &LabelledDevice) -> impl FnOnce() -> Result<()> + 'static {
    let (path, label) = (labelled.device.path.clone(), labelled.label.clone());
    move || {
        const DOING: &str = "detach a loop device";
        let Some(device) = LoopDevice::from_path(&path) else { return Ok(()) };
        let Some(there) = loopdev::backing(&device).map_err(cannot(DOING))? else { return Ok(()) };
        let deadline = Instant::now() + PATIENCE;
        while let Some(user) =
            loopdev::try_detach_unused(&device, &label, &there.file).map_err(cannot(DOING))?
        {
            if Instant::now() >= deadline {
                return Err(Error::precondition(format!(
                    "cannot detach {}: {user}; end that first",
                    path.display()
                )));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}
