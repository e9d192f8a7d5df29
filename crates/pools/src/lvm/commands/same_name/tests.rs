use super::*;

fn disks(all: &[(&str, &str)]) -> Vec<Disk> {
    let disk = |(path, group): &(&str, &str)| Disk {
        path: (*path).to_owned(),
        group: (*group).to_owned(),
    };
    all.iter().map(disk).collect()
}

#[test]
fn group_in_a_volume_is_passed_over() {
    let is_volume = |path: &str| path == "/dev/mapper/orlop-v" || path == "/dev/loop7";
    let choose = |all: &[(&str, &str)]| outside_of_volumes(disks(all), is_volume);
    let own = [("/dev/sda", "a"), ("/dev/sdb", "a"), ("/dev/mapper/orlop-v", "b")];
    assert_eq!(choose(&own), Some(vec!["/dev/sda".to_owned(), "/dev/sdb".to_owned()]));
    // One disk of it is in a volume, another one elsewhere.
    let spread = [("/dev/sda", "a"), ("/dev/loop7", "b"), ("/dev/sdb", "b")];
    assert_eq!(choose(&spread), Some(vec!["/dev/sda".to_owned()]));
    assert_eq!(choose(&[("/dev/sda", "a"), ("/dev/sdb", "b")]), None);
    assert_eq!(choose(&[("/dev/loop7", "b")]), None);
    assert_eq!(choose(&[]), None);
}

#[test]
fn report_of_disks_is_read() {
    let json = br#"{"report": [{"pv": [{"pv_name":"/dev/sda", "vg_uuid":"a"}]}]}"#;
    assert_eq!(parse(json), Some(disks(&[("/dev/sda", "a")])));
    assert_eq!(parse(b"{}"), None);
}

#[test]
fn file_of_an_image_pool_is_a_volume() {
    let id = "v-01234567-0123456789abcdef0123456789abcdef";
    assert!(is_of_an_image_pool(&format!("/srv/pool/volumes/{id}/data\n")));
    assert!(!is_of_an_image_pool("/srv/disk.img\n"));
    assert!(!is_of_an_image_pool(""));
}
