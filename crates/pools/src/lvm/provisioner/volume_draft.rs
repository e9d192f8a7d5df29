//! Making a volume.

use orlop_model::{ContentSource, Draft, Error, NewVolume, Provisioning, Result, VolumeRecord};

use super::LvmProvisioner;
use super::thick::check_thin;
use crate::lvm::capacity::{Demand, Reservation};
use crate::recorded::new_volume_record;

/// The reservation is the last field, so that it is given back after the logical volume is gone.
#[derive(Debug)]
pub(super) struct LvmVolumeDraft {
    pool: LvmProvisioner,
    record: VolumeRecord,
    source: Source,
    _reservation: Reservation,
}

#[derive(Debug)]
enum Source {
    Blank,
    /// The name of its logical volume.
    Copied(String),
    /// The draft is there, as large as its source.
    Captured,
    /// The volume is whole; there is nothing to remove.
    Committed,
}

impl LvmVolumeDraft {
    pub(super) fn begin(pool: &LvmProvisioner, new: &NewVolume) -> Result<Self> {
        // A damaged volume keeps its name until an operator has inspected it.
        pool.catalogue.volume_objects().get(&new.id)?;
        let record = new_volume_record(new);
        let source = match (&new.source, new.parameters.provisioning) {
            (None, _) => Source::Blank,
            (Some(source), Provisioning::Thin) => {
                Source::Copied(pool.copied_lv(source, new.capacity_bytes)?)
            }
            (Some(_), Provisioning::Thick) => {
                let reason = "an lvm pool copies into thin volumes only, as thin snapshots; leave out provisioning: thick";
                return Err(Error::NotOffered("a copy as a thick volume", reason.to_owned()));
            }
        };
        let demand = match new.parameters.provisioning {
            Provisioning::Thin => Demand::Thin(new.capacity_bytes),
            Provisioning::Thick => pool.thick_demand(&new.parameters.lvm, 0, new.capacity_bytes)?,
        };
        let reservation = pool.capacity.try_reserve(demand)?;
        Ok(Self { pool: pool.clone(), record, source, _reservation: reservation })
    }

    fn create_blank(&self) -> Result<()> {
        let size = format!("{}b", self.record.capacity_bytes);
        let thin_pool = self.pool.lvm.group().lv(&self.pool.thin_pool);
        let arguments = [&INACTIVE[..], &["--virtualsize", &size, "--thinpool", &thin_pool]];
        self.pool.catalogue.volume_objects().create_whole(&self.record, &arguments.concat())
    }
}

/// Nothing activates what is in the pool but us, neither at the start of the machine nor by `vgchange`.
pub(super) const INACTIVE: [&str; 4] = ["--activate", "n", "--setactivationskip", "y"];

impl LvmProvisioner {
    fn copied_lv(&self, source: &ContentSource, capacity: u64) -> Result<String> {
        let (name, needed) = match source {
            ContentSource::Volume(id) => {
                let volume = self.catalogue.volume_objects().require(id)?;
                check_thin(&volume, "copied")?;
                (id.to_string(), volume.capacity_bytes)
            }
            ContentSource::Snapshot(id) => {
                (id.to_string(), self.catalogue.require_snapshot(id)?.size_bytes)
            }
        };
        match needed > capacity {
            true => Err(Error::OutOfRange(format!(
                "the source has {needed} bytes, which do not fit into {capacity}"
            ))),
            false => Ok(name),
        }
    }
}

impl Draft<VolumeRecord> for LvmVolumeDraft {
    fn capture(&mut self) -> Result<()> {
        let Source::Copied(origin) = &self.source else { return Ok(()) };
        let origin_lv = self.pool.lvm.group().lv(origin);
        let arguments =
            [&["--snapshot", "--permission", "rw"], &INACTIVE[..], &[&origin_lv]].concat();
        self.pool.catalogue.volume_objects().create_copy(&self.record.id, &arguments)?;
        self.source = Source::Captured;
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<VolumeRecord> {
        self.capture()?;
        match self.source {
            Source::Blank => match self.record.parameters.provisioning {
                Provisioning::Thin => self.create_blank()?,
                Provisioning::Thick => self.pool.create_thick(&self.record)?,
            },
            Source::Copied(_) | Source::Captured | Source::Committed => {
                let (name, label) = (self.record.id.to_string(), self.record.label());
                let creating = || format!("create {label}");
                self.pool.ensure_lv_holds(&name, self.record.capacity_bytes, creating)?;
                self.pool.catalogue.volume_objects().commit(&self.record)?;
            }
        }
        self.source = Source::Committed;
        Ok(self.record.clone())
    }
}

impl Drop for LvmVolumeDraft {
    fn drop(&mut self) {
        if matches!(self.source, Source::Committed) {
            return;
        }
        // A command that failed may have made it.
        let id = &self.record.id;
        if let Err(error) = self.pool.catalogue.volume_objects().ensure_no_draft(id) {
            tracing::warn!(volume = %id, %error, "cannot remove a draft before the next start");
        }
    }
}
