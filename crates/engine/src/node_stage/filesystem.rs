//! From a device to a filesystem that may be mounted: formatted once, checked each time after that, and grown to
//! the size of its volume.
//!
//! The record is written before each tool runs, with all arguments that the tool will get. So a crash
//! between any two steps leaves a state that says what may be done next, and mkfs never meets
//! a volume that could hold data.

use orlop_model::{
    Device, DeviceSignature, Error, FormatState, FsType, FsUuid, MountAccess, MountRequest, Reason,
    Result, Stage, VolumeId, VolumeRecord,
};

use crate::engine::{Engine, PoolRef};
use crate::sharing::sharing;

/// How much mounting a filesystem is likely to write: the replay of a log.
const MOUNT_BYTES: u64 = 16 << 20;

impl Engine {
    /// Makes what is on the device ready to be mounted at its full size.
    pub(super) fn prepare_filesystem(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        device: &Device,
        mount: &MountAccess,
        read_only: bool,
    ) -> Result<FsType> {
        let fs = self.ensure_filesystem(pool, record, device)?;
        mount.flags.check_fit(fs)?;
        self.ensure_grown_unmounted(pool, record, device, fs)?;
        if read_only {
            self.grow_aside(pool, record, device, fs)?;
        }
        Ok(fs)
    }

    /// Some filesystems grow only while they are mounted writable (CV-16). Not at the staging
    /// path: a crash here must not leave a writable mount where a read-only one is expected.
    fn grow_aside(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        device: &Device,
        fs: FsType,
    ) -> Result<()> {
        let aside = self.host().private_stage(&record.id)?;
        let request = MountRequest { device, fs, options: Vec::new(), read_only: false };
        with_mount_shortage(pool, &record.id, self.host().ensure_mounted(&request, &aside))?;
        self.host().ensure_grown_mounted(device, fs, &aside)?;
        self.host().ensure_unmounted(&aside)?;
        self.host().ensure_target_removed(&aside)
    }

    pub(super) fn ensure_grown(&self, device: &Device, fs: FsType, stage: &Stage) -> Result<()> {
        match stage.read_only {
            true => Ok(()),
            false => self.host().ensure_grown_mounted(device, fs, &stage.path),
        }
    }

    /// The tool writes in place. If it is killed or runs out of space, the filesystem has to be repaired by a forced check. The record says `growing` from before the tool runs until after it has ended. With
    /// that the next stage knows that the filesystem was sound and that nothing else has written to it since.
    fn ensure_grown_unmounted(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        device: &Device,
        fs: FsType,
    ) -> Result<()> {
        let Some(bytes) = self.host().unmounted_growth(device, fs, record.growing)? else {
            return Ok(());
        };
        pool.provisioner().check_takes(&record.id, bytes)?;
        if record.growing {
            tracing::warn!(
                volume = %record.id,
                "the growth of the filesystem was interrupted: repairing it, then growing it again"
            );
            let repaired = self.host().repair_interrupted_growth(device, fs);
            with_shortage(pool, &record.id, bytes, repaired)?;
        }
        // Before the record says `growing`: whatever this finds is not due to the growth, and is not repaired by force.
        let checked = self.host().check_before_growth(device, fs);
        with_shortage(pool, &record.id, bytes, checked)?;
        if !record.growing {
            self.set_growing(pool, record, true)?;
        }
        let grown = self.host().ensure_grown_unmounted(device, fs);
        with_shortage(pool, &record.id, bytes, grown)?;
        self.set_growing(pool, record, false)
    }

    /// Only while the volume is this node's: a call that goes on after a long time must not say that the growth by
    /// another node is over.
    fn set_growing(&self, pool: &PoolRef, before: &VolumeRecord, growing: bool) -> Result<()> {
        let sharing = sharing(pool);
        pool.catalogue().update_volume(&before.id, &mut |record| {
            let is_ours = sharing.is_used_by_this_node(self, record);
            if !is_ours || record.capacity_bytes != before.capacity_bytes {
                return Err(Error::busy(
                    record.label(),
                    "it was unpublished from this node, or expanded, during this call",
                ));
            }
            record.growing = growing;
            Ok(())
        })?;
        Ok(())
    }

    fn ensure_filesystem(
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
        let blank = match record.is_encrypted() {
            true => !self.holds_encrypted_data(pool, &record.id)?,
            false => match self.host().signature(device)? {
                DeviceSignature::Blank => !pool.changed_blocks().holds_data(&record.id)?,
                DeviceSignature::Filesystem { .. } | DeviceSignature::Foreign => false,
            },
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
                // The damage of an interrupted growth is repaired when the growth is continued.
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

/// A full pool appears on the device as an I/O error. So a failure on a device whose pool has no space left is reported
/// as a lack of space.
fn with_shortage<T>(pool: &PoolRef, id: &VolumeId, bytes: u64, done: Result<T>) -> Result<T> {
    let Err(failure @ Error::Failed { .. }) = done else { return done };
    match pool.provisioner().check_takes(id, bytes) {
        Err(Error::Exhausted(shortage)) => {
            Err(Error::Exhausted(Reason::explained(format!("{shortage} ({failure})"), failure)))
        }
        Ok(()) | Err(_) => Err(failure),
    }
}

/// The same, for mounting a filesystem.
pub(super) fn with_mount_shortage<T>(pool: &PoolRef, id: &VolumeId, done: Result<T>) -> Result<T> {
    with_shortage(pool, id, MOUNT_BYTES, done)
}
