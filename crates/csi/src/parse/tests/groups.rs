use super::super::*;
use super::*;

const VOLUME: &str = "v-0badcafe-00112233445566778899aabbccddeeff";
const OTHER: &str = "v-0badcafe-ffeeddccbbaa99887766554433221100";

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

#[test]
fn id_lists_are_sets_and_invalid_before_not_found() {
    let ids = volume_ids("volume_ids", &texts(&[OTHER, VOLUME, OTHER])).unwrap();
    assert_eq!(ids.iter().map(ToString::to_string).collect::<Vec<_>>(), [VOLUME, OTHER]);
    assert!(volume_ids("volume_ids", &[]).unwrap().is_empty());
    let missing = volume_ids("volume_ids", &texts(&[VOLUME, "fake"]));
    assert!(matches!(missing, Err(Error::NoSuchVolume(_))));
    let long = "x".repeat(129);
    for wrong in ["", &long] {
        assert!(is_invalid(&volume_ids("volume_ids", &texts(&["fake", wrong]))));
    }
}

#[test]
fn ids_of_groups_are_not_ids_of_volumes() {
    let group = VOLUME.replacen('v', "g", 1);
    let snapshot = VOLUME.replacen('v', "gs", 1);
    assert_eq!(volume_group_id(&group).unwrap().to_string(), group);
    assert_eq!(group_snapshot_id(&snapshot).unwrap().to_string(), snapshot);
    assert!(matches!(volume_group_id(&snapshot), Err(Error::NoSuchVolumeGroup(_))));
    assert!(matches!(group_snapshot_id(&group), Err(Error::NoSuchGroupSnapshot(_))));
    assert_eq!(issued_volume_group(VOLUME).unwrap(), None);
    assert_eq!(issued_group_snapshot(VOLUME).unwrap(), None);
    let long = "x".repeat(129);
    assert!(is_invalid(&issued_volume_group(&long)));
    assert!(is_invalid(&issued_group_snapshot(&long)));
}

#[test]
fn group_takes_1_to_1000_volumes() {
    let most = |value: &str| volume_group_parameters(&map(&[("maxVolumes", value)]));
    assert_eq!(most("1").unwrap(), Some(1));
    assert_eq!(most("1000").unwrap(), Some(1000));
    for wrong in ["", "0", "1001", "-1", "+1", "1.0", "ten", "99999999999"] {
        assert!(is_invalid(&most(wrong)), "{wrong}");
    }
    assert_eq!(volume_group_parameters(&map(&[])).unwrap(), None);
    let foreign = map(&[("csi.storage.k8s.io/x", "y")]);
    assert_eq!(volume_group_parameters(&foreign).unwrap(), None);
    assert!(is_invalid(&volume_group_parameters(&map(&[("maxvolumes", "5")]))));
}

#[test]
fn starting_offset_and_max_results_are_validated() {
    assert_eq!(starting_offset(0), Ok(0));
    assert!(matches!(starting_offset(-1), Err(Error::OutOfRange(_))));
    assert_eq!(max_results(0), Ok(1024));
    assert_eq!(max_results(7), Ok(7));
    assert_eq!(max_results(i32::MAX), Ok(4096));
    assert!(is_invalid(&max_results(-1)));
}
