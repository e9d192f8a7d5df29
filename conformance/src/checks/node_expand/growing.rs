//! A volume that the controller has grown and the node has not, and how its new size shows.

use crate::capability::is_block;
use crate::check::Outcome;
use crate::check_context::{CheckContext, Placed};
use crate::wire::csi::v1::controller_service_capability::rpc::Type::ExpandVolume;
use crate::wire::csi::v1::plugin_capability::volume_expansion::Type::Online;
use crate::wire::csi::v1::{
    ControllerExpandVolumeRequest, NodeExpandVolumeRequest, Volume, VolumeCapability,
};

pub(in crate::checks) struct Grown {
    pub(in crate::checks) placed: Placed,
    /// The size that it has to have in the end.
    pub(in crate::checks) bytes: i64,
    /// What was written before; nothing where paths cannot be seen.
    pub(in crate::checks) content: Vec<u8>,
}

/// A published volume that is to be twice as large.
pub(in crate::checks) async fn grown(
    t: &CheckContext,
    capability: VolumeCapability,
) -> Outcome<Grown> {
    let volume = t.volume_for(capability.clone()).await?;
    let mut placed = t.placed(&volume, capability.clone()).await?;
    let content = if t.options().local_files { t.fill(&placed)? } else { Vec::new() };
    if grows_in_use(t) {
        let bytes = requested(t, &volume, &capability, 2).await?;
        return Ok(Grown { placed, bytes, content });
    }
    t.withdrawn(&placed).await?;
    let bytes = requested(t, &volume, &capability, 2).await?;
    placed = t.placed(&volume, capability).await?;
    Ok(Grown { placed, bytes, content })
}

/// Can the first step be taken while the volume is published?
pub(in crate::checks) fn grows_in_use(t: &CheckContext) -> bool {
    t.features().expansion.contains(&Online) || !t.features().has_controller(ExpandVolume)
}

/// So many times its first size, by the controller if that has a part in it.
pub(in crate::checks) async fn requested(
    t: &CheckContext,
    volume: &Volume,
    capability: &VolumeCapability,
    times: i64,
) -> Outcome<i64> {
    let bytes = t.size().saturating_mul(times);
    if t.features().has_controller(ExpandVolume) {
        let request = ControllerExpandVolumeRequest {
            volume_capability: Some(capability.clone()),
            ..t.expand(volume, bytes)
        };
        t.ok(request).await?;
    }
    Ok(bytes)
}

/// A request that nothing is wrong with, at the target.
pub(in crate::checks) fn expand(
    t: &CheckContext,
    placed: &Placed,
    bytes: i64,
) -> NodeExpandVolumeRequest {
    NodeExpandVolumeRequest {
        volume_id: placed.volume.volume_id.clone(),
        volume_path: placed.target.clone(),
        capacity_range: t.range(bytes, 0),
        staging_target_path: placed.staging.clone(),
        volume_capability: Some(placed.capability.clone()),
        secrets: t.secrets(),
    }
}

/// Is what is published that large? A filesystem keeps some of the space for itself.
pub(in crate::checks) fn shows(t: &CheckContext, placed: &Placed, bytes: i64) -> Outcome {
    if !t.options().local_files {
        return Ok(());
    }
    let bytes = u64::try_from(bytes).unwrap_or_default();
    let target = placed.target_path();
    if is_block(&placed.capability) {
        let size = t.device_size(&target)?;
        return t.expect(size >= bytes, format!("a device of {bytes} bytes, not {size}"));
    }
    let size = t.statfs(&target)?.total_bytes;
    let least = bytes / 4 * 3;
    t.expect(size >= least, format!("a filesystem of about {bytes} bytes, not {size}"))
}
