//! Records as text: what all kinds have in common, and how one is read back.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;
use std::time::SystemTime;

use orlop_model::record::{ENCRYPTED_RECORD_VERSION, RECORD_VERSION, is_known_version, version_of};
use orlop_model::{
    Error, GroupSnapshotId, GroupSnapshotRecord, NewGroupSnapshot, NewSnapshot, NewVolume, PoolId,
    Reason, Result, SnapshotId, SnapshotRecord, Timestamp, VolumeGroupId, VolumeGroupRecord,
    VolumeId, VolumeRecord,
};
use orlop_sys::file;
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// More than the record of a group takes whose members were all named in one call.
const LONGEST_RECORD: usize = 16 << 20;

/// Something that a pool remembers.
pub(crate) trait Recorded: Clone + Send + Sync + Serialize + DeserializeOwned {
    type Id: Clone + Ord + Send + Sync + Display + FromStr;

    const KIND: &'static str;

    fn id(&self) -> &Self::Id;

    fn pool_of(id: &Self::Id) -> &PoolId;

    fn missing(id: &Self::Id) -> Error;

    /// The version that a record with this in it has.
    fn layout_version(&self) -> u32;
}

macro_rules! recorded {
    ($record:ty, $id:ty, $kind:literal, $missing:path, $version:expr) => {
        impl Recorded for $record {
            type Id = $id;

            const KIND: &'static str = $kind;

            fn id(&self) -> &$id {
                &self.id
            }

            fn pool_of(id: &$id) -> &PoolId {
                id.pool()
            }

            fn missing(id: &$id) -> Error {
                $missing(id.to_string())
            }

            fn layout_version(&self) -> u32 {
                ($version)(self)
            }
        }
    };
}

recorded!(VolumeRecord, VolumeId, "volume", Error::NoSuchVolume, |it: &VolumeRecord| version_of(
    it.encryption
));
recorded!(SnapshotRecord, SnapshotId, "snapshot", Error::NoSuchSnapshot, |it: &SnapshotRecord| {
    version_of(it.encryption)
});
recorded!(
    GroupSnapshotRecord,
    GroupSnapshotId,
    "group snapshot",
    Error::NoSuchGroupSnapshot,
    |_: &GroupSnapshotRecord| RECORD_VERSION
);
recorded!(
    VolumeGroupRecord,
    VolumeGroupId,
    "volume group",
    Error::NoSuchVolumeGroup,
    |_: &VolumeGroupRecord| RECORD_VERSION
);

/// All that is certain about a record of any version.
#[derive(Deserialize)]
struct RecordVersion {
    version: u32,
}

/// Why there is no record.
#[derive(Debug)]
pub(crate) enum RecordFailure {
    /// What is there is none, however often it is read.
    Damaged(String),
    /// It was not read, which says nothing about it: a descriptor or memory was missing, or the storage
    /// did not deliver.
    Unread(orlop_sys::Error),
}

pub(crate) fn read_record<R: Recorded>(
    id: &R::Id,
    path: &Path,
) -> std::result::Result<R, RecordFailure> {
    let name = path.file_name().unwrap_or_default().display();
    let text = file::read_small(path, LONGEST_RECORD).map_err(|error| {
        let is_missing = matches!(error.errno(), Some(Errno::NOENT | Errno::NOTDIR));
        match is_missing || error.is_refusal() {
            true => RecordFailure::Damaged(format!("its {name} cannot be read: {}", error.cause())),
            false => RecordFailure::Unread(error),
        }
    })?;
    parse_record(id, &name, &text).map_err(RecordFailure::Damaged)
}

/// The same, of what was read already from something of that name.
pub(crate) fn parse_record<R: Recorded>(
    id: &R::Id,
    name: &dyn Display,
    text: &[u8],
) -> std::result::Result<R, String> {
    let malformed = |error| format!("its {name} is malformed: {error}");
    let RecordVersion { version } = serde_json::from_slice(text).map_err(malformed)?;
    let unknown = || {
        format!(
            "its record has version {version}, this version of Orlop reads {RECORD_VERSION}, and \
             {ENCRYPTED_RECORD_VERSION} of what is encrypted"
        )
    };
    if !is_known_version(version) {
        return Err(unknown());
    }
    let record: R = serde_json::from_slice(text).map_err(malformed)?;
    if version != record.layout_version() {
        return Err(unknown());
    }
    if record.id() != id {
        return Err(format!("its record is that of {}", record.id()));
    }
    Ok(record)
}

pub(crate) fn to_text<R: Recorded>(record: &R) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(record).map_err(|error| {
        Error::failed(format!("write the record of {} {}", R::KIND, record.id()), Reason::of(error))
    })
}

pub(crate) fn new_volume_record(new: &NewVolume) -> VolumeRecord {
    VolumeRecord {
        version: version_of(new.encryption),
        id: new.id.clone(),
        name: new.name.clone(),
        capacity_bytes: new.capacity_bytes,
        capabilities: new.capabilities.clone(),
        parameters: new.parameters.clone(),
        limits: new.limits,
        source: new.source.clone(),
        format: new.format,
        encryption: new.encryption,
        ephemeral: new.ephemeral,
        growing: false,
        never_published: new.ephemeral,
        created: SystemTime::now().into(),
        published: BTreeMap::new(),
    }
}

/// Its size and time may be corrected when its data is captured. `group`: the group snapshot that it is a member of.
pub(crate) fn new_snapshot_record(
    new: &NewSnapshot,
    source: VolumeRecord,
    group: Option<&GroupSnapshotId>,
) -> SnapshotRecord {
    // Later than its volume, whatever the clock says, and so than a former volume of that name.
    SnapshotRecord {
        version: version_of(source.encryption),
        id: new.id.clone(),
        name: new.name.clone(),
        source: source.id,
        size_bytes: source.capacity_bytes,
        format: new.format,
        encryption: source.encryption,
        capabilities: source.capabilities,
        created: Timestamp::from(SystemTime::now()).after(source.created),
        group: group.cloned(),
        consistency: new.consistency,
    }
}

pub(crate) fn new_group_snapshot_record(new: &NewGroupSnapshot) -> GroupSnapshotRecord {
    GroupSnapshotRecord {
        version: RECORD_VERSION,
        id: new.id.clone(),
        name: new.name.clone(),
        members: new.members.iter().map(|member| member.id.clone()).collect(),
        created: SystemTime::now().into(),
        pools: new.pools.clone(),
    }
}
