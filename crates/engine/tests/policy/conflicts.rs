//! ALREADY_EXISTS says what exists and what was asked for: its reader has seen one of the two
//! requests at most.

use orlop_engine::request::{ControllerPublish, CreateVolume, PublishVolume, StageVolume};
use orlop_model::{AccessMode, Error, FsType, Result};

use crate::fixture::*;

#[track_caller]
fn assert_message<T>(outcome: Result<T>, words: &[&str]) {
    let Err(conflict @ Error::Conflict { .. }) = outcome.map(drop) else {
        panic!("no conflict");
    };
    let text = conflict.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
}

#[test]
fn volume_conflict_states_actual_and_requested_values() {
    let fixture = Fixture::new();
    let source = fixture.create("source");
    fixture.create_as(CreateVolume {
        parameters: parameters(&[("provisioning", "thick")]),
        ..volume_of("v", FsType::Ext4)
    });
    let same = CreateVolume {
        parameters: parameters(&[("provisioning", "thick")]),
        ..volume_of("v", FsType::Ext4)
    };
    let create = |request: CreateVolume| fixture.engine.create_volume(&request);
    create(same.clone()).unwrap();
    let larger = CreateVolume { range: Some(range(2 * GIB, 0)), ..same.clone() };
    assert_message(create(larger), &[" (\"v\") ", "1073741824 bytes", "at least 2147483648 bytes"]);
    let raw = only(block(AccessMode::SingleNodeWriter));
    let raw = CreateVolume { capabilities: raw, ..same.clone() };
    assert_message(create(raw), &["mount of ext4 SINGLE_NODE_WRITER", "block SINGLE_NODE_WRITER"]);
    let thin = CreateVolume { parameters: parameters(&[]), ..same.clone() };
    assert_message(create(thin), &["provisioning is thick", "thin is asked for"]);
    let thick = [("provisioning", "thick"), ("pool", "default")];
    let named = CreateVolume { parameters: parameters(&thick), ..same.clone() };
    assert_message(create(named), &["pool is not given", "default is asked for"]);
    let copy = CreateVolume { source: cloned("v", &source).source, ..same };
    assert_message(create(copy), &["volume_content_source is none", &format!("volume {source}")]);

    let other = fixture.create("other");
    fixture.snapshot("s", &source);
    let again = fixture.engine.create_snapshot(&snapshot("s", &other));
    assert_message(again, &[&source.to_string(), &other.to_string()]);
}

#[test]
fn use_conflict_states_actual_and_requested_values() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    let published = controller_publish(&id, HERE);
    fixture.engine.controller_publish(&published).unwrap();
    let read_only = ControllerPublish { read_only: true, ..published };
    let answer = fixture.engine.controller_publish(&read_only);
    assert_message(answer, &["readonly is false, but true is asked for"]);

    fixture.stage(&id);
    let flags = mount_with(None, AccessMode::SingleNodeWriter, &["noatime"], None);
    let flagged = StageVolume { capability: flags.clone(), ..stage(&id) };
    let answer = fixture.engine.stage_volume(&flagged);
    assert!(!format!("{answer:?}").contains("noatime"), "mount flags are shown: {answer:?}");
    assert_message(answer, &["the stage of volume", STAGING, "other mount flags"]);

    fixture.publish(&id);
    let read_only = PublishVolume { read_only: true, ..publish(&id, TARGET) };
    let answer = fixture.engine.publish_volume(&read_only);
    assert_message(
        answer,
        &["the publication of volume", TARGET, "readonly is false, but true is asked for"],
    );
}
