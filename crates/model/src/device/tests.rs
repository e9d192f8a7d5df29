use super::*;

#[test]
fn device_of_device_mapper_is_found_by_its_name() {
    let id: VolumeId = "v-01234567-0123456789abcdef0123456789abcdef".parse().unwrap();
    for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
        let name = access.mapped_name(&id);
        assert_eq!(DeviceAccess::of_mapped_name(&name), Some((id.clone(), access)));
    }
    assert_eq!(DeviceAccess::ReadOnly.mapped_name(&id), format!("orlop-{id}-ro"));
    for other in ["", "orlop-", "orlop-x", "vg-v--01234567--0123456789abcdef0123456789abcdef"] {
        assert_eq!(DeviceAccess::of_mapped_name(other), None, "{other}");
    }
    assert_eq!(DeviceAccess::of_mapped_name(&format!("orlop-{id}-crypt")), None);
}
