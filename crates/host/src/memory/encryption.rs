//! Encryption of the imagination: a header is a UUID and a list of passphrases, and a mapping is one more device.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use orlop_model::encryption::HEADER_BYTES;
use orlop_model::{
    Device, DeviceAccess, DeviceSignature, EncryptedSignature, Error, FsUuid, HeaderSignature,
    HostEncryption, KeyRotation, MappingRequest, Result, Secret, VolumeId, VolumeKeys,
};

use super::{DeviceNumber, MachineState, MemoryHost, Op};

/// As device-mapper has on most machines.
const MAPPING_MAJOR: u32 = 253;

#[derive(Default)]
pub(super) struct EncryptedDevices {
    headers: BTreeMap<DeviceNumber, Header>,
    /// Which device has which mapping, whether it is open or not: what is on it stays.
    mappings: BTreeMap<DeviceNumber, u32>,
    open: BTreeSet<DeviceNumber>,
    /// What the operator's key files hold, by pool.
    key_files: BTreeMap<String, Vec<u8>>,
}

struct Header {
    uuid: FsUuid,
    keys: Vec<Vec<u8>>,
}

impl EncryptedDevices {
    pub(super) fn close_all(&mut self) {
        self.open.clear();
    }

    fn opens(&self, device: DeviceNumber, key: &Secret) -> bool {
        let header = self.headers.get(&device);
        header.is_some_and(|header| header.keys.iter().any(|known| known == key.expose()))
    }

    fn mapping_of(&mut self, device: DeviceNumber) -> Device {
        let next = u32::try_from(self.mappings.len()).unwrap_or(u32::MAX);
        let minor = *self.mappings.entry(device).or_insert(next);
        Device { path: PathBuf::from(format!("/memory/dm-{minor}")), major: MAPPING_MAJOR, minor }
    }
}

/// What a test sets up and looks at.
impl MemoryHost {
    pub fn set_key_file(&self, pool: &str, key: &str) {
        self.lock().encrypted.key_files.insert(pool.to_owned(), key.as_bytes().to_vec());
    }

    /// As copying the data of one volume into another does.
    pub fn copy_header(&self, from: &Device, to: &Device) {
        let mut state = self.lock();
        let header = state.encrypted.headers.get(&number(from));
        let header = header.map(|it| Header { uuid: it.uuid, keys: it.keys.clone() });
        if let Some(header) = header {
            state.encrypted.headers.insert(number(to), header);
        }
        let (from, to) =
            (state.encrypted.mapping_of(number(from)), state.encrypted.mapping_of(number(to)));
        let signature = state.device(&from).signature;
        state.device(&to).signature = signature;
    }

    /// The mapping of a device, also while it is closed.
    pub fn mapping_of(&self, device: &Device) -> Device {
        self.lock().encrypted.mapping_of(number(device))
    }

    pub fn is_open(&self, device: &Device) -> bool {
        self.lock().encrypted.open.contains(&number(device))
    }

    pub fn opens_with(&self, device: &Device, key: &str) -> bool {
        let header = &self.lock().encrypted;
        header
            .headers
            .get(&number(device))
            .is_some_and(|header| header.keys.iter().any(|known| known == key.as_bytes()))
    }
}

impl HostEncryption for MemoryHost {
    fn check_encryption_works(&self) -> Result<()> {
        self.attempt(Op::CheckEncryption).map(drop)
    }

    fn keys_of_pool(&self, pool: &str) -> Result<VolumeKeys> {
        let state = self.lock();
        let key = state.encrypted.key_files.get(pool).cloned();
        let current = key.map(|key| Secret::new("key file", key)).transpose()?;
        Ok(VolumeKeys { current, previous: None })
    }

    fn encrypted_signature(&self, device: &Device) -> Result<EncryptedSignature> {
        let mut state = self.attempt(Op::Probe)?;
        let uuid = state.encrypted.headers.get(&number(device)).map(|header| header.uuid);
        let header = match uuid {
            Some(uuid) => HeaderSignature::Luks2 { uuid },
            None if state.device(device).signature == DeviceSignature::Blank => {
                HeaderSignature::Blank
            }
            None => HeaderSignature::Foreign,
        };
        let mapping = state.encrypted.mapping_of(number(device));
        let has_data = state.device(&mapping).signature != DeviceSignature::Blank;
        Ok(EncryptedSignature { header, has_data })
    }

    fn encrypt(&self, device: &Device, uuid: FsUuid, key: &Secret) -> Result<()> {
        let mut state = self.attempt(Op::Encrypt)?;
        let header = Header { uuid, keys: vec![key.expose().to_vec()] };
        state.encrypted.headers.insert(number(device), header);
        state.device(device).signature = DeviceSignature::Foreign;
        state.done(Op::Encrypt, shown(device));
        Ok(())
    }

    fn check_key(&self, device: &Device, key: &Secret) -> Result<()> {
        match self.attempt(Op::CheckKey)?.encrypted.opens(number(device), key) {
            true => Ok(()),
            false => Err(Error::unauthenticated("the passphrase is not that of the volume")),
        }
    }

    fn ensure_opened(&self, request: &MappingRequest<'_>) -> Result<Device> {
        let mut state = self.attempt(Op::Open)?;
        let device = number(request.device);
        let mapping = state.encrypted.mapping_of(device);
        if state.encrypted.open.contains(&device) {
            return Ok(mapping);
        }
        if !state.encrypted.opens(device, request.key) {
            return Err(Error::unauthenticated("the passphrase is not that of the volume"));
        }
        state.encrypted.open.insert(device);
        state.size_mapping(request.device);
        state.done(Op::Open, shown(request.device));
        Ok(mapping)
    }

    fn mapping_on(&self, _: &VolumeId, _: DeviceAccess, device: &Device) -> Result<Option<Device>> {
        let mut state = self.lock();
        let is_open = state.encrypted.open.contains(&number(device));
        Ok(is_open.then(|| state.encrypted.mapping_of(number(device))))
    }

    fn ensure_closed(&self, _: &VolumeId, _: DeviceAccess, device: &Device) -> Result<()> {
        let mut state = self.attempt(Op::Close)?;
        let mapping = state.encrypted.mapping_of(number(device));
        if state.mounts.values().any(|there| there.is_of(&mapping)) {
            return Err(Error::precondition(format!("{} is in use", mapping.path.display())));
        }
        if state.encrypted.open.remove(&number(device)) {
            state.done(Op::Close, shown(device));
        }
        Ok(())
    }

    fn ensure_mapping_grown(&self, _: &VolumeId, _: DeviceAccess, device: &Device) -> Result<()> {
        let mut state = self.attempt(Op::GrowMapping)?;
        if state.encrypted.open.contains(&number(device)) {
            state.size_mapping(device);
            state.done(Op::GrowMapping, shown(device));
        }
        Ok(())
    }

    fn ensure_key_rotated(&self, rotation: &KeyRotation<'_>) -> Result<()> {
        let mut state = self.attempt(Op::RotateKey)?;
        let device = number(rotation.device);
        let opens = |key: &Secret| state.encrypted.opens(device, key);
        if !opens(rotation.new) && !rotation.old.iter().any(|key| opens(key)) {
            return Err(Error::unauthenticated("no passphrase is that of the volume"));
        }
        if let Some(header) = state.encrypted.headers.get_mut(&device) {
            header.keys.retain(|known| !rotation.old.iter().any(|old| old.expose() == known));
            header.keys.retain(|known| known != rotation.new.expose());
            header.keys.push(rotation.new.expose().to_vec());
        }
        state.done(Op::RotateKey, shown(rotation.device));
        Ok(())
    }
}

impl MachineState {
    fn size_mapping(&mut self, device: &Device) {
        let size = self.device(device).size.saturating_sub(HEADER_BYTES);
        let mapping = self.encrypted.mapping_of(number(device));
        self.device(&mapping).size = size;
    }
}

fn number(device: &Device) -> DeviceNumber {
    (device.major, device.minor)
}

fn shown(device: &Device) -> String {
    format!("{}:{}", device.major, device.minor)
}
