//! From a device to a filesystem that may be mounted: formatted once, checked each time after that.
//!
//! The record is written before each tool runs, with all arguments that the tool will get. So a crash
//! between any two steps leaves a state that says what may be done next, and mkfs never meets
//! a volume that could hold data.

use orlop_model::{
    Device, DeviceSignature, Error, FormatState, FsType, FsUuid, Result, VolumeRecord,
};

use crate::engine::{Engine, PoolRef};

impl Engine {
    pub(super) fn ensure_filesystem(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        device: &Device,
    ) -> Result<FsType> {
        match record.format {
            FormatState::Blank => {
                let fs = self.filesystem_to_make(record)?;
                self.check_blank(pool, record, device)?;
                let uuid = self.host().random_uuid()?;
                let formatting = FormatState::Formatting { fs, uuid };
                self.set_format(pool, record, FormatState::Blank, formatting)?;
                self.make_filesystem(pool, record, device, fs, uuid)
            }
            FormatState::Formatting { fs, uuid } => {
                self.make_filesystem(pool, record, device, fs, uuid)
            }
            FormatState::Formatted { fs, uuid } => {
                self.check_identity(record, device, fs, &[uuid])?;
                Ok(fs)
            }
            FormatState::Copied { fs, uuid } => {
                self.check_identity(record, device, fs, &[uuid])?;
                self.settle_copy(pool, record, device, fs, uuid)
            }
            FormatState::Renewing { fs, old, new } => {
                let found = self.check_identity(record, device, fs, &[old, new])?;
                self.renew(pool, record, device, fs, found, (old, new))
            }
            FormatState::Raw => self.adopt(pool, record, device),
        }
    }

    /// A device handed out raw may be written from its first byte on, whatever was on it.
    pub(super) fn mark_raw(&self, pool: &PoolRef, record: &VolumeRecord) -> Result<()> {
        match record.format {
            FormatState::Blank
            | FormatState::Formatting { .. }
            | FormatState::Formatted { .. }
            | FormatState::Copied { .. }
            | FormatState::Renewing { .. } => {
                self.set_format(pool, record, record.format, FormatState::Raw)
            }
            FormatState::Raw => Ok(()),
        }
    }

    fn filesystem_to_make(&self, record: &VolumeRecord) -> Result<FsType> {
        record.capabilities.fs().or(self.host().filesystems().first().copied()).ok_or_else(|| {
            Error::precondition(format!(
                "cannot format {}: no mkfs is installed on this node; install xfsprogs, e2fsprogs \
                 or btrfs-progs",
                record.label()
            ))
        })
    }

    fn make_filesystem(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        device: &Device,
        fs: FsType,
        uuid: FsUuid,
    ) -> Result<FsType> {
        self.host().format(device, fs, uuid, &record.parameters.mkfs_options)?;
        let formatting = FormatState::Formatting { fs, uuid };
        self.set_format(pool, record, formatting, FormatState::Formatted { fs, uuid })?;
        Ok(fs)
    }

    /// btrfs knows filesystems by UUID: mounting a copy beside its original would show the
    /// original (before Linux 6.7). XFS gets an option for it, ext4 does not mind.
    fn settle_copy(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        device: &Device,
        fs: FsType,
        uuid: FsUuid,
    ) -> Result<FsType> {
        let copied = FormatState::Copied { fs, uuid };
        match fs {
            FsType::Btrfs => {
                let new = self.host().random_uuid()?;
                let renewing = FormatState::Renewing { fs, old: uuid, new };
                self.set_format(pool, record, copied, renewing)?;
                self.renew(pool, record, device, fs, uuid, (uuid, new))
            }
            FsType::Xfs | FsType::Ext4 => {
                self.set_format(pool, record, copied, FormatState::Formatted { fs, uuid })?;
                Ok(fs)
            }
        }
    }

    fn renew(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        device: &Device,
        fs: FsType,
        found: FsUuid,
        (old, new): (FsUuid, FsUuid),
    ) -> Result<FsType> {
        if found != new {
            self.host().renew_uuid(device, fs, new)?;
        }
        let renewing = FormatState::Renewing { fs, old, new };
        self.set_format(pool, record, renewing, FormatState::Formatted { fs, uuid: new })?;
        Ok(fs)
    }

    /// A volume that was used raw and is now to be mounted: what the workload made is taken as
    /// it is, if it is what was asked for. Never formatted, as what is on it is unknown here.
    fn adopt(&self, pool: &PoolRef, record: &VolumeRecord, device: &Device) -> Result<FsType> {
        let wanted = self.filesystem_to_make(record)?;
        match self.host().signature(device)? {
            DeviceSignature::Filesystem { fs, uuid, needs_check } if fs == wanted => {
                if needs_check {
                    self.host().check_filesystem(device, fs)?;
                }
                let copied = FormatState::Copied { fs, uuid };
                self.set_format(pool, record, FormatState::Raw, copied)?;
                self.settle_copy(pool, record, device, fs, uuid)
            }
            DeviceSignature::Filesystem { .. }
            | DeviceSignature::Foreign
            | DeviceSignature::Blank => Err(Error::precondition(format!(
                "cannot mount {} as {wanted}: it was used as a raw device, holds no {wanted}, and is \
                 never formatted after that; use it as a raw device, or create another volume",
                record.label()
            ))),
        }
    }

    /// The signature is read at both ends of the device; the pool says whether there is data in between.
    fn check_blank(&self, pool: &PoolRef, record: &VolumeRecord, device: &Device) -> Result<()> {
        let blank = match self.host().signature(device)? {
            DeviceSignature::Blank => !pool.changed_blocks().holds_data(&record.id)?,
            DeviceSignature::Filesystem { .. } | DeviceSignature::Foreign => false,
        };
        if blank {
            return Ok(());
        }
        Err(Error::damaged(
            record.label(),
            "its record says that it was never written, but it holds data; it is left as it is",
        ))
    }

    /// Is on the device what the record promises? Returns which of the UUIDs it has.
    fn check_identity(
        &self,
        record: &VolumeRecord,
        device: &Device,
        fs: FsType,
        uuids: &[FsUuid],
    ) -> Result<FsUuid> {
        match self.host().signature(device)? {
            DeviceSignature::Filesystem { fs: found, uuid, needs_check }
                if found == fs && uuids.contains(&uuid) =>
            {
                // What an interrupted growth has left is repaired when the growth goes on.
                if needs_check && !record.growing {
                    self.host().check_filesystem(device, fs)?;
                }
                Ok(uuid)
            }
            DeviceSignature::Filesystem { .. }
            | DeviceSignature::Foreign
            | DeviceSignature::Blank => Err(Error::damaged(
                record.label(),
                format!(
                    "its record promises {fs}, but the device holds something else; it \
                             is neither mounted nor formatted"
                ),
            )),
        }
    }

    /// Only if the record is still at `from`: on a shared pool another node may have used the volume since.
    fn set_format(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        from: FormatState,
        to: FormatState,
    ) -> Result<()> {
        pool.catalogue().update_volume(&record.id, &mut |record| {
            if record.format != from && record.format != to {
                return Err(Error::busy(
                    record.label(),
                    "another node prepared it during this call",
                ));
            }
            record.format = to;
            if to == FormatState::Raw {
                // From now on others write to it, so nothing is known of what is wrong with it.
                record.growing = false;
            }
            Ok(())
        })?;
        Ok(())
    }
}
