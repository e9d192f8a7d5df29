//! Encrypted volumes: between the device that a pool attaches and what workloads use of it stands a mapping, which this
//! machine opens with the volume's key.
//!
//! The order at the first stage is: intention in the record, header, record, mapping. So the header is written again only
//! as long as the mapping was never open, and nothing can have been written through it.

use orlop_model::{
    Device, DeviceAccess, EncryptionState, Error, FsUuid, HeaderSignature, KeyRotation,
    MappingRequest, Reason, Result, Secret, Stage, VolumeId, VolumeKeys, VolumeRecord,
};

use crate::engine::{Engine, PoolRef};
use crate::node_stage::stage_access;
use crate::request::RotateKey;

const BOTH: [DeviceAccess; 2] = [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly];

impl Engine {
    /// The device that workloads use, if the volume is attached that way: the mapping of an encrypted volume while that is
    /// open, else the volume's own. By what the kernel says, as records may be lost.
    pub(crate) fn workload_device(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        access: DeviceAccess,
    ) -> Result<Option<Device>> {
        match pool.devices().attached(id, access)? {
            Some(device) => self.used_of(id, access, device).map(Some),
            None => Ok(None),
        }
    }

    /// What workloads use of an attached device.
    pub(crate) fn used_of(
        &self,
        id: &VolumeId,
        access: DeviceAccess,
        device: Device,
    ) -> Result<Device> {
        Ok(self.host().mapping_on(id, access, &device)?.unwrap_or(device))
    }

    /// Is the device there that this stage needs? That of an encrypted volume has to be open.
    pub(crate) fn has_staged_device(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        stage: &Stage,
    ) -> Result<bool> {
        let access = stage_access(pool, stage);
        match pool.devices().attached(id, access)? {
            Some(device) if stage.encrypted => {
                Ok(self.host().mapping_on(id, access, &device)?.is_some())
            }
            attached => Ok(attached.is_some()),
        }
    }

    /// Is there a key where one is needed, and none elsewhere? One for a volume that is not encrypted is a mistake: its
    /// owner believes that it is.
    pub(crate) fn check_keys_fit(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        keys: &VolumeKeys,
    ) -> Result<()> {
        if record.is_encrypted() {
            return self.with_keys(pool, record, keys, |_| Ok(()));
        }
        if keys.current.is_none() {
            return Ok(());
        }
        Err(Error::invalid(
            "secrets",
            format!(
                "has an encryptionPassphrase, but {} is not encrypted; create a volume with the parameter \
                 encryption, or take the passphrase out",
                record.label()
            ),
        ))
    }

    /// The device for workloads on an attached one. A volume that has no header yet gets one.
    pub(crate) fn ensure_opened(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        access: DeviceAccess,
        device: Device,
        keys: &VolumeKeys,
    ) -> Result<Device> {
        if !record.is_encrypted() {
            return Ok(device);
        }
        if let Some(open) = self.host().mapping_on(&record.id, access, &device)? {
            return Ok(open);
        }
        self.check_encryption_works_here(record)?;
        self.with_keys(pool, record, keys, |keys| {
            let uuid = self.ensure_header(pool, record, access, &device, keys[0])?;
            self.check_header(record, &device, uuid)?;
            let open = self.open_with_any(record, access, &device, keys)?;
            // Only for metrics.
            if let Err(error) = self.host().note_attached(&record.id, &open) {
                tracing::debug!(%error, "cannot record what the device did for other volumes before");
            }
            Ok(open)
        })
    }

    /// A call that stages a volume again has to have its key as well.
    pub(crate) fn check_stage_key(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        stage: &Stage,
        keys: &VolumeKeys,
    ) -> Result<()> {
        let access = stage_access(pool, stage);
        let attached = pool.devices().attached(&record.id, access)?;
        let Some(device) = attached.filter(|_| record.is_encrypted()) else { return Ok(()) };
        self.with_keys(pool, record, keys, |keys| {
            first_that_fits(record, keys, |key| self.host().check_key(&device, key))
        })
    }

    /// Closes the mapping on a device that is about to be detached. `Precondition` while it is in use.
    pub(crate) fn ensure_closed(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        access: DeviceAccess,
    ) -> Result<()> {
        match pool.devices().attached(id, access)? {
            Some(device) => self.host().ensure_closed(id, access, &device),
            None => Ok(()),
        }
    }

    /// With the mapping on top of it.
    pub(crate) fn ensure_detached(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        access: DeviceAccess,
    ) -> Result<()> {
        self.ensure_closed(pool, id, access)?;
        pool.devices().ensure_detached(id, access)
    }

    /// As [`Engine::ensure_detached`], where no record says who may still use the device.
    pub(crate) fn try_detach_unused(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        access: DeviceAccess,
    ) -> Result<()> {
        self.ensure_closed(pool, id, access)?;
        pool.devices().try_detach_unused(id, access)
    }

    /// Lets the mappings see that the volume has grown.
    pub(crate) fn ensure_mappings_grown(&self, pool: &PoolRef, id: &VolumeId) -> Result<()> {
        for access in BOTH {
            if let Some(device) = pool.devices().attached(id, access)? {
                self.host().ensure_mapping_grown(id, access, &device)?;
            }
        }
        Ok(())
    }

    /// Was anything ever written through the mapping? Asked before mkfs. What is behind it reads as noise then, not as
    /// zeroes, and so do blank volumes; so the encrypted data are looked at.
    pub(crate) fn holds_encrypted_data(&self, pool: &PoolRef, id: &VolumeId) -> Result<bool> {
        match pool.devices().attached(id, DeviceAccess::ReadWrite)? {
            Some(device) => Ok(self.host().encrypted_signature(&device)?.has_data),
            None => Ok(true),
        }
    }

    /// On the node that has the volume staged. Afterwards the new key opens it and the old ones do not; a call that was
    /// interrupted may be repeated with whichever keys its caller believes to be the present ones.
    pub fn rotate_key(&self, request: &RotateKey) -> Result<()> {
        let _lock = self.locks().volume(request.volume.digest())?;
        let (pool, record) = self.require_subject(&request.volume)?;
        let node = self.host().node_record(&record.id)?;
        self.stage_at(pool, &record.id, &node, &request.path)?;
        if !record.is_encrypted() {
            return Err(Error::invalid(
                "volume_id",
                format!("is that of {}, which is not encrypted", record.label()),
            ));
        }
        let attached = pool.devices().attached(&record.id, DeviceAccess::ReadWrite)?;
        let device = attached.ok_or_else(|| {
            Error::precondition(format!(
                "cannot rotate the key of {}: it is staged read-only here; rotate it where it is staged for \
                 writing",
                record.label()
            ))
        })?;
        let rotate = |keys: &[&Secret]| {
            let (new, old) = match &request.new {
                Some(new) => (new, keys),
                None => (keys[0], &keys[1..]),
            };
            let rotation = KeyRotation { device: &device, new, old };
            self.host().ensure_key_rotated(&rotation)
        };
        self.with_keys(pool, &record, &request.keys, rotate)
            .map_err(|error| about(&record, "rotate the key of", error))?;
        tracing::info!(volume = %record.id, "the volume has its new key");
        Ok(())
    }

    fn check_encryption_works_here(&self, record: &VolumeRecord) -> Result<()> {
        self.host().check_encryption_works().map_err(|reason| {
            let text = format!("cannot open {}: {reason}", record.label());
            Error::precondition(Reason::explained(text, reason))
        })
    }

    /// Those of the call, else those of the operator's key file; at least one, the present one first.
    fn with_keys<T>(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        given: &VolumeKeys,
        work: impl FnOnce(&[&Secret]) -> Result<T>,
    ) -> Result<T> {
        let from_file;
        let keys = match given.current.is_some() {
            true => given,
            false => {
                from_file = self.host().keys_of_pool(pool.name())?;
                &from_file
            }
        };
        let keys: Vec<&Secret> = keys.current.iter().chain(&keys.previous).collect();
        if keys.is_empty() {
            return Err(Error::invalid(
                "secrets",
                format!(
                    "has no encryptionPassphrase, and {} is encrypted; name its Secret in the StorageClass, or \
                     set ORLOP_ENCRYPTION_KEY_FILE",
                    record.label()
                ),
            ));
        }
        work(&keys)
    }

    fn ensure_header(
        &self,
        pool: &PoolRef,
        before: &VolumeRecord,
        access: DeviceAccess,
        device: &Device,
        key: &Secret,
    ) -> Result<FsUuid> {
        // As it is now that the device is attached: on a shared pool another node may have formatted it since.
        let record = self.record_now(pool, &before.id)?;
        let uuid = match record.encryption {
            Some(EncryptionState::Formatted { uuid }) => return Ok(uuid),
            Some(EncryptionState::Formatting { uuid }) => uuid,
            Some(EncryptionState::Unformatted) => self.host().random_uuid()?,
            None => return Err(Error::damaged(record.label(), "it was encrypted a moment ago")),
        };
        if access == DeviceAccess::ReadOnly {
            return Err(Error::precondition(format!(
                "cannot open {} read-only: it was never staged for writing, and has no key yet; stage it for \
                 writing once",
                record.label()
            )));
        }
        let formatting = EncryptionState::Formatting { uuid };
        if record.encryption == Some(EncryptionState::Unformatted) {
            self.check_blank_before_header(pool, &record, device)?;
            self.set_encryption(pool, &record, EncryptionState::Unformatted, formatting)?;
        } else {
            self.check_header_was_interrupted(&record, device, uuid)?;
        }
        self.host().encrypt(device, uuid, key)?;
        self.set_encryption(pool, &record, formatting, EncryptionState::Formatted { uuid })?;
        Ok(uuid)
    }

    fn check_blank_before_header(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        device: &Device,
    ) -> Result<()> {
        let found = self.host().encrypted_signature(device)?;
        let blank = match found.header {
            HeaderSignature::Blank => {
                !found.has_data && !pool.changed_blocks().holds_data(&record.id)?
            }
            HeaderSignature::Luks2 { .. } | HeaderSignature::Foreign => false,
        };
        if blank {
            return Ok(());
        }
        Err(Error::damaged(
            record.label(),
            "its record says that it was never written, but it holds data; it is neither encrypted nor opened",
        ))
    }

    /// What luksFormat leaves when it is interrupted: a header of this volume, whole or not, and nothing behind it.
    fn check_header_was_interrupted(
        &self,
        record: &VolumeRecord,
        device: &Device,
        uuid: FsUuid,
    ) -> Result<()> {
        let found = self.host().encrypted_signature(device)?;
        let is_ours = match found.header {
            HeaderSignature::Blank | HeaderSignature::Foreign => true,
            HeaderSignature::Luks2 { uuid: found } => found == uuid,
        };
        if is_ours && !found.has_data {
            return Ok(());
        }
        Err(Error::damaged(
            record.label(),
            "its record says that its encryption was not finished, but it holds something else; it is left as it is",
        ))
    }

    fn check_header(&self, record: &VolumeRecord, device: &Device, uuid: FsUuid) -> Result<()> {
        match self.host().encrypted_signature(device)?.header {
            HeaderSignature::Luks2 { uuid: found } if found == uuid => Ok(()),
            HeaderSignature::Luks2 { .. } | HeaderSignature::Blank | HeaderSignature::Foreign => {
                Err(Error::damaged(
                    record.label(),
                    "its record promises a LUKS2 header, but the device has another one or none; restore it from \
                     a backup of the header (cryptsetup luksHeaderRestore)",
                ))
            }
        }
    }

    fn open_with_any(
        &self,
        record: &VolumeRecord,
        access: DeviceAccess,
        device: &Device,
        keys: &[&Secret],
    ) -> Result<Device> {
        let id = &record.id;
        // As asked for at creation; a record without it is of no version that was released.
        let discard = record.parameters.encryption.is_some_and(|encryption| encryption.discard);
        first_that_fits(record, keys, |key| {
            self.host().ensure_opened(&MappingRequest { id, access, device, discard, key })
        })
    }

    /// Only if the record is still at `from`, as with the state of the filesystem.
    fn set_encryption(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        from: EncryptionState,
        to: EncryptionState,
    ) -> Result<()> {
        pool.catalogue().update_volume(&record.id, &mut |record| {
            if record.encryption != Some(from) && record.encryption != Some(to) {
                return Err(Error::busy(
                    record.label(),
                    "another node encrypted it during this call",
                ));
            }
            record.encryption = Some(to);
            Ok(())
        })?;
        Ok(())
    }
}

/// Tries the keys in their order. If none fits, the error is that of the last one.
fn first_that_fits<T>(
    record: &VolumeRecord,
    keys: &[&Secret],
    mut attempt: impl FnMut(&Secret) -> Result<T>,
) -> Result<T> {
    let mut outcome = Err(Error::unauthenticated("no key was given"));
    for key in keys {
        outcome = attempt(key);
        if !matches!(outcome, Err(Error::Unauthenticated(_))) {
            break;
        }
    }
    outcome.map_err(|error| about(record, "open", error))
}

/// The machine knows devices, but not of which volume.
fn about(record: &VolumeRecord, doing: &str, error: Error) -> Error {
    let Error::Unauthenticated(reason) = error else { return error };
    let text = format!("cannot {doing} {}: {reason}", record.label());
    Error::unauthenticated(Reason::explained(text, reason))
}
