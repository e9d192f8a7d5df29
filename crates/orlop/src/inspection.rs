//! What the doctor and `orlop pool` read of a pool on disks of this machine, whatever its kind.

use orlop_model::{Finding, LabelledDevice, PoolId, Result, VolumeId, VolumeRecord};
use orlop_pools::image::LastOwner;
use orlop_pools::{image, lvm};

/// Holds the pool's lock for as long as it lives, if no daemon did.
pub(crate) struct Inspection {
    pub(crate) id: PoolId,
    /// A daemon serves it now.
    pub(crate) in_use: bool,
    pub(crate) last_owner: Option<LastOwner>,
    /// Those whose records can be read.
    pub(crate) volumes: Vec<VolumeRecord>,
    pub(crate) snapshots: usize,
    /// How many objects earlier repairs have quarantined.
    pub(crate) quarantined: usize,
    pub(crate) devices: Vec<LabelledDevice>,
    pub(crate) findings: Vec<Finding>,
    of_kind: OfKind,
}

enum OfKind {
    Image(Box<image::Inspection>),
    Lvm(Box<lvm::Inspection>),
}

impl Inspection {
    /// Also if its record cannot be read. An error says that it is not known.
    pub(crate) fn holds_volume(&self, id: &VolumeId) -> Result<bool> {
        match &self.of_kind {
            OfKind::Image(inspection) => inspection.holds_volume(id),
            OfKind::Lvm(inspection) => inspection.holds_volume(id),
        }
    }

    /// Says in the pool itself who serves it from now on.
    pub(crate) fn set_last_owner(&self, owner: &LastOwner) -> Result<()> {
        match &self.of_kind {
            OfKind::Image(inspection) => inspection.set_last_owner(owner),
            OfKind::Lvm(inspection) => inspection.set_last_owner(owner),
        }
    }
}

impl From<image::Inspection> for Inspection {
    fn from(mut inspection: image::Inspection) -> Self {
        Self {
            id: inspection.id.clone(),
            in_use: inspection.in_use,
            last_owner: inspection.last_owner.take(),
            volumes: std::mem::take(&mut inspection.volumes),
            snapshots: inspection.snapshots,
            quarantined: inspection.quarantined,
            devices: std::mem::take(&mut inspection.devices),
            findings: std::mem::take(&mut inspection.findings),
            of_kind: OfKind::Image(Box::new(inspection)),
        }
    }
}

impl From<lvm::Inspection> for Inspection {
    fn from(mut inspection: lvm::Inspection) -> Self {
        Self {
            id: inspection.id.clone(),
            in_use: inspection.in_use,
            last_owner: inspection.last_owner.take(),
            volumes: std::mem::take(&mut inspection.volumes),
            snapshots: inspection.snapshots,
            // What is damaged stays where it is.
            quarantined: 0,
            devices: std::mem::take(&mut inspection.devices),
            findings: std::mem::take(&mut inspection.findings),
            of_kind: OfKind::Lvm(Box::new(inspection)),
        }
    }
}
