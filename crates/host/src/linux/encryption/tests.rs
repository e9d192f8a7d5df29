//! Headers are made in files here. What takes mappings is in tests/real, in the guest.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::path::Path;

use orlop_sys::tool;

use super::super::testbed::{MIB, config_in};
use super::super::{LinuxHost, LinuxHostConfig};
use super::*;

const UUID: [u8; 16] = [7; 16];

fn host(directory: &Path) -> LinuxHost {
    let encryption = EncryptionConfig {
        derivation: KeyDerivation::Pbkdf2 { iterations: 1000 },
        ..EncryptionConfig::default()
    };
    LinuxHost::new(LinuxHostConfig { encryption, ..config_in(directory) }).unwrap()
}

fn secret(text: &str) -> Secret {
    Secret::new("secrets", text.as_bytes().to_vec()).unwrap()
}

/// A file in the place of a device; `None` where cryptsetup is missing.
fn device(directory: &Path) -> Option<Device> {
    if tool::find("cryptsetup").is_none() {
        eprintln!("skipped: cryptsetup is not installed");
        return None;
    }
    let path = directory.join("image");
    File::create_new(&path).unwrap().set_len(20 * MIB).unwrap();
    Some(Device { path, major: 0, minor: 0 })
}

#[test]
fn volumes_and_mappings_are_found_by_each_other_s_names() {
    let id: VolumeId = "v-01234567-00112233445566778899aabbccddeeff".parse().unwrap();
    for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
        let name = mapping_name(&id, access);
        assert!(name.len() <= 127, "{name}");
        assert_eq!(of_mapping_name(&name), Some((id.clone(), access)));
    }
    for foreign in ["orlop-crypt-", "orlop-crypt-x", "orlop-v-01234567-x", "luks-home"] {
        assert_eq!(of_mapping_name(foreign), None, "{foreign}");
    }
}

/// Whatever the header has when a rotation begins: the old key, both after a crash, or the new one alone.
#[test]
fn rotation_ends_with_the_new_key_alone_wherever_the_last_one_ended() {
    let directory = tempfile::tempdir().unwrap();
    let host = host(directory.path());
    let Some(device) = device(directory.path()) else { return };
    let (old, new, wrong) = (secret("old"), secret("new"), secret("wrong"));
    let opens = |key: &Secret| host.check_key(&device, key).is_ok();
    let rotate =
        |old: &[&Secret]| host.ensure_key_rotated(&KeyRotation { device: &device, new: &new, old });
    for already in [&[][..], &[&new], &[&new, &new]] {
        host.encrypt(&device, FsUuid::from_bytes(UUID), &old).unwrap();
        for key in already {
            assert!(host.encryption.add_key(&device, &old, key).unwrap());
        }
        // The caller may be wrong about the present key, and give one that opens nothing as well.
        rotate(&[&wrong, &old]).unwrap();
        assert!(opens(&new) && !opens(&old));
        rotate(&[&old]).unwrap();
        rotate(&[&new]).unwrap();
        rotate(&[]).unwrap();
        assert!(opens(&new) && !opens(&old));
    }
}

#[test]
fn rotation_without_a_key_that_fits_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let host = host(directory.path());
    let Some(device) = device(directory.path()) else { return };
    let (old, new, wrong) = (secret("old"), secret("new"), secret("wrong"));
    host.encrypt(&device, FsUuid::from_bytes(UUID), &old).unwrap();
    let before = std::fs::read(&device.path).unwrap();
    let refused = host
        .ensure_key_rotated(&KeyRotation { device: &device, new: &new, old: &[&wrong] })
        .unwrap_err();
    assert!(matches!(refused, Error::Unauthenticated(_)), "{refused:?}");
    assert!(std::fs::read(&device.path).unwrap() == before);
}

/// An operator's key for emergencies stays.
#[test]
fn rotation_leaves_other_keys() {
    let directory = tempfile::tempdir().unwrap();
    let host = host(directory.path());
    let Some(device) = device(directory.path()) else { return };
    let (old, new, recovery) = (secret("old"), secret("new"), secret("recovery"));
    host.encrypt(&device, FsUuid::from_bytes(UUID), &old).unwrap();
    assert!(host.encryption.add_key(&device, &old, &recovery).unwrap());
    host.ensure_key_rotated(&KeyRotation { device: &device, new: &new, old: &[&old] }).unwrap();
    host.check_key(&device, &recovery).unwrap();
    host.check_key(&device, &new).unwrap();
    host.check_key(&device, &old).unwrap_err();
}

#[test]
fn signature_is_that_of_the_header() {
    let directory = tempfile::tempdir().unwrap();
    let host = host(directory.path());
    let Some(device) = device(directory.path()) else { return };
    let found = host.encrypted_signature(&device).unwrap();
    assert_eq!(found, EncryptedSignature { header: HeaderSignature::Blank, has_data: false });
    let uuid = FsUuid::from_bytes(UUID);
    host.encrypt(&device, uuid, &secret("key")).unwrap();
    let found = host.encrypted_signature(&device).unwrap();
    let header = HeaderSignature::Luks2 { uuid };
    assert_eq!(found, EncryptedSignature { header, has_data: false });
}
