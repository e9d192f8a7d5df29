use std::collections::BTreeSet;
use std::path::Path;

use orlop_model::record::RECORD_VERSION;
use orlop_model::{NameDigest, Timestamp, VolumeGroupId, VolumeGroupRecord};
use tempfile::tempdir;

use super::*;

type Groups = RecordIndex<VolumeGroupRecord>;

fn pool() -> PoolId {
    PoolId::from_random([1, 2, 3, 4])
}

fn group(name: &str) -> VolumeGroupRecord {
    VolumeGroupRecord {
        version: RECORD_VERSION,
        id: VolumeGroupId::new(pool(), NameDigest::of_text(name)),
        name: name.parse().unwrap(),
        members: BTreeSet::new(),
        max_members: 10,
        created: Timestamp { seconds: 1, nanos: 2 },
    }
}

fn open(directory: &Path) -> Groups {
    Groups::read(directory.to_owned(), &pool()).unwrap()
}

fn save(index: &Groups, record: &VolumeGroupRecord) {
    index.write_file(record).unwrap();
    index.put(record.clone());
}

#[test]
fn records_persist_and_are_paged_in_order() {
    let directory = tempdir().unwrap();
    let index = open(directory.path());
    let mut records: Vec<_> = ["a", "b", "c", "d"].map(group).into();
    for record in &records {
        save(&index, record);
    }
    records.sort_by(|a, b| a.id.cmp(&b.id));
    for index in [index, open(directory.path())] {
        assert_eq!(index.page_of_whole(None, 0), records);
        assert_eq!(index.page_of_whole(Some(&records[1].id), 1), records[2..3]);
        assert_eq!(index.page_of_whole(Some(&records[3].id), 0), []);
        assert_eq!(index.get(&records[0].id).unwrap().as_ref(), Some(&records[0]));
    }
}

#[test]
fn a_record_is_replaced_and_removed() {
    let directory = tempdir().unwrap();
    let index = open(directory.path());
    let mut record = group("a");
    save(&index, &record);
    record.max_members = 3;
    save(&index, &record);
    assert_eq!(open(directory.path()).get(&record.id).unwrap().as_ref(), Some(&record));
    for _ in 0..2 {
        index.remove_file(&record.id).unwrap();
        index.take_out(&record.id);
        assert_eq!(index.get(&record.id).unwrap(), None);
    }
    assert_eq!(open(directory.path()).get(&record.id).unwrap(), None);
}

#[test]
fn unreadable_record_is_damaged_and_not_listed() {
    let directory = tempdir().unwrap();
    let index = open(directory.path());
    let [torn, foreign, newer, whole] = ["torn", "foreign", "newer", "whole"].map(group);
    let text = |record| serde_json::to_string(record).unwrap();
    fs::write(index.path_of(&torn.id), &text(&torn)[..30]).unwrap();
    fs::write(index.path_of(&foreign.id), text(&whole)).unwrap();
    let later = text(&newer).replacen("\"version\":1", "\"version\":2", 1);
    fs::write(index.path_of(&newer.id), later).unwrap();
    save(&index, &whole);
    let interrupted = directory.path().join(format!(".{}.json.new", torn.id));
    fs::write(&interrupted, "{").unwrap();
    fs::write(directory.path().join(".left.json.new"), "left alone").unwrap();
    fs::write(directory.path().join("README"), "left alone").unwrap();

    let index = open(directory.path());
    for (id, part) in [(&torn.id, "malformed"), (&newer.id, "version 2"), (&foreign.id, "that of")]
    {
        assert!(index.holds(id));
        match index.get(id) {
            Err(Error::Damaged { reason, .. }) => {
                assert!(reason.contains(part), "{reason}");
                assert!(reason.contains(&index.path_of(id).display().to_string()));
            }
            other => panic!("not damaged: {other:?}"),
        }
    }
    assert_eq!(index.page_of_whole(None, 0), [whole]);
    assert!(directory.path().join("README").exists());
    assert!(directory.path().join(".left.json.new").exists());
    assert!(!interrupted.exists());
}

#[test]
fn record_saved_without_notice_is_adopted() {
    let directory = tempdir().unwrap();
    let index = open(directory.path());
    let record = group("a");
    index.adopt(&record.id).unwrap();
    assert!(!index.holds(&record.id));
    index.write_file(&record).unwrap();
    index.adopt(&record.id).unwrap();
    assert_eq!(index.get(&record.id).unwrap(), Some(record));
}

/// A link to itself stands for all that can be read later: what is wrong is not in the record.
#[test]
fn what_could_not_be_read_is_no_damage_and_is_read_again() {
    let directory = tempdir().unwrap();
    let record = group("a");
    let path = open(directory.path()).path_of(&record.id);
    std::os::unix::fs::symlink(&path, &path).unwrap();
    let index = open(directory.path());
    let error = index.get(&record.id).unwrap_err();
    assert!(!matches!(error, Error::Damaged { .. }), "{error}");
    assert!(index.holds(&record.id), "its members are not those of a lost group");
    assert_eq!(index.page_of_whole(None, 0), []);

    fs::remove_file(&path).unwrap();
    fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
    assert_eq!(index.page_of_whole(None, 0), *std::slice::from_ref(&record));
    assert_eq!(index.get(&record.id).unwrap(), Some(record));
}
