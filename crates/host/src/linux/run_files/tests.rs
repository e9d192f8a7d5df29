use std::os::unix::fs::PermissionsExt;

use orlop_model::{
    AccessMode, AccessType, NameDigest, PoolId, Publication, Stage, TargetPath, VolumeCapability,
};
use tempfile::TempDir;

use super::*;

fn records() -> (NodeRecords, TempDir) {
    let scratch = tempfile::tempdir().unwrap();
    (NodeRecords::new(scratch.path().to_owned()), scratch)
}

fn id(name: &str) -> VolumeId {
    VolumeId::new(PoolId::from_random([7; 4]), NameDigest::of_text(name))
}

fn record() -> NodeRecord {
    let capability =
        VolumeCapability { access: AccessType::Block, mode: AccessMode::SingleNodeWriter };
    let path = |text| TargetPath::parse("path", text).unwrap();
    NodeRecord {
        stage: Some(Stage {
            path: path("/stage"),
            capability: capability.clone(),
            read_only: false,
            encrypted: false,
        }),
        publications: vec![Publication {
            target: path("/target"),
            capability,
            read_only: true,
            target_made: true,
        }],
    }
}

#[test]
fn a_record_is_kept_until_it_is_empty() {
    let (records, scratch) = records();
    let id = id("a");
    assert_eq!(records.read(&id).unwrap(), NodeRecord::default());
    for _ in 0..2 {
        records.save(&id, &record()).unwrap();
        assert_eq!(records.read(&id).unwrap(), record());
    }
    let file = scratch.path().join(format!("{id}.json"));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for _ in 0..2 {
        records.save(&id, &NodeRecord::default()).unwrap();
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}

#[test]
fn list_contains_only_volume_records() {
    let (records, scratch) = records();
    let mut ids = vec![id("a"), id("b"), id("c")];
    for id in &ids {
        records.save(id, &record()).unwrap();
    }
    let temporary = format!(".{}.json.new", id("d"));
    for stray in [&temporary, "notes.json", "v-x.json", "README"] {
        std::fs::write(scratch.path().join(stray), "{").unwrap();
    }
    ids.sort();
    assert_eq!(records.ids().unwrap(), ids);
}

#[test]
fn damaged_record_is_an_error() {
    let (records, scratch) = records();
    let id = id("a");
    for contents in ["", "{\"stage\":", "[]"] {
        std::fs::write(scratch.path().join(format!("{id}.json")), contents).unwrap();
        let error = records.read(&id).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{contents:?}: {error}");
    }
    assert_eq!(records.ids().unwrap(), [id]);
}

#[test]
fn error_says_what_helps_when_the_run_directory_is_gone() {
    let (records, scratch) = records();
    drop(scratch);
    let error = records.save(&id("a"), &record()).unwrap_err().to_string();
    assert!(error.contains("was removed; restart the daemon"), "{error}");
}
