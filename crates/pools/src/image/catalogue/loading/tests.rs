use std::collections::BTreeMap;
use std::path::Path;

use tempfile::tempdir;

use super::*;
use crate::image::layout::ObjectDir;
use crate::image::testbed::MIB;
use orlop_model::record::RECORD_VERSION;
use orlop_model::{
    AccessMode, AccessType, CapabilitySet, FormatState, IoLimits, NameDigest, Timestamp,
    VolumeCapability, VolumeId, VolumeParameters, VolumeRecord,
};

fn pool() -> PoolId {
    PoolId::from_random([1, 2, 3, 4])
}

fn record(name: &str) -> VolumeRecord {
    let block = VolumeCapability { access: AccessType::Block, mode: AccessMode::SingleNodeWriter };
    VolumeRecord {
        version: RECORD_VERSION,
        id: VolumeId::new(pool(), NameDigest::of_text(name)),
        name: name.parse().unwrap(),
        capacity_bytes: MIB,
        capabilities: CapabilitySet::new(vec![block]).unwrap(),
        parameters: VolumeParameters::default(),
        limits: IoLimits::default(),
        source: None,
        format: FormatState::Blank,
        ephemeral: false,
        encryption: None,
        growing: false,
        never_published: false,
        created: Timestamp { seconds: 1, nanos: 2 },
        published: BTreeMap::new(),
    }
}

fn store(directory: &Path, name: &str, text: &[u8]) {
    fs::create_dir(directory.join(name)).unwrap();
    fs::write(directory.join(name).join(ObjectDir::RECORD), text).unwrap();
}

fn reason(index: &ObjectIndex<VolumeRecord>, id: &VolumeId) -> String {
    match index.get(id) {
        Err(Error::Damaged { reason, .. }) => reason,
        other => panic!("not damaged: {other:?}"),
    }
}

#[test]
fn records_are_read_and_paged_in_order() {
    let directory = tempdir().unwrap();
    let mut records: Vec<VolumeRecord> = ["a", "b", "c", "d"].map(record).into();
    for record in &records {
        let text = serde_json::to_vec(record).unwrap();
        store(directory.path(), &record.id.to_string(), &text);
    }
    records.sort_by(|a, b| a.id.cmp(&b.id));
    let index = ObjectIndex::<VolumeRecord>::read(directory.path().to_owned(), &pool()).unwrap();
    assert_eq!(index.page_of_whole(None, 0), records);
    assert_eq!(index.page_of_whole(Some(&records[1].id), 1), records[2..3]);
    assert_eq!(index.page_of_whole(Some(&records[3].id), 0), []);
    assert_eq!(index.page(None, 2).len(), 2);
    assert_eq!(index.charges(), u128::from(4 * MIB));
}

#[test]
fn unreadable_record_is_listed_as_damaged() {
    let directory = tempdir().unwrap();
    let [torn, foreign, newer, whole, bare] =
        ["torn", "foreign", "newer", "whole", "bare"].map(record);
    let text = |record| serde_json::to_string(record).unwrap();
    let path = directory.path();
    store(path, &torn.id.to_string(), &text(&torn).as_bytes()[..40]);
    store(path, &foreign.id.to_string(), text(&whole).as_bytes());
    let later = text(&newer).replacen("\"version\":1", "\"version\":2", 1);
    store(path, &newer.id.to_string(), later.as_bytes());
    store(path, &whole.id.to_string(), text(&whole).as_bytes());
    fs::create_dir(path.join(bare.id.to_string())).unwrap();

    let index = ObjectIndex::<VolumeRecord>::read(path.to_owned(), &pool()).unwrap();
    assert!(reason(&index, &torn.id).contains("malformed"));
    assert!(reason(&index, &foreign.id).contains(&whole.id.to_string()));
    assert!(reason(&index, &newer.id).contains("version 2"));
    assert!(reason(&index, &bare.id).contains("cannot be read"));
    assert!(reason(&index, &bare.id).contains(&path.display().to_string()));
    assert_eq!(index.page(None, 0).len(), 5);
    assert_eq!(index.page_of_whole(None, 0), [whole]);
}

#[test]
fn foreign_names_are_left_alone() {
    let directory = tempdir().unwrap();
    fs::create_dir(directory.path().join("lost+found")).unwrap();
    let other = VolumeId::new(PoolId::from_random([9; 4]), NameDigest::of_text("elsewhere"));
    fs::create_dir(directory.path().join(other.to_string())).unwrap();
    let index = ObjectIndex::<VolumeRecord>::read(directory.path().to_owned(), &pool()).unwrap();
    assert!(index.page(None, 0).is_empty());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
}

/// A link to itself stands for all that can be read later: what is wrong is not in the record.
#[test]
fn what_could_not_be_read_is_no_damage_and_is_read_again() {
    let directory = tempdir().unwrap();
    let volume = record("v");
    let home = directory.path().join(volume.id.to_string());
    fs::create_dir(&home).unwrap();
    let data = fs::File::create(home.join("data")).unwrap();
    data.set_len(MIB).unwrap();
    let path = home.join(ObjectDir::RECORD);
    std::os::unix::fs::symlink(&path, &path).unwrap();
    let index = ObjectIndex::<VolumeRecord>::read(directory.path().to_owned(), &pool()).unwrap();
    for answer in [index.get(&volume.id).map(drop), index.length(&volume.id).map(drop)] {
        let error = answer.unwrap_err();
        assert!(!matches!(error, Error::Damaged { .. }), "{error}");
    }
    assert!(index.page(None, 0)[0].1.is_err());
    assert_eq!(index.page_of_whole(None, 0), []);
    assert_eq!(index.charges(), u128::from(MIB), "a volume may be filled at any time");

    fs::remove_file(&path).unwrap();
    fs::write(&path, serde_json::to_vec(&volume).unwrap()).unwrap();
    assert_eq!(index.page_of_whole(None, 0), *std::slice::from_ref(&volume));
    assert_eq!(index.get(&volume.id).unwrap(), Some(volume.clone()));
    assert_eq!(index.take_out(&volume.id).charge, MIB);
}
