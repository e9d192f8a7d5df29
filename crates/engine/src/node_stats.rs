//! NodeGetVolumeStats: how full a volume is, and how this node sees its health.

use orlop_model::{
    Condition, Device, DeviceAccess, Error, HealthReason, NodeRecord, Problem, Result, Stage,
    TargetPath, VolumeId,
};

use crate::engine::{Engine, PoolRef};
use crate::lost_writes::WrittenAt;
use crate::node_stage::stage_access;
use crate::request::{VolumeRef, VolumeStats, VolumeUsage};
use crate::sharing::sharing;

/// What this node sees of a volume at a path where it is staged or published.
struct NodeView {
    stats: VolumeStats,
    /// `None` if it is gone, or does not reach the volume.
    device: Option<Device>,
}

impl NodeView {
    fn without_device(reason: HealthReason, message: impl Into<String>) -> Self {
        Self { stats: unknown(reason, message), device: None }
    }
}

impl Engine {
    pub fn volume_stats(&self, volume: &VolumeRef, path: &TargetPath) -> Result<VolumeStats> {
        let id = self.resolve(volume)?;
        let (pool, _) = self.require_volume(&id)?;
        let node = self.host().node_record(&id)?;
        let stage = self.stage_at(pool, &id, &node, path)?;
        let NodeView { stats, device } = self.node_view(pool, &id, stage, path)?;
        let stats = with_pool_condition(pool, &id, stats);
        if let Some(at) = device.and_then(|device| written_at(device, stage, path)) {
            self.look_for_lost_writes(&id, at, stats.condition.is_abnormal());
        }
        Ok(VolumeStats { condition: self.with_lost_writes(&id, stats.condition), ..stats })
    }

    /// The id of a volume as a node call names it.
    pub(crate) fn resolve(&self, volume: &VolumeRef) -> Result<VolumeId> {
        match volume {
            VolumeRef::Issued(id) => Ok(id.clone()),
            VolumeRef::Foreign(text) => {
                self.find_inline(text)?.ok_or_else(|| Error::NoSuchVolume(volume.to_string()))
            }
        }
    }

    /// ST-04, ST-05, NE-04: the path is where the volume is staged or published, or where the
    /// same device or filesystem is shown by others: kubelet asks at its own bind of a raw volume.
    pub(crate) fn stage_at<'a>(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        node: &'a NodeRecord,
        path: &TargetPath,
    ) -> Result<&'a Stage> {
        let elsewhere = |reason: &str| Error::NotAtPath {
            volume: id.to_string(),
            path: path.to_string(),
            reason: reason.to_owned(),
        };
        let stage = node.stage.as_ref().ok_or_else(|| elsewhere("it is not staged here"))?;
        if stage.path == *path || node.publication(path).is_some() {
            return Ok(stage);
        }
        if self.is_shown_at(pool, id, stage, path)? {
            return Ok(stage);
        }
        Err(elsewhere("it is neither staged nor published there"))
    }

    fn is_shown_at(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        stage: &Stage,
        path: &TargetPath,
    ) -> Result<bool> {
        if !stage.capability.is_block() {
            return self.is_mounted_from(pool, id, path);
        }
        let Some(number) = self.host().device_node_at(path)? else {
            return Ok(false);
        };
        for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
            let device = self.workload_device(pool, id, access)?;
            if device.is_some_and(|device| (device.major, device.minor) == number) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn node_view(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        stage: &Stage,
        path: &TargetPath,
    ) -> Result<NodeView> {
        let device = self.workload_device(pool, id, stage_access(pool, stage))?;
        let Some(device) = device else {
            let gone = "the volume's device is gone from this node";
            return Ok(NodeView::without_device(HealthReason::DeviceMissing, gone));
        };
        if let Some(problem) = sharing(pool).device_problem(id)? {
            return Ok(NodeView::without_device(HealthReason::DeviceErrors, problem));
        }
        let stats = match stage.capability.is_block() {
            true => self.block_stats(&device),
            false => self.filesystem_stats(pool, id, stage, path, &device),
        }?;
        Ok(NodeView { stats, device: Some(device) })
    }

    /// Looks for lost writes where the volume is staged.
    pub(crate) fn check_writeback(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        stage: &Stage,
        is_urgent: bool,
    ) -> Result<()> {
        let device = self.workload_device(pool, id, stage_access(pool, stage))?;
        if let Some(at) = device.and_then(|device| written_at(device, stage, &stage.path)) {
            self.look_for_lost_writes(id, at, is_urgent);
        }
        Ok(())
    }

    pub(crate) fn problems_at(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        stage: &Stage,
        path: &TargetPath,
    ) -> Result<Vec<Problem>> {
        Ok(self.node_view(pool, id, stage, path)?.stats.condition.into_problems())
    }

    fn block_stats(&self, device: &Device) -> Result<VolumeStats> {
        let total_bytes = self.host().device_size(device)?;
        Ok(VolumeStats {
            usage: VolumeUsage::Block { total_bytes },
            condition: Condition::healthy("the device is attached"),
        })
    }

    fn filesystem_stats(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        stage: &Stage,
        path: &TargetPath,
        device: &Device,
    ) -> Result<VolumeStats> {
        if !self.is_mounted_from(pool, id, path)? {
            let gone = "the volume is not mounted there any more";
            return Ok(unknown(HealthReason::MountMissing, gone));
        }
        let read_only = self.host().mount_at(path)?.is_some_and(|at| at.filesystem_read_only);
        let usage = match self.host().usage(path) {
            Ok(usage) => usage,
            Err(error) => return Ok(unknown(HealthReason::FilesystemShutDown, error.to_string())),
        };
        let errors = self.host().filesystem_errors(device)?;
        let mut condition = Condition::healthy("the filesystem is mounted");
        if usage.has_given_up || (read_only && !stage.read_only) {
            let text = "the filesystem has become read-only; look for I/O errors";
            condition.extend([Problem::new(HealthReason::FilesystemReadOnly, text)]);
        }
        if errors > 0 {
            let text = format!(
                "the filesystem has counted {errors} errors; look for them in the kernel log, and \
                 check the filesystem when no workload uses it"
            );
            condition.extend([Problem::new(HealthReason::FilesystemErrors, text)]);
        }
        Ok(VolumeStats { usage: VolumeUsage::Filesystem(usage), condition })
    }
}

/// A full pool is not seen in a mount: writes go well until they are written back. So what the
/// controller says of the volume is said here as well.
fn with_pool_condition(pool: &PoolRef, id: &VolumeId, stats: VolumeStats) -> VolumeStats {
    if stats.condition.is_abnormal() {
        return stats;
    }
    let VolumeStats { usage, mut condition } = stats;
    match pool.health().condition(id) {
        Ok(seen) => condition.extend(seen.into_problems()),
        Err(error) => condition.extend([Problem::of(&error)]),
    }
    VolumeStats { usage, condition }
}

/// Where a workload writes to the volume on this node; `None` if nothing can write to it.
fn written_at(device: Device, stage: &Stage, path: &TargetPath) -> Option<WrittenAt> {
    if stage.read_only {
        return None;
    }
    Some(match stage.capability.is_block() {
        true => WrittenAt::Device(device),
        false => WrittenAt::Mount(path.clone(), device),
    })
}

fn unknown(reason: HealthReason, message: impl Into<String>) -> VolumeStats {
    VolumeStats { usage: VolumeUsage::Unknown, condition: Condition::abnormal(reason, message) }
}
