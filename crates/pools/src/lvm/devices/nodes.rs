//! Device nodes in /dev/mapper. A container that gets a new /dev at each start has none of devices that it made before.

use orlop_model::{PoolId, Result};

use super::super::device_mapper;
use super::super::layout::GroupName;
use super::prefix;

/// Of attached volumes, and of logical volumes of the pool that are active.
pub(in crate::lvm) fn ensure_nodes(group: &GroupName, pool: &PoolId) -> Result<()> {
    for prefix in [prefix(pool), group.device_name(&format!("v-{pool}-"))] {
        for device in device_mapper::named(&prefix)? {
            if !device.path().exists() {
                device_mapper::make_node(&device.name)?;
                tracing::info!(device = device.name, "made the missing node of a device");
            }
        }
    }
    Ok(())
}
