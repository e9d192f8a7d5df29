//! What a volume takes, and giving back what it does not need.

use orlop_model::{DeviceAccess, Devices, Error, Provisioning, Reason, Result, VolumeId};
use orlop_sys::file;

use super::LvmProvisioner;
use crate::lvm::report::GroupReport;

impl LvmProvisioner {
    /// Chunks of zeroes are discarded. All of the volume is read, which takes no disk where nothing was written.
    pub(super) fn reclaim(&self, id: &VolumeId) -> Result<()> {
        let record = self.catalogue.volume_objects().require(id)?;
        match record.parameters.provisioning {
            Provisioning::Thick => return Ok(()),
            Provisioning::Thin => {}
        }
        let lv = self.devices.activate_unattached(id)?;
        let reclaiming = || format!("reclaim space of {}", record.label());
        let discarded =
            file::discard_zeroes(&lv.path, self.chunk()?).map_err(|error| match error.is_busy() {
                true => Error::precondition(format!(
                    "cannot {}: {} is in use by something other than Orlop; end that first",
                    reclaiming(),
                    lv.path.display()
                )),
                false => Error::failed(reclaiming(), Reason::of(error)),
            });
        // Numbers from before do not know of it.
        self.lvm.forget_reports();
        self.capacity.forget_numbers();
        let detached = self.devices.ensure_detached(id, DeviceAccess::ReadWrite);
        discarded.and(detached)
    }

    /// Now. One that is not attached is activated for that.
    pub(super) fn measure(&self, id: &VolumeId) -> Result<u64> {
        if self.devices.is_active(id)? {
            let report = self.lvm.report()?;
            return self.used_in(&report, id);
        }
        self.catalogue.volume_objects().require(id)?;
        self.devices.activate_unattached(id)?;
        let used = self.lvm.report().and_then(|report| self.used_in(&report, id));
        let detached = self.devices.ensure_detached(id, DeviceAccess::ReadWrite);
        used.and_then(|used| detached.map(|()| used))
    }

    /// What the thin pool gives to volumes at once, in bytes.
    fn chunk(&self) -> Result<u64> {
        let report = self.lvm.recent_report()?;
        let segment = report.segments.iter().find(|segment| segment.lv == self.thin_pool);
        segment.map(|segment| segment.chunk).filter(|chunk| *chunk > 0).ok_or_else(|| {
            let lv = self.lvm.group().lv(&self.thin_pool);
            Error::failed(format!("read the chunk size of {lv}"), "it is no thin pool")
        })
    }

    /// Of a volume that is not attached, LVM knows nothing.
    pub(super) fn used_in(&self, report: &GroupReport, id: &VolumeId) -> Result<u64> {
        let record = self.catalogue.volume_objects().require(id)?;
        let reading = || format!("read what {} takes", record.label());
        let Some(lv) = report.lv(&id.to_string()) else {
            let lv = self.lvm.group().lv(id);
            return Err(Error::failed(reading(), format!("its logical volume {lv} is gone")));
        };
        match (record.parameters.provisioning, lv.data_used) {
            (Provisioning::Thick, _) => Ok(lv.size),
            (Provisioning::Thin, Some(share)) => Ok(share.of(lv.size)),
            (Provisioning::Thin, None) => Err(Error::failed(
                reading(),
                "it is not attached, and LVM knows it only of volumes that are",
            )),
        }
    }
}
