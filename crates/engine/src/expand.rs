//! Growing: the volume on the pool, then the device and the filesystem on the node.

use orlop_model::{
    CapacityRange, DeviceAccess, Error, Result, VolumeCapability, VolumeId, VolumeRecord,
};

use crate::engine::Engine;
use crate::request::{Expanded, NodeExpand};

impl Engine {
    /// Always followed by the node: a device that is in use has to learn its new size.
    pub fn expand_volume(
        &self,
        id: &VolumeId,
        range: &CapacityRange,
        capability: Option<&VolumeCapability>,
    ) -> Result<Expanded> {
        let _lock = self.locks().volume(id.digest())?;
        let (pool, record) = self.require_subject(id)?;
        check_capability(&record, capability)?;
        let now = record.capacity_bytes;
        let wanted = CapacityRange::choose(Some(range), now, now)?;
        let grown = pool.provisioner().ensure_capacity(id, wanted)?;
        Ok(Expanded { capacity_bytes: grown.capacity_bytes, node_expansion_required: true })
    }

    pub fn expand_node_volume(&self, request: &NodeExpand) -> Result<u64> {
        let id = self.resolve(&request.volume)?;
        let _lock = self.locks().volume(id.digest())?;
        let (pool, record) = self.require_subject(&id)?;
        check_capability(&record, request.capability.as_ref())?;
        let node = self.host().node_record(&id)?;
        let stage = self.stage_at(pool, &id, &node, &request.path)?;
        check_range(&record, request.range.as_ref())?;
        if self.live_stage(pool, &id)?.is_none() {
            return Err(Error::precondition(format!(
                "cannot expand {}: its device or its mount at {} is gone; stage it again",
                record.label(),
                stage.path
            )));
        }
        let size = pool.devices().refresh_device(&id)?;
        self.ensure_mappings_grown(pool, &id)?;
        let Some(fs) = record.format.fs().filter(|_| !stage.capability.is_block()) else {
            return Ok(size);
        };
        if stage.read_only {
            return Err(Error::precondition(format!(
                "cannot expand {}: it is staged read-only; its filesystem grows when it is staged \
                 next",
                record.label()
            )));
        }
        if let Some(device) = self.workload_device(pool, &id, DeviceAccess::ReadWrite)? {
            self.host().ensure_grown_mounted(&device, fs, &stage.path)?;
        }
        Ok(size)
    }
}

/// CE-10, NE-13.
fn check_capability(record: &VolumeRecord, capability: Option<&VolumeCapability>) -> Result<()> {
    let Some(wanted) = capability else {
        return Ok(());
    };
    record
        .capabilities
        .check_grants(wanted)
        .map_err(|reason| Error::invalid("volume_capability", reason))
}

/// NE-16: the node makes use of what the controller granted, and grants nothing itself.
fn check_range(record: &VolumeRecord, range: Option<&CapacityRange>) -> Result<()> {
    let size = record.capacity_bytes;
    match range {
        Some(range) if range.required() > size => Err(Error::OutOfRange(format!(
            "cannot expand {} on the node: it has {size} bytes; call ControllerExpandVolume first",
            record.label()
        ))),
        Some(range) if range.limit().is_some_and(|limit| limit < size) => Err(Error::OutOfRange(
            format!("cannot expand {}: it has {size} bytes, above limit_bytes", record.label()),
        )),
        Some(_) | None => Ok(()),
    }
}
