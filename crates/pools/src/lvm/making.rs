//! Making the thin pool in a volume group that has none of its name.
//!
//! Without RAID it is made by one command, with the pool header in its tags: it is there as one of Orlop's, or not at all.
//! LVM makes no thin pool on RAID at once, so data and metadata are made as logical volumes first, which the last command turns
//! into the pool; their tag says that they are meant for it, and a start that finds one of them goes on.

use orlop_model::{Bytes, Error, LvmLayout, RaidLevel, Reason, Result};
use orlop_sys::rand::random_bytes;

use super::commands::Lvm;
use super::extension::{Extension, MOST_METADATA};
use super::layout::{pool_tag, word_tag};
use super::report::{GroupReport, Lv, LvKind};
use super::thick_layout;
use super::thin_status::WhenFull;

const SMALLEST_CHUNK: u64 = 64 << 10;
/// For a chunk, one entry in the mapping of a volume takes 16 to 32 bytes. So much lets each chunk be in those of eight
/// snapshots that have nothing in common any more; docs/lvm.md has the arithmetic.
const METADATA_FOR_CHUNK: u64 = 256;
const LEAST_METADATA: u64 = 16 << 20;
/// Where it would be more, chunks are larger.
const PLENTY_OF_METADATA: u64 = 8 << 30;

/// A thin pool that is to be made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewThinPool {
    pub size: ThinPoolSize,
    /// Absent: 64 KiB, or as much more as keeps the metadata small.
    pub chunk_size: Option<u64>,
    /// Absent: by the number of chunks.
    pub metadata_size: Option<u64>,
    pub layout: LvmLayout,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinPoolSize {
    /// Of what is free in the volume group, with the metadata; or, for growth, of the present size.
    Percent(u32),
    /// Of its data.
    Bytes(u64),
}

impl Default for ThinPoolSize {
    fn default() -> Self {
        Self::Percent(90)
    }
}

impl ThinPoolSize {
    pub(super) fn of(self, whole: u64) -> u64 {
        match self {
            Self::Percent(percent) => {
                let part = u128::from(whole) * u128::from(percent) / 100;
                u64::try_from(part).unwrap_or(u64::MAX)
            }
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// In bytes, as LVM is asked for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plan {
    data: u64,
    metadata: u64,
    chunk: u64,
}

impl Plan {
    /// The error says why there is not enough.
    fn of(new: &NewThinPool, extent: u64, free: u64) -> std::result::Result<Self, String> {
        let extent = extent.max(1);
        let whole = |bytes: u64| bytes / extent * extent;
        let (disks, data_disks) =
            (u64::from(new.layout.disks()), u64::from(new.layout.data_disks()));
        // What LVM notes on each disk of a RAID, of the data and of the metadata, and one for what is rounded.
        let noted = new.layout.raid.map_or(0, |_| extent.saturating_mul(3));
        let on_each = whole(free / disks.max(1)).saturating_sub(noted);
        let net = on_each.saturating_mul(data_disks);
        let budget = new.size.of(net);
        let chunk = new.chunk_size.unwrap_or_else(|| chunk_for(budget));
        let metadata = new.metadata_size.unwrap_or_else(|| metadata_for(budget, chunk));
        let metadata = metadata.div_ceil(extent).saturating_mul(extent);
        // LVM keeps a spare of the same size for a repair.
        let beside = metadata.saturating_mul(2);
        let data = match new.size {
            ThinPoolSize::Percent(_) => whole(budget.saturating_sub(beside)),
            ThinPoolSize::Bytes(bytes) => bytes.div_ceil(extent).saturating_mul(extent),
        };
        let needed = data.saturating_add(beside);
        match data >= chunk && needed <= net {
            true => Ok(Self { data, metadata, chunk }),
            false => Err(format!(
                "with {} for its metadata and as much for a repair it needs {}, and the volume group has {} free for that; \
                 choose a smaller size, or add a disk with `vgextend`",
                Bytes(metadata),
                Bytes(needed.max(beside.saturating_add(chunk))),
                Bytes(net)
            )),
        }
    }
}

fn chunk_for(data: u64) -> u64 {
    let mut chunk = SMALLEST_CHUNK;
    while data / chunk > PLENTY_OF_METADATA / METADATA_FOR_CHUNK {
        chunk = chunk.saturating_mul(2);
    }
    chunk
}

fn metadata_for(data: u64, chunk: u64) -> u64 {
    let by_chunks = (data / chunk.max(1)).saturating_mul(METADATA_FOR_CHUNK);
    // A small pool is to have more than a little data.
    by_chunks.max(LEAST_METADATA.min(data / 16)).clamp(2 << 20, MOST_METADATA)
}

/// What is to be made, and of what.
pub(super) struct Making<'a> {
    pub(super) pool: &'a str,
    pub(super) thin_pool: &'a str,
    pub(super) new: &'a NewThinPool,
    pub(super) extension: Option<&'a Extension>,
    pub(super) lvm: &'a Lvm,
}

impl Making<'_> {
    /// `false`: something else has its name, or it is there already.
    pub(super) fn ensure_made(&self, report: &GroupReport) -> Result<bool> {
        let making = || format!("make the thin pool of pool {}", self.pool);
        let there = report.lv(self.thin_pool);
        if there.is_some_and(|lv| !is_begun(lv)) {
            return Ok(false);
        }
        let plan = match there {
            // Its data was made as large as was planned then.
            Some(data) => self.plan_beside(data.size, report),
            None => {
                let (extent, free) = (report.group.extent, report.group.free);
                Plan::of(self.new, extent, free)
                    .map_err(|why| Error::exhausted(format!("cannot {}: {why}", making())))?
            }
        };
        tracing::warn!(
            pool = self.pool,
            thin_pool = %self.lvm.group().lv(&self.thin_pool),
            data = %Bytes(plan.data),
            metadata = %Bytes(plan.metadata),
            chunk = %Bytes(plan.chunk),
            "the volume group has no thin pool of this name; making it"
        );
        match self.new.layout.raid {
            None => self.make_at_once(&plan)?,
            Some(raid) => self.make_on_raid(&plan, raid, report)?,
        }
        Ok(true)
    }

    fn plan_beside(&self, data: u64, report: &GroupReport) -> Plan {
        let chunk = self.new.chunk_size.unwrap_or_else(|| chunk_for(data));
        let metadata = self.new.metadata_size.unwrap_or_else(|| metadata_for(data, chunk));
        let metadata = report.lv(&self.metadata_name()).map_or(metadata, |lv| lv.size);
        Plan { data, metadata, chunk }
    }

    fn make_at_once(&self, plan: &Plan) -> Result<()> {
        let making = || format!("make the thin pool of pool {}", self.pool);
        let random = random_bytes().map_err(|error| Error::failed(making(), Reason::of(error)))?;
        let header = pool_tag(&orlop_model::PoolId::from_random(random));
        let layout = thick_layout::arguments(&self.new.layout);
        let [data, metadata, chunk] = plan.sizes();
        let mut arguments =
            vec!["--type", "thin-pool", "--name", self.thin_pool, "--addtag", &header];
        // `--type linear` and `--type striped`.
        arguments.extend(layout.iter().skip(2).map(String::as_str));
        arguments.extend(["--size", &data, "--poolmetadatasize", &metadata, "--chunksize", &chunk]);
        // A chunk that is given to a volume must not show what another has written.
        arguments.extend(["--zero", "y", "--discards", "passdown"]);
        arguments.push(self.lvm.group().as_str());
        self.lvm.change(making, "lvcreate", &arguments)?;
        self.set_when_full()
    }

    fn make_on_raid(&self, plan: &Plan, raid: RaidLevel, report: &GroupReport) -> Result<()> {
        let making = || format!("make the thin pool of pool {}", self.pool);
        let metadata_name = self.metadata_name();
        let mirrored = LvmLayout {
            raid: Some(RaidLevel::Raid1),
            mirrors: match raid {
                RaidLevel::Raid1 | RaidLevel::Raid10 => self.new.layout.mirrors,
                RaidLevel::Raid5 => None,
                // Two disks may fail.
                RaidLevel::Raid6 => Some(2),
            },
            ..LvmLayout::default()
        };
        let [data, metadata, chunk] = plan.sizes();
        let parts = [
            (self.thin_pool, &self.new.layout, &data),
            (metadata_name.as_str(), &mirrored, &metadata),
        ];
        let begun = begun_tag();
        for (name, layout, size) in parts {
            if report.lv(name).is_none() {
                let layout = thick_layout::arguments(layout);
                let mut arguments: Vec<&str> = layout.iter().map(String::as_str).collect();
                arguments.extend(["--name", name, "--addtag", &begun, "--size", size]);
                arguments.extend(["--wipesignatures", "n", self.lvm.group().as_str()]);
                self.lvm.change(making, "lvcreate", &arguments)?;
            }
        }
        let metadata = self.lvm.group().lv(&metadata_name);
        let data = self.lvm.group().lv(&self.thin_pool);
        let convert = ["--type", "thin-pool", "--poolmetadata", &metadata, "--chunksize", &chunk];
        let arguments = [&convert[..], &["--zero", "y", "--discards", "passdown", &data]].concat();
        self.lvm.change(making, "lvconvert", &arguments)?;
        self.set_when_full()
    }

    /// Not an option of `lvcreate`; a crash before it leaves a thin pool that is used as it is, with a warning.
    fn set_when_full(&self) -> Result<()> {
        let setting = || format!("set what writes get from a full thin pool of pool {}", self.pool);
        match WhenFull::wanted(self.extension) {
            // As LVM makes it; it refuses to change nothing.
            WhenFull::Queue => Ok(()),
            WhenFull::Error => {
                let arguments = ["--errorwhenfull", "y", &self.lvm.group().lv(&self.thin_pool)];
                self.lvm.change(setting, "lvchange", &arguments)
            }
        }
    }

    fn metadata_name(&self) -> String {
        format!("{}-metadata", self.thin_pool)
    }
}

impl Plan {
    fn sizes(&self) -> [String; 3] {
        [self.data, self.metadata, self.chunk].map(|bytes| format!("{bytes}b"))
    }
}

/// Is it the data of a thin pool that a start has begun to make?
pub(super) fn is_begun(lv: &Lv) -> bool {
    lv.kind() == LvKind::Thick && lv.tags.contains(&begun_tag())
}

/// Of a logical volume that is to become a part of the thin pool, and holds nothing.
fn begun_tag() -> String {
    word_tag("making")
}

#[cfg(test)]
mod tests;
