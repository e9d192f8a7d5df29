//! Which parts of a snapshot hold data, and which differ from an earlier one, as the thin pool's metadata knows them. No
//! data is read.
//!
//! Two snapshots that map a range to the same chunk of the pool share it, so its contents are equal: both still hold the
//! chunk, so it cannot have been freed and used again. All is in whole chunks, of 64 KiB to 1 GiB.
//!
//! The metadata is read by code of our own (`block.rs`, `tree.rs`), while the kernel keeps a snapshot of it for readers
//! (`metadata.rs`, `reservation.rs`); docs/decisions/0066 has the reasons.

mod batches;
mod block;
mod comparison;
mod device;
mod exclusive;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod metadata;
mod reservation;
mod samples;
#[cfg(test)]
mod testbed;
mod tree;

use std::path::PathBuf;
use std::sync::Arc;

use orlop_model::{
    ChangedBlocks, ContentSource, DeviceAccess, Devices, Error, Footprint, Provisioning, Ranges,
    Reason, Result, SnapshotId, SnapshotRecord, VolumeId,
};

use super::catalogue::LvmCatalogue;
use super::commands::Lvm;
use super::devices::LinearDevices;
use super::open::REPORT_LIMIT;
use super::thin_status::ThinPoolDevice;
use crate::merged_ranges::Merged;
use batches::{Batches, Confirm, SnapshotDevice};
use exclusive::exclusive_chunks;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use fuzzing::thin_metadata as fuzz_thin_metadata;
use metadata::{ReservedMetadata, ThinDevice, ThinMetadata};

/// To find out what only one of them has. Reading these takes about half a second; the metadata is reserved for that
/// time.
const MAX_BLOCKS_MEASURED: usize = 4096;

#[derive(Debug)]
pub(super) struct ThinMaps {
    lvm: Arc<Lvm>,
    catalogue: Arc<LvmCatalogue>,
    devices: Arc<LinearDevices>,
    thin_pool: ThinPoolDevice,
    metadata: Arc<ThinMetadata>,
}

impl ThinMaps {
    /// `marker`: a directory for the marker of reservations, for this pool alone. What a killed daemon has reserved is
    /// released.
    pub(super) fn open(
        lvm: &Arc<Lvm>,
        catalogue: &Arc<LvmCatalogue>,
        devices: &Arc<LinearDevices>,
        thin_pool: &str,
        marker: PathBuf,
    ) -> Self {
        let metadata = ThinMetadata::new(lvm.group(), thin_pool, marker);
        if let Err(error) = metadata.release_abandoned() {
            tracing::warn!(
                %error,
                "cannot find out whether the metadata of a thin pool is still reserved for a reader that is gone; the \
                 next reader tries again"
            );
        }
        Self {
            lvm: Arc::clone(lvm),
            catalogue: Arc::clone(catalogue),
            devices: Arc::clone(devices),
            thin_pool: ThinPoolDevice::new(lvm.group(), thin_pool, REPORT_LIMIT),
            metadata: Arc::new(metadata),
        }
    }

    /// The numbers that their thin devices have in the pool.
    fn numbers<const COUNT: usize>(&self, names: [&str; COUNT]) -> Result<[u64; COUNT]> {
        let report = self.lvm.recent_report()?;
        let mut numbers = [0; COUNT];
        for (number, name) in numbers.iter_mut().zip(names) {
            *number = report.thin_id(name).ok_or_else(|| self.gone(name))?;
        }
        Ok(numbers)
    }

    fn thin_device(&self, metadata: &mut ReservedMetadata<'_>, number: u64) -> Result<ThinDevice> {
        metadata.thin_device(number)?.ok_or_else(|| {
            let finding = format!("find the thin device {number} of the volume group");
            Error::failed(finding, "it was removed at the same time")
        })
    }

    fn size_of_lv(&self, name: &str) -> Result<u64> {
        let report = self.lvm.recent_report()?;
        let lv = report.lv(name).ok_or_else(|| self.gone(name))?;
        Ok(lv.size)
    }

    fn gone(&self, name: &str) -> Error {
        let lv = self.lvm.group().lv(&name);
        Error::damaged(format!("the logical volume {lv}"), "it is gone, or of another kind")
    }

    /// The caller is about to make a filesystem on it.
    fn attached_device(&self, id: &VolumeId) -> Result<PathBuf> {
        for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
            if let Some(device) = self.devices.attached(id, access)? {
                return Ok(device.path);
            }
        }
        Err(Error::failed(format!("read the data of volume {id}"), "it is not attached"))
    }

    /// LVM gives the number of a device that is removed to another one. So whether the numbers are still those of the
    /// snapshots is asked again when the metadata is reserved: one that is whole then is in it.
    fn confirm(&self, records: Vec<SnapshotRecord>) -> Confirm {
        let catalogue = Arc::clone(&self.catalogue);
        Box::new(move || {
            for record in records {
                let now = catalogue.require_snapshot(&record.id)?;
                if now.created != record.created {
                    return Err(Error::busy(
                        format!("snapshot {}", record.id),
                        "another call has just made it again",
                    ));
                }
            }
            Ok(())
        })
    }
}

impl ChangedBlocks for ThinMaps {
    fn allocated_ranges(&self, id: &SnapshotId, start: u64) -> Result<Ranges> {
        let record = self.catalogue.require_snapshot(id)?;
        let [number] = self.numbers([&id.to_string()])?;
        let span = (start, record.size_bytes);
        let target = SnapshotDevice::new(id, number);
        let confirm = self.confirm(vec![record]);
        Ok(Box::new(Merged::new(Batches::new(&self.metadata, None, target, span, confirm))))
    }

    /// A smaller base maps nothing beyond its end.
    fn changed_ranges(&self, base: &SnapshotId, target: &SnapshotId, start: u64) -> Result<Ranges> {
        let earlier = self.catalogue.require_snapshot(base)?;
        let later = self.catalogue.require_snapshot(target)?;
        let span = (start, later.size_bytes);
        let [of_base, of_target] = self.numbers([&base.to_string(), &target.to_string()])?;
        let base = SnapshotDevice::new(base, of_base);
        let target = SnapshotDevice::new(target, of_target);
        let confirm = self.confirm(vec![earlier, later]);
        Ok(Box::new(Merged::new(Batches::new(&self.metadata, Some(base), target, span, confirm))))
    }

    /// A chunk is mapped when it is written for the first time; what was discarded is not. A thick volume has to be read,
    /// and is only in parts: of one that was used, nearly all parts hold something.
    ///
    /// The device of an attached volume knows this itself, also while another program has reserved the metadata: to stage
    /// a volume must not wait for that.
    fn holds_data(&self, id: &VolumeId) -> Result<bool> {
        let record = self.catalogue.volume_objects().require(id)?;
        match record.parameters.provisioning {
            Provisioning::Thin => {
                let name = id.to_string();
                let device = self.lvm.group().device_name(&name);
                if let Some(bytes) = self.thin_pool.mapped_bytes(&device)? {
                    return Ok(bytes > 0);
                }
                let [number] = self.numbers([&name])?;
                let details = self.thin_device(&mut self.metadata.reserve()?, number)?.details;
                Ok(details.mapped_chunks > 0)
            }
            Provisioning::Thick => {
                let device = self.attached_device(id)?;
                samples::holds_other_than_zeroes(&device, record.capacity_bytes).map_err(|error| {
                    Error::unreachable(format!("read the data of volume {id}"), Reason::of(error))
                })
            }
        }
    }

    fn footprint(&self, of: &ContentSource) -> Result<Option<Footprint>> {
        let name = match of {
            ContentSource::Volume(id) => {
                let record = self.catalogue.volume_objects().require(id)?;
                if record.parameters.provisioning == Provisioning::Thick {
                    let taken = self.size_of_lv(&id.to_string())?;
                    return Ok(Some(Footprint { taken, exclusive: taken }));
                }
                id.to_string()
            }
            ContentSource::Snapshot(id) => self.catalogue.require_snapshot(id)?.id.to_string(),
        };
        let [number] = self.numbers([&name])?;
        let mut metadata = self.metadata.reserve()?;
        let ThinDevice { root, details } = self.thin_device(&mut metadata, number)?;
        let Some(others) = metadata.other_roots(number)? else { return Ok(None) };
        let others = others.into_iter();
        let exclusive = exclusive_chunks(&mut metadata.blocks, root, others, MAX_BLOCKS_MEASURED);
        let exclusive = exclusive.map_err(|error| self.metadata.failure(error))?;
        let bytes = |chunks: u64| chunks.saturating_mul(metadata.superblock.chunk_bytes);
        let taken = bytes(details.mapped_chunks);
        Ok(exclusive.map(|chunks| Footprint { taken, exclusive: bytes(chunks).min(taken) }))
    }
}

#[cfg(test)]
mod tests;
