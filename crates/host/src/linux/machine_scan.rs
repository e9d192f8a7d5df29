//! The doctor's scan of the machine: devices, mounts, records, freezes and limits that no longer belong to
//! anything.
//!
//! Nothing is changed before a finding's repair is performed, and nothing beside a daemon, which
//! may be in the middle of a call.

mod in_use;
mod mappings;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use orlop_model::{
    BehindDevice, Device, Error, Finding, IoLimits, LabelledDevice, NodeRecord, Remedy, Result,
    TargetPath, VolumeId,
};
use orlop_sys::device_mapper::MappedDevice;
use orlop_sys::loopdev::{self, LoopDevice};
use orlop_sys::mounts;

use super::devices::{self, mapped};
use super::encryption::all_mappings;
use super::failure::cannot;
use super::freezer::Freezer;
use super::limits::Limiter;
use super::mounting::{drop_copies, mounts_of_device};
use super::run_dir::{RunDirectory, RunDirectoryClaim};
use super::run_files::{NodeRecords, RunFiles};

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
    records: Arc<NodeRecords>,
    workload_cgroup: String,
}

impl MachineScan {
    /// Makes nothing: a machine that never served anything has no run directory.
    pub fn of(run_dir: &Path, workload_cgroup: &str) -> Result<Self> {
        let run_dir = RunDirectory::at(run_dir)?;
        let records = Arc::new(NodeRecords::new(run_dir.volumes()));
        let claim = run_dir.claim()?;
        Ok(Self { run_dir, claim, records, workload_cgroup: workload_cgroup.to_owned() })
    }

    /// Does a daemon use the run directory?
    pub fn is_served(&self) -> bool {
        self.claim.by_daemon
    }

    /// Findings about devices with labels of the pool. A run directory that is not the one of the
    /// pool's last daemon has no records either, so there what looks forgotten may be in use: then
    /// `elsewhere` says what to do, and nothing is repaired.
    pub fn devices(
        &self,
        devices: &[LabelledDevice],
        elsewhere: Option<&str>,
    ) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for labelled in devices {
            let record = match self.records.read(&labelled.volume) {
                Ok(record) => record,
                // Reported by `node_records`.
                Err(Error::Damaged { .. }) => continue,
                Err(error) => return Err(error),
            };
            let used = mappings::as_used(labelled)?;
            let uses = uses_of(&used)?;
            if labelled.behind == BehindDevice::Elsewhere {
                let is_shown = devices.iter().any(|other| {
                    other.volume == labelled.volume && other.behind == BehindDevice::Volume
                });
                findings.extend(judge_elsewhere(labelled, &record, &uses, is_shown));
                continue;
            }
            if labelled.behind == BehindDevice::Volume {
                findings.extend(in_use::judge_use(&used, &record)?);
            }
            let finding = judge(labelled, &record, uses);
            findings.extend(match labelled.behind {
                BehindDevice::Volume => finding.map(|it| report_only(it, elsewhere)),
                BehindDevice::LostData | BehindDevice::Nothing | BehindDevice::Elsewhere => finding,
            });
        }
        Ok(findings)
    }

    /// Open encrypted volumes of pools that do not list their devices, as those on Ceph.
    pub fn mappings(&self, is_ours: impl Fn(&VolumeId) -> bool) -> Result<Vec<Finding>> {
        mappings::judge(&self.records, is_ours)
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
                    VolumeExistence::Exists => findings.extend(self.staged_volume(&id, &record)?),
                    VolumeExistence::Unknown => {}
                },
                Err(error) => findings.push(Finding::by_hand(
                    "node-record-damaged",
                    format!("volume {id}"),
                    error.to_string(),
                    "start the daemon, which moves that file aside; then unpublish and unstage the \
                     volume",
                )),
            }
        }
        Ok(findings)
    }

    fn staged_volume(&self, id: &VolumeId, record: &NodeRecord) -> Result<Vec<Finding>> {
        if record.stage.is_none() {
            return Ok(Vec::new());
        }
        let lost = in_use::judge_lost_writes(&RunFiles::new(self.run_dir.lost_writes()), id)?;
        Ok(lost.into_iter().chain(in_use::judge_device(id)?).collect())
    }

    /// The record stays: by it the calls that end the use know what to undo.
    fn record_without_pool(&self, id: &VolumeId) -> Finding {
        Finding::by_hand(
            "pool-not-configured",
            format!("volume {id}"),
            format!("it is in use here, but its pool {} is not configured", id.pool()),
            format!(
                "unpublish and unstage the volume, which works without the pool, or configure the pool \
                 again; if that is refused, unmount and detach what is left of the volume, and remove {}",
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
                        format!("make {path} accessible, then run the doctor again"),
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
        let records = Arc::clone(&self.records);
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
        let freezer = Arc::new(Freezer::without_helper(self.run_dir.frozen()));
        let mut findings = Vec::new();
        for mount in freezer.marked()? {
            let freezer = Arc::clone(&freezer);
            findings.push(Finding::repairable(
                "frozen",
                mount.to_string(),
                "a daemon was killed while it had this filesystem frozen: every write to it blocks",
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

fn report_only(mut finding: Finding, advice: Option<&str>) -> Finding {
    if let Some(advice) = advice {
        finding.remedy = Remedy::ByHand(advice.to_owned());
    }
    finding
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
    let is_loop =
        devices.iter().any(|it| it.device.device_number().is_ok_and(|at| at == (major, minor)));
    let is_it = |mapping: &MappedDevice| (mapping.major, mapping.minor) == (major, minor);
    let is_mapping = || Ok(all_mappings()?.iter().any(|(_, _, mapping)| is_it(mapping)));
    Ok(is_loop || mapped::is_of_any_volume(major, minor)? || is_mapping()?)
}

/// What uses a device, whether or not a node record names it.
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
        let device = LoopDevice::from_path(&device.path)?;
        lasting_use(|| loopdev::user_elsewhere(&device))
    });
    Ok(Uses { mounted: shown.into_iter().map(|entry| entry.mount_point).collect(), lasting })
}

/// A process that a container runtime starts has a copy of every mount until it has its own root, so a use that ends
/// within a second is ignored.
fn lasting_use(mut find_user: impl FnMut() -> Option<String>) -> Option<String> {
    const POLLS: u32 = 10;
    const POLL_INTERVAL: Duration = Duration::from_millis(100);
    let mut user = find_user()?;
    for _ in 1..POLLS {
        thread::sleep(POLL_INTERVAL);
        user = find_user()?;
    }
    Some(user)
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
                format!(
                    "{device} is attached to it and in use, but no node record names it: {user}"
                ),
                "end that use, then run the doctor again",
            ))
        }
        BehindDevice::Volume if mounted.is_empty() => Some(Finding::repairable(
            "stray-device",
            subject,
            format!("{device} is attached to it, but nothing uses it and no node record names it"),
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
                format!("it is mounted at {places}, but no node record names it"),
                format!("unmount it there, unless it is busy, and detach {device}"),
                perform,
            ))
        }
        BehindDevice::LostData | BehindDevice::Elsewhere => Some(Finding::by_hand(
            "stale-device",
            subject,
            format!("{device} is attached to a file that is no longer the volume's data"),
            "it may be the only copy: copy it from the device, then unmount and detach that",
        )),
        BehindDevice::Nothing if mounted.is_empty() => Some(Finding::repairable(
            "stale-device",
            subject,
            format!("{device} is attached to it, but the pool has no such volume"),
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

/// As the daemon decides at its start: a device outside of the pool is the volume's where the record of this
/// run directory says that it is in use. Others belong to a copy of the pool. A raw volume need not be mounted
/// anywhere; then it is, unless another device is on its data (`is_shown`).
fn judge_elsewhere(
    labelled: &LabelledDevice,
    record: &NodeRecord,
    uses: &Uses,
    is_shown: bool,
) -> Option<Finding> {
    let at_recorded_path = paths_of(record).find(|path| {
        let resolved = path.as_path().canonicalize();
        uses.mounted.contains(&resolved.unwrap_or_else(|_| path.as_path().to_owned()))
    });
    let is_raw = record.stage.as_ref().is_some_and(|stage| stage.capability.is_block());
    if at_recorded_path.is_none() && (is_shown || !is_raw) {
        return None;
    }
    let device = labelled.device.path.display();
    let at = at_recorded_path.map(|path| format!(" at {path}")).unwrap_or_default();
    Some(Finding::by_hand(
        "stale-device",
        format!("volume {}", labelled.volume),
        format!(
            "it is in use{at} by {device}, which is attached to a file that is not the volume's data in \
             the pool: that was moved or replaced, and the file has what the workload writes"
        ),
        format!(
            "move the file that 'losetup {device}' shows back; or copy the device, then unmount and \
             detach it"
        ),
    ))
}

fn detaching(labelled: &LabelledDevice) -> impl FnOnce() -> Result<()> + Send + 'static {
    let (path, label) = (labelled.device.path.clone(), labelled.label.clone());
    let mapped = mapped::of_labelled(labelled);
    let labelled = labelled.clone();
    move || {
        const DOING: &str = "detach a loop device";
        mappings::ensure_closed(&labelled)?;
        if let Some(mapped) = mapped {
            return mapped::try_detach(&labelled.volume, &mapped);
        }
        let Some(device) = LoopDevice::from_path(&path) else { return Ok(()) };
        let Some(there) = loopdev::backing(&device).map_err(cannot(DOING))? else { return Ok(()) };
        devices::detach_unused(&device, &label, &there.file)
    }
}

#[cfg(test)]
mod tests {
    use super::lasting_use;

    #[test]
    fn use_that_ends_within_a_second_is_none() {
        let mut looks = [Some("process 7"), Some("process 8"), None, Some("process 9")].into_iter();
        assert_eq!(lasting_use(|| looks.next()?.map(str::to_owned)), None);
        assert_eq!(looks.next(), Some(Some("process 9")), "it is not asked again");
        let mut process = 0;
        let lasting = lasting_use(|| {
            process += 1;
            Some(format!("process {process}"))
        });
        assert_eq!(lasting.as_deref(), Some("process 10"), "the one that is seen last");
    }
}
