//! Encrypted volumes: the header on a volume's device, and the mapping of dm-crypt on top of it.
//!
//! What is open is read back from the kernel, by the names of mappings: there is no record that could be wrong after a
//! restart.

mod key_files;

use std::sync::{Mutex, MutexGuard, PoisonError};

use orlop_model::encryption::HEADER_BYTES;
use orlop_model::{
    Device, DeviceAccess, EncryptedSignature, Error, FsUuid, HeaderSignature, HostEncryption,
    KeyRotation, MappingRequest, Reason, Result, Secret, UnservedDevice, VolumeId, VolumeKeys,
};
use orlop_sys::crypt::{self, Header, KeyDerivation, Unlocked};
use orlop_sys::device_mapper::{self, MappedDevice};
use orlop_sys::privilege;
use rustix::io::Errno;

use super::LinuxHost;
use super::failure::cannot;
pub use key_files::KeyFiles;

const NAME_PREFIX: &str = "orlop-crypt-";
const READER_SUFFIX: &str = "-ro";
const LOOKING: &str = "find the mapping of an encrypted volume";

#[derive(Debug, Clone)]
pub struct EncryptionConfig {
    /// False where volumes are made for other machines: what this one lacks says nothing then.
    pub is_used_here: bool,
    pub derivation: KeyDerivation,
    pub key_files: KeyFiles,
}

impl EncryptionConfig {
    /// Four times what OWASP asks of a password in a database, and in little time and memory: the daemon's pod may have
    /// 64 MiB.
    pub const DERIVATION: KeyDerivation =
        KeyDerivation::Argon2id { memory_kib: 32 << 10, iterations: 4 };
}

impl Default for EncryptionConfig {
    fn default() -> Self {
        Self { is_used_here: true, derivation: Self::DERIVATION, key_files: KeyFiles::default() }
    }
}

pub(super) struct Encryption {
    config: EncryptionConfig,
    /// To derive a key takes much memory, so it is done for one volume at a time.
    deriving: Mutex<()>,
}

impl Encryption {
    pub(super) fn new(config: EncryptionConfig) -> Self {
        Self { config, deriving: Mutex::default() }
    }

    fn one_at_a_time(&self) -> MutexGuard<'_, ()> {
        // From the first key on: a core of this process, or another process of its user, would have it.
        if let Err(error) = privilege::forbid_dumps() {
            tracing::warn!(%error, "cannot keep keys out of core dumps");
        }
        self.deriving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opens(&self, device: &Device, key: &Secret) -> Result<bool> {
        let _alone = self.one_at_a_time();
        let checked = crypt::check_key(&device.path, key.expose())
            .map_err(cannot_derive("check the key of an encrypted volume"))?;
        Ok(checked == Unlocked::Yes)
    }

    fn add_key(&self, device: &Device, known: &Secret, new: &Secret) -> Result<bool> {
        let _alone = self.one_at_a_time();
        let (known, new) = (known.expose(), new.expose());
        let added = crypt::add_key(&device.path, known, new, self.config.derivation)
            .map_err(cannot_derive("add a key to an encrypted volume"))?;
        Ok(added == Unlocked::Yes)
    }

    /// All keys that it is: one that was added twice, too.
    fn ensure_key_removed(&self, device: &Device, key: &Secret) -> Result<()> {
        let _alone = self.one_at_a_time();
        loop {
            let removed = crypt::remove_key(&device.path, key.expose())
                .map_err(cannot_derive("remove the old key of an encrypted volume"))?;
            if removed == Unlocked::WrongKey {
                return Ok(());
            }
        }
    }
}

impl HostEncryption for LinuxHost {
    fn check_encryption_works(&self) -> Result<()> {
        match crypt::missing().filter(|_| self.encryption.config.is_used_here) {
            None => Ok(()),
            Some(why) => Err(Error::precondition(format!(
                "encrypted volumes cannot be used on this machine: {why}; install cryptsetup and a kernel with \
                 dm-crypt"
            ))),
        }
    }

    fn keys_of_pool(&self, pool: &str) -> Result<VolumeKeys> {
        self.encryption.config.key_files.keys_of(pool)
    }

    fn encrypted_signature(&self, device: &Device) -> Result<EncryptedSignature> {
        let found = crypt::header_and_data(&device.path, HEADER_BYTES)
            .map_err(cannot("read the header of an encrypted volume"))?;
        let header = match found.header {
            Header::Blank => HeaderSignature::Blank,
            Header::Luks2 { uuid } => HeaderSignature::Luks2 { uuid: FsUuid::from_bytes(uuid) },
            Header::Foreign => HeaderSignature::Foreign,
        };
        Ok(EncryptedSignature { header, has_data: found.has_data })
    }

    fn encrypt(&self, device: &Device, uuid: FsUuid, key: &Secret) -> Result<()> {
        let _alone = self.encryption.one_at_a_time();
        let (uuid, derivation) = (uuid.to_string(), self.encryption.config.derivation);
        crypt::format(&device.path, &uuid, HEADER_BYTES, key.expose(), derivation)
            .map_err(cannot_derive("write the header of an encrypted volume"))
    }

    fn check_key(&self, device: &Device, key: &Secret) -> Result<()> {
        match self.encryption.opens(device, key)? {
            true => Ok(()),
            false => Err(wrong_key()),
        }
    }

    fn ensure_opened(&self, request: &MappingRequest<'_>) -> Result<Device> {
        if let Some(open) = self.mapping_on(request.id, request.access, request.device)? {
            return Ok(open);
        }
        let name = mapping_name(request.id, request.access);
        let mapping = crypt::Mapping {
            name: &name,
            read_only: request.access == DeviceAccess::ReadOnly,
            discard: request.discard,
        };
        let opened = {
            let _alone = self.encryption.one_at_a_time();
            crypt::open(&request.device.path, &mapping, request.key.expose())
                .map_err(cannot_derive("open an encrypted volume"))?
        };
        if opened == Unlocked::WrongKey {
            return Err(wrong_key());
        }
        self.mapping_on(request.id, request.access, request.device)?.ok_or_else(|| {
            Error::failed(
                "open an encrypted volume",
                format!(
                    "cryptsetup has made {name}, but {} does not show it",
                    request.device.path.display()
                ),
            )
        })
    }

    fn mapping_on(
        &self,
        id: &VolumeId,
        access: DeviceAccess,
        device: &Device,
    ) -> Result<Option<Device>> {
        Ok(find(id, access, device)?.map(|mapping| described(&mapping)))
    }

    fn ensure_closed(&self, id: &VolumeId, access: DeviceAccess, device: &Device) -> Result<()> {
        match find(id, access, device)? {
            None => Ok(()),
            Some(mapping) => close(&mapping),
        }
    }

    fn ensure_mapping_grown(
        &self,
        id: &VolumeId,
        access: DeviceAccess,
        device: &Device,
    ) -> Result<()> {
        match find(id, access, device)? {
            None => Ok(()),
            Some(mapping) => crypt::grow(&mapping).map_err(cannot("grow an encrypted volume")),
        }
    }

    /// The new key gets a place beside the old one, is tried, and only then the old one goes. Each of these steps leaves
    /// a header by which a key that the caller knows opens the volume, and each may be repeated.
    fn ensure_key_rotated(&self, rotation: &KeyRotation<'_>) -> Result<()> {
        let KeyRotation { device, new, old } = *rotation;
        let others: Vec<&Secret> = old.iter().copied().filter(|key| !key.is_same_as(new)).collect();
        if !self.encryption.opens(device, new)? {
            let mut added = false;
            for known in &others {
                added = added || self.encryption.add_key(device, known, new)?;
            }
            if !added {
                return Err(wrong_key());
            }
            // Not taken from the exit status: the old key is the only other way to the data.
            self.check_key(device, new)?;
        }
        others.iter().try_for_each(|key| self.encryption.ensure_key_removed(device, key))
    }
}

fn wrong_key() -> Error {
    Error::unauthenticated(
        "the encryption passphrase is not the one of this volume; give the one that it was first staged with, or \
         to which it was rotated",
    )
}

/// As [`cannot`], where memory may be what was missing.
fn cannot_derive(doing: &str) -> impl FnOnce(orlop_sys::Error) -> Error {
    move |failure| match failure.errno() {
        Some(Errno::NOMEM) => {
            let text = format!(
                "cannot {doing}: {failure}; give the daemon more memory, or new volumes another \
                 ORLOP_ENCRYPTION_KDF"
            );
            Error::exhausted(Reason::explained(text, failure))
        }
        Some(_) | None => cannot(doing)(failure),
    }
}

/// The name of a mapping, by which it is found again.
pub(super) fn mapping_name(id: &VolumeId, access: DeviceAccess) -> String {
    let suffix = match access {
        DeviceAccess::ReadWrite => "",
        DeviceAccess::ReadOnly => READER_SUFFIX,
    };
    format!("{NAME_PREFIX}{id}{suffix}")
}

/// `None`: the mapping is not a volume's.
fn of_mapping_name(name: &str) -> Option<(VolumeId, DeviceAccess)> {
    let rest = name.strip_prefix(NAME_PREFIX)?;
    match rest.strip_suffix(READER_SUFFIX) {
        Some(id) => Some((id.parse().ok()?, DeviceAccess::ReadOnly)),
        None => Some((rest.parse().ok()?, DeviceAccess::ReadWrite)),
    }
}

/// Asks for what is on this one device, so that it costs the same however many mappings there are.
pub(super) fn find(
    id: &VolumeId,
    access: DeviceAccess,
    device: &Device,
) -> Result<Option<MappedDevice>> {
    let name = mapping_name(id, access);
    let above = device_mapper::above(device.major, device.minor).map_err(cannot(LOOKING))?;
    Ok(above.into_iter().find(|mapping| mapping.name == name))
}

pub(super) fn close(mapping: &MappedDevice) -> Result<()> {
    crypt::close(mapping).map_err(cannot("close an encrypted volume"))
}

pub(super) fn described(mapping: &MappedDevice) -> Device {
    Device { path: mapping.path(), major: mapping.major, minor: mapping.minor }
}

/// All that are open, of whichever pools.
pub(super) fn all_mappings() -> Result<Vec<(VolumeId, DeviceAccess, MappedDevice)>> {
    let mappings = device_mapper::named(NAME_PREFIX).map_err(cannot(LOOKING))?;
    let of_volume = |mapping: MappedDevice| {
        let (id, access) = of_mapping_name(&mapping.name)?;
        Some((id, access, mapping))
    };
    Ok(mappings.into_iter().filter_map(of_volume).collect())
}

/// Of a volume whose pool is not in service: the devices that workloads use, which are its mappings if it is encrypted.
pub(super) fn in_use_of(
    id: &VolumeId,
    devices: Vec<UnservedDevice>,
) -> Result<Vec<UnservedDevice>> {
    let in_use = |unserved: UnservedDevice| {
        let mapping = find(id, unserved.access, &unserved.device)?;
        let device = mapping.map_or(unserved.device, |mapping| described(&mapping));
        Ok(UnservedDevice { device, ..unserved })
    };
    devices.into_iter().map(in_use).collect()
}

/// Closes what [`in_use_of`] has put in the place of the volume's device, which is returned. `None`: it is no mapping.
pub(super) fn closed(id: &VolumeId, unserved: &UnservedDevice) -> Result<Option<UnservedDevice>> {
    let number = (unserved.device.major, unserved.device.minor);
    let is_it = |mapping: &MappedDevice| (mapping.major, mapping.minor) == number;
    let mut all = all_mappings()?.into_iter();
    let Some((_, _, mapping)) = all.find(|(of, _, mapping)| of == id && is_it(mapping)) else {
        return Ok(None);
    };
    let below = device_mapper::below(number.0, number.1).map_err(cannot(LOOKING))?;
    close(&mapping)?;
    let Some((major, minor)) = below.first().copied() else { return Ok(None) };
    let path = device_mapper::path_of(major, minor).map_err(cannot(LOOKING))?;
    let device = Device { path, major, minor };
    Ok(Some(UnservedDevice { device, ..unserved.clone() }))
}

#[cfg(test)]
mod tests;
