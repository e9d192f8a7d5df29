//! Where a complaint of lvm becomes an error of the pool: in one function.
//!
//! lvm says with its exit status only that it failed. Why, it says in English, as it is run with `LC_ALL=C`; the texts
//! are those of LVM 2.03. What is not known here is passed on as it is.

use orlop_model::{Error, Reason};
use orlop_sys::tool::Ended;

use super::layout::is_of_tag;

const MOST_COMPLAINTS: usize = 8;

/// What kept lvm from it, by what an operator can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// No extents are left in the volume group.
    GroupFull,
    /// The thin pool is out of data or metadata, or above the limit that lvm.conf sets.
    ThinPoolFull,
    /// The text about the volume group does not fit into the metadata area of its physical volumes.
    MetadataAreaFull,
    GroupMissing,
    /// Several volume groups have the name.
    GroupAmbiguous,
    LvMissing,
    PvMissing,
    InUse,
    NameTaken,
    LockHeld,
    Exported,
    OtherHost,
    DuplicatePvs,
    ThinPoolDamaged,
    NoDeviceMapper,
    NotPermitted,
    Unknown,
}

/// A complaint has all fragments, in this order, in one line. The first that is found counts, so what explains more
/// comes first: lvm goes on complaining about what follows from it.
const COMPLAINTS: [(&[&str], Cause); 36] = [
    (&["metadata on", "too large for circular buffer"], Cause::MetadataAreaFull),
    (&["metadata on", "exceeds maximum metadata size"], Cause::MetadataAreaFull),
    (&["free space in thin pool", "reached threshold"], Cause::ThinPoolFull),
    (&["message ioctl", "failed: No space left on device"], Cause::ThinPoolFull),
    (&["Manual repair required"], Cause::ThinPoolDamaged),
    (&["hin pool", "transaction_id is", "expected"], Cause::ThinPoolDamaged),
    (&["has insufficient free space"], Cause::GroupFull),
    (&["Insufficient free space"], Cause::GroupFull),
    (&["Insufficient suitable"], Cause::GroupFull),
    (&["while PVs are missing"], Cause::PvMissing),
    (&["while physical volumes are missing"], Cause::PvMissing),
    (&["of partial LV"], Cause::PvMissing),
    (&["is inconsistent or has PVs missing"], Cause::PvMissing),
    (&["with duplicate PV devices"], Cause::DuplicatePvs),
    (&["while PVs appear on duplicate devices"], Cause::DuplicatePvs),
    (&["Cannot access VG", "with system ID"], Cause::OtherHost),
    (&["Cannot access VG", "requires lvmlockd"], Cause::OtherHost),
    (&["olume group", "is exported"], Cause::Exported),
    (&["Multiple VGs found with the same name"], Cause::GroupAmbiguous),
    (&["Volume group \"", "\" not found"], Cause::GroupMissing),
    (&["Failed to find logical volume"], Cause::LvMissing),
    (&["Existing logical volume", "not found in volume group"], Cause::LvMissing),
    (&["Pool ", " not found in Volume group"], Cause::LvMissing),
    (&["Snapshot origin LV", "not found in Volume group"], Cause::LvMissing),
    (&["ogical volume", "is used by another device"], Cause::InUse),
    (&["ogical volume", "contains a filesystem in use"], Cause::InUse),
    (&["ogical volume", "in use."], Cause::InUse),
    (&["ogical Volume", "already exists in"], Cause::NameTaken),
    (&["ogical volume", "already exists in"], Cause::NameTaken),
    (&["Can't get lock for"], Cause::LockHeld),
    (&["flock failed: Resource temporarily unavailable"], Cause::LockHeld),
    (&["Failure to communicate with kernel device-mapper driver"], Cause::NoDeviceMapper),
    (&["Required device-mapper target(s) not detected"], Cause::NoDeviceMapper),
    (&["without using device-mapper kernel driver"], Cause::NoDeviceMapper),
    (&["Permission denied"], Cause::NotPermitted),
    (&["Operation not permitted"], Cause::NotPermitted),
];

impl Cause {
    fn of(complaints: &[&str]) -> Self {
        let is_in = |fragments: &[&str], line: &str| {
            let mut rest = Some(line);
            for fragment in fragments {
                rest = rest.and_then(|rest| rest.split_once(fragment)).map(|(_, rest)| rest);
            }
            rest.is_some()
        };
        let known = COMPLAINTS
            .into_iter()
            .find(|(fragments, _)| complaints.iter().any(|line| is_in(fragments, line)));
        known.map_or(Self::Unknown, |(_, cause)| cause)
    }
}

/// lvm was not run to its end. For `map_err`: what it was to do, as a verb phrase.
pub(super) fn cannot(doing: impl FnOnce() -> String) -> impl FnOnce(orlop_sys::Error) -> Error {
    |error| {
        let advised = |advice: &str| format!("{error}; {advice}");
        if matches!(error, orlop_sys::Error::Unanswered { .. }) {
            let text = advised(
                "a disk of the volume group hangs, or another command holds its lock: the kernel log and `ps` may \
                 show which",
            );
            return Error::unreachable(doing(), Reason::explained(text, error));
        }
        if matches!(error, orlop_sys::Error::ToolMissing { .. }) {
            let text = advised("install LVM (in most distributions, the package lvm2)");
            return Error::failed(doing(), Reason::explained(text, error));
        }
        Error::failed(doing(), Reason::of(error))
    }
}

/// lvm ended with an error.
pub(super) fn refused(doing: impl FnOnce() -> String, ended: &Ended) -> Error {
    let complaints = complaints(&ended.stderr);
    let said = match complaints.as_slice() {
        [] => format!("lvm ended with {}", ended.status),
        complaints => format!("lvm says: {}", complaints.join("; ")),
    };
    explained(doing(), Cause::of(&complaints), &said)
}

/// Was the volume group's lock refused to a command that does not wait for it? Then it has done nothing.
pub(super) fn is_refused_lock(ended: &Ended) -> bool {
    Cause::of(&complaints(&ended.stderr)) == Cause::LockHeld
}

/// Did it find several volume groups of the name? Then it reports on none of them.
pub(super) fn is_refused_name(ended: &Ended) -> bool {
    !ended.status.success() && Cause::of(&complaints(&ended.stderr)) == Cause::GroupAmbiguous
}

/// lvm has reported on a volume group that it would change nothing in.
pub(super) fn exported(doing: String) -> Error {
    explained(doing, Cause::Exported, "the volume group is exported")
}

/// What it said, without its warnings, which come with successes as well, and without repetitions.
fn complaints(stderr: &str) -> Vec<&str> {
    let lines = stderr.lines().map(str::trim);
    let is_complaint = |line: &&str| {
        // A tag that is repeated may hold what belongs into no message.
        !line.is_empty() && !line.starts_with("WARNING:") && !line.split(' ').any(is_of_tag)
    };
    let mut complaints: Vec<&str> = lines.filter(is_complaint).collect();
    complaints.dedup();
    complaints.truncate(MOST_COMPLAINTS);
    complaints
}

fn explained(doing: String, cause: Cause, said: &str) -> Error {
    let with = |advice: &str| format!("{said}; {advice}");
    let exhausted = |advice: &str| Error::exhausted(format!("cannot {doing}: {said}; {advice}"));
    let refused = |advice: &str| Error::precondition(format!("cannot {doing}: {said}; {advice}"));
    match cause {
        Cause::GroupFull => exhausted(
            "the volume group is full: delete thick volumes, or add a disk with `vgextend`",
        ),
        Cause::ThinPoolFull => exhausted(
            "the thin pool is full: delete volumes or snapshots, or enlarge it with `lvextend`, its metadata with \
             `lvextend --poolmetadatasize`",
        ),
        Cause::MetadataAreaFull => exhausted(
            "the volume group cannot describe more volumes: delete some, or replace its physical volumes by such with \
             a larger metadata area (`pvcreate --metadatasize`)",
        ),
        Cause::InUse => {
            refused("unmount or close it first; `dmsetup ls --tree` and `lsof` show by what")
        }
        Cause::NameTaken => {
            refused("a logical volume that is not Orlop's has this name: rename or remove it")
        }
        Cause::LockHeld => Error::busy("the volume group", format!("cannot {doing}: {said}")),
        Cause::GroupMissing => Error::unreachable(
            doing,
            with("attach its disks, or correct the name of the volume group in the configuration"),
        ),
        Cause::GroupAmbiguous => Error::unreachable(
            doing,
            with(
                "several volume groups have this name: `vgs -o +vg_uuid,pv_name` shows them, `vgrename UUID NAME` gives one \
                 another name, and a disk that should not be here can be detached",
            ),
        ),
        Cause::PvMissing => {
            Error::unreachable(doing, with("attach the missing disk: `pvs` shows which"))
        }
        Cause::Exported => Error::unreachable(doing, with("`vgimport` makes it usable here")),
        Cause::OtherHost => Error::unreachable(
            doing,
            with("it is one of another machine: change its system ID if that one uses it no more"),
        ),
        Cause::DuplicatePvs => Error::unreachable(
            doing,
            with(
                "the same disk is there twice: detach its copy, or give it an identity of its own by `vgimportclone`",
            ),
        ),
        Cause::ThinPoolDamaged => Error::damaged(
            "the thin pool",
            format!("cannot {doing}: {said}; see 'Metadata check and repair' in lvmthin(7)"),
        ),
        Cause::LvMissing => Error::failed(doing, with("it was removed or renamed by hand")),
        Cause::NoDeviceMapper => Error::failed(
            doing,
            with("the kernel has no device mapper: load the modules dm-mod and dm-thin-pool"),
        ),
        Cause::NotPermitted => {
            Error::failed(doing, with("the daemon has to run as root, with CAP_SYS_ADMIN"))
        }
        Cause::Unknown => Error::failed(doing, said),
    }
}

#[cfg(test)]
mod tests;
