//! A thin pool's metadata, read while the pool is in use.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use orlop_model::{Error, Reason, Result};

use super::block::{Blocks, DeviceDetails, MetadataError, Read, SUPERBLOCK, Superblock};
use super::device::MetadataDevice;
use super::reservation::{Found, Reservations};
use super::tree;
use crate::lvm::layout::GroupName;
use crate::poison::lock;

/// The kernel may be writing the superblock at the moment, of which a reader then sees a part.
const ATTEMPTS: u32 = 5;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);

/// Each has about a hundred thin devices.
const MAX_NODES_OF_DEVICES: usize = 64;

#[derive(Debug)]
pub(super) struct ThinMetadata {
    /// As lvm takes it.
    thin_pool: String,
    device: PathBuf,
    /// One reader at a time has the pool's only reservation.
    reservations: Mutex<Reservations>,
}

/// The metadata as it was when it was reserved. Released when this is dropped.
#[derive(Debug)]
pub(super) struct ReservedMetadata<'a> {
    of: &'a ThinMetadata,
    pub(super) blocks: MetadataDevice,
    pub(super) superblock: Superblock,
    reservations: MutexGuard<'a, Reservations>,
}

/// A thin volume or snapshot of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ThinDevice {
    /// Of its mappings.
    pub(super) root: u64,
    pub(super) details: DeviceDetails,
}

impl ThinMetadata {
    /// `marker`: a directory for the marker of reservations, for this pool alone.
    pub(super) fn new(group: &GroupName, thin_pool: &str, marker: PathBuf) -> Self {
        // Names that LVM gives to the parts of a thin pool in which a volume was made.
        let pool_device = format!("{}-tpool", group.device_name(thin_pool));
        let device = group.device_path(&format!("{thin_pool}_tmeta"));
        Self::of_device(group.lv(&thin_pool), device, pool_device, marker)
    }

    fn of_device(thin_pool: String, device: PathBuf, pool_device: String, marker: PathBuf) -> Self {
        let reservations = Mutex::new(Reservations::new(pool_device, marker));
        Self { thin_pool, device, reservations }
    }

    /// A killed daemon may have left a reservation. Where the pool is not active, its first reader releases it.
    pub(super) fn release_abandoned(&self) -> Result<()> {
        if !self.device.exists() {
            return Ok(());
        }
        let mut reservations = lock(&self.reservations);
        let superblock = self.open().map_err(|error| self.failure(error))?.1;
        if reservations.release_abandoned(superblock.reserved.is_some())? == Found::Foreign {
            tracing::warn!(
                thin_pool = self.thin_pool,
                "another program has reserved the metadata of the thin pool: until it releases it, changed blocks are \
                 not available"
            );
        }
        Ok(())
    }

    /// Reserves the metadata; other readers wait. What is reserved takes room in the pool, so that is for no longer than it
    /// takes to read some blocks.
    pub(super) fn reserve(&self) -> Result<ReservedMetadata<'_>> {
        let mut reservations = lock(&self.reservations);
        let (blocks, live) = self.open().map_err(|error| self.failure(error))?;
        if live.needs_check {
            return Err(self.damaged("the kernel has marked its metadata for a check"));
        }
        if reservations.release_abandoned(live.reserved.is_some())? == Found::Foreign {
            return Err(Error::busy(
                format!("the metadata of the thin pool {}", self.thin_pool),
                "another program has reserved it; if that program has ended, `dmsetup message` with release_metadata_snap \
                 releases it",
            ));
        }
        reservations.reserve()?;
        let mut reserved = ReservedMetadata { of: self, blocks, superblock: live, reservations };
        reserved.superblock = reserved.superblock()?;
        Ok(reserved)
    }

    fn open(&self) -> Read<(MetadataDevice, Superblock)> {
        let mut blocks = MetadataDevice::open(&self.device)?;
        let superblock = live_superblock(&mut blocks)?;
        Ok((blocks, superblock))
    }

    pub(super) fn failure(&self, error: MetadataError) -> Error {
        let reading = || format!("read the metadata of the thin pool {}", self.thin_pool);
        match error {
            MetadataError::Damaged { .. } => self.damaged(&error.to_string()),
            MetadataError::Unread(cause) if cause.is_not_found() => {
                let reason = format!(
                    "it is not active; `lvchange --activate y {}` activates it, and says why if it cannot",
                    self.thin_pool
                );
                Error::unreachable(reading(), Reason::explained(reason, cause))
            }
            MetadataError::Unread(cause) => {
                let reason = format!("{cause}; look for errors of its disks in the kernel log");
                Error::unreachable(reading(), Reason::explained(reason, cause))
            }
        }
    }

    fn damaged(&self, reason: &str) -> Error {
        Error::damaged(
            format!("the thin pool {}", self.thin_pool),
            format!("{reason}; see 'Metadata check and repair' in lvmthin(7)"),
        )
    }
}

/// As the kernel has written it last.
fn live_superblock(blocks: &mut impl Blocks) -> Read<Superblock> {
    let mut attempt = 1;
    loop {
        match Superblock::read(blocks, SUPERBLOCK) {
            Err(MetadataError::Damaged { .. }) if attempt < ATTEMPTS => {
                std::thread::sleep(BETWEEN_ATTEMPTS);
                attempt += 1;
            }
            read => return read,
        }
    }
}

impl ReservedMetadata<'_> {
    /// The kernel has written both, this one and the live one that says where it is, before it answered.
    fn superblock(&mut self) -> Result<Superblock> {
        let failure = |error| self.of.failure(error);
        let live = live_superblock(&mut self.blocks).map_err(failure)?;
        let reserved = live.reserved.ok_or_else(|| {
            let reading = format!("read the metadata of the thin pool {}", self.of.thin_pool);
            let reason = "the kernel has reserved it, and has not written that to the disk: the kernel log may say why";
            Error::unreachable(reading, reason)
        })?;
        Superblock::read(&mut self.blocks, reserved).map_err(failure)
    }

    /// `None`: the pool has no thin device of this number.
    pub(super) fn thin_device(&mut self, number: u64) -> Result<Option<ThinDevice>> {
        let Superblock { mappings, devices, .. } = self.superblock;
        let found = tree::find(&mut self.blocks, mappings, number).and_then(|root| {
            let details = tree::find(&mut self.blocks, devices, number)?;
            Ok(root.zip(details).map(|(root, details)| ThinDevice { root, details }))
        });
        found.map_err(|error| self.of.failure(error))
    }

    /// Of all thin devices but that one, the roots of their mappings. `None`: there are too many.
    pub(super) fn other_roots(&mut self, number: u64) -> Result<Option<Vec<u64>>> {
        let mappings = self.superblock.mappings;
        let all = tree::entries::<u64>(&mut self.blocks, mappings, MAX_NODES_OF_DEVICES);
        let all = all.map_err(|error| self.of.failure(error))?;
        let others = |all: Vec<(u64, u64)>| {
            all.into_iter().filter(|(of, _)| *of != number).map(|(_, root)| root).collect()
        };
        Ok(all.map(others))
    }
}

impl Drop for ReservedMetadata<'_> {
    fn drop(&mut self) {
        self.reservations.release();
    }
}

#[cfg(test)]
mod tests;
