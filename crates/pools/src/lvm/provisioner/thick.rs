//! Thick volumes: logical volumes in extents of the volume group, outside of the thin pool.
//!
//! LVM gives out extents with what an earlier volume left on them, so a thick volume is a draft until all of it reads as
//! zeroes, and growth is in the record only when the new part does (docs/decisions/0065). A crash before that leaves a draft,
//! which is removed, or a logical volume that is larger than its record, whose end the repeated call zeroes.

use std::fs::File;
use std::ops::Range;

use orlop_model::{Error, LvmLayout, Provisioning, Reason, Result, VolumeRecord};
use orlop_sys::file::zero_range;

use super::LvmProvisioner;
use crate::lvm::capacity::Demand;
use crate::lvm::thick_layout;

/// So that it can be zeroed at once; neither the start of the machine nor `vgchange` activates it. LVM would zero its
/// first sectors only, and look for signatures, which says nothing of the rest.
const ACTIVE_AS_IT_IS: [&str; 9] = [
    "--activate",
    "y",
    "--setactivationskip",
    "y",
    "--ignoreactivationskip",
    "--zero",
    "n",
    "--wipesignatures",
    "n",
];

impl LvmProvisioner {
    /// Of a volume that has `before` bytes, and is to have `bytes`.
    pub(super) fn thick_demand(
        &self,
        layout: &LvmLayout,
        before: u64,
        bytes: u64,
    ) -> Result<Demand> {
        let extent = self.capacity.extent()?;
        let extents = |bytes| match bytes {
            0 => 0,
            bytes => thick_layout::extents_for(layout, bytes, extent),
        };
        Ok(Demand::Thick {
            extents: extents(bytes).saturating_sub(extents(before)),
            disks: usize::try_from(layout.disks()).unwrap_or(usize::MAX),
        })
    }

    pub(super) fn create_thick(&self, record: &VolumeRecord) -> Result<()> {
        let layout = thick_layout::arguments(&record.parameters.lvm);
        let size = format!("{}b", record.capacity_bytes);
        let mut arguments: Vec<&str> = layout.iter().map(String::as_str).collect();
        arguments.extend(["--size", &size]);
        arguments.extend(ACTIVE_AS_IT_IS);
        arguments.push(self.lvm.group().as_str());
        self.catalogue.volume_objects().create_draft(&record.id, &arguments)?;
        self.zero(record, 0..record.capacity_bytes)?;
        self.catalogue.volume_objects().commit(record)
    }

    /// While it is in use, too: the device that is in use ends where the record says.
    pub(super) fn zero(&self, record: &VolumeRecord, range: Range<u64>) -> Result<()> {
        let zeroing = || format!("zero {}", record.label());
        let lv = self.devices.activate(&record.id)?;
        let zeroed = File::options()
            .write(true)
            .open(&lv.path)
            .map_err(|error| Error::failed(zeroing(), Reason::of(error)))
            .and_then(|device| {
                zero_range(&device, range)
                    .map_err(|error| Error::failed(zeroing(), Reason::of(error)))
            });
        self.devices.deactivate_unattached(&record.id)?;
        zeroed
    }
}

/// For what LVM can do with volumes of a thin pool alone.
pub(super) fn check_thin(volume: &VolumeRecord, what: &str) -> Result<()> {
    match volume.parameters.provisioning {
        Provisioning::Thin => Ok(()),
        Provisioning::Thick => Err(Error::precondition(format!(
            "cannot have {} {what}: it is thick, and an lvm pool does that with thin volumes only; copy its files into a \
             volume with provisioning: thin, or use an image pool, where thick volumes can be {what} too",
            volume.label()
        ))),
    }
}
