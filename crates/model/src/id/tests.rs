#![allow(clippy::unwrap_used)]

use super::*;

fn pool() -> PoolId {
    PoolId::from_random([0xde, 0xad, 0xbe, 0xef])
}

fn volume(name: &str) -> VolumeId {
    VolumeId::new(pool(), NameDigest::of(&name.parse::<ObjectName>().unwrap()))
}

#[test]
fn id_round_trips_through_text() {
    let id = volume("pvc-1");
    assert_eq!(id.to_string().parse::<VolumeId>().unwrap(), id);
    assert!(id.to_string().starts_with("v-deadbeef-"));
}

#[test]
fn equal_names_give_equal_ids() {
    assert_eq!(volume("a"), volume("a"));
    assert_ne!(volume("a"), volume("b"));
}

#[test]
fn a_snapshot_id_is_not_a_volume_id() {
    let snapshot = SnapshotId::new(pool(), NameDigest::of_text("x")).to_string();
    assert!(matches!(snapshot.parse::<VolumeId>(), Err(Error::NoSuchVolume(_))));
}

#[test]
fn foreign_ids_are_not_found() {
    for text in ["", "not-ours", "v-", "v-deadbeef-", "v-DEADBEEF-00", "--help", "../../etc"] {
        assert!(matches!(text.parse::<VolumeId>(), Err(Error::NoSuchVolume(_))), "{text}");
    }
}

#[test]
fn a_shown_id_is_short_and_printable() {
    let shown = shown(&format!("\u{1b}[31m{}", "x".repeat(4000)));
    assert!(shown.chars().count() <= 129);
    assert!(!shown.chars().any(char::is_control));
}
