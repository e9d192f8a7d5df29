//! ALREADY_EXISTS says what is there and what was asked for: its reader has one of the two
//! requests at most.

use orlop_engine::request::{ControllerPublish, CreateVolume, PublishVolume, StageVolume};
use orlop_model::{AccessMode, Error, FsType, Result};

use crate::bench::*;

#[track_caller]
fn tells<T>(outcome: Result<T>, words: &[&str]) {
    let Err(conflict @ Error::Conflict { .. }) = outcome.map(drop) else {
        panic!("no conflict");
    };
    let text = conflict.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
}

#[test]
fn a_volume_that_differs_is_reported_with_what_was_asked_for() {
    let bench = Bench::new();
    let source = bench.create("source");
    bench.create_as(CreateVolume {
        parameters: parameters(&[("provisioning", "thick")]),
        ..volume_of("v", FsType::Ext4)
    });
    let same = CreateVolume {
        parameters: parameters(&[("provisioning", "thick")]),
        ..volume_of("v", FsType::Ext4)
    };
    let create = |request: CreateVolume| bench.engine.create_volume(&request);
    create(same.clone()).unwrap();
    let larger = CreateVolume { range: Some(range(2 * GIB, 0)), ..same.clone() };
    tells(create(larger), &[" (\"v\") ", "1073741824 bytes", "at least 2147483648 bytes"]);
    let raw = only(block(AccessMode::SingleNodeWriter));
    let raw = CreateVolume { capabilities: raw, ..same.clone() };
    tells(create(raw), &["mount of ext4 SINGLE_NODE_WRITER", "block SINGLE_NODE_WRITER"]);
    let thin = CreateVolume { parameters: parameters(&[]), ..same.clone() };
    tells(create(thin), &["provisioning is thick", "thin is asked for"]);
    let thick = [("provisioning", "thick"), ("pool", "default")];
    let named = CreateVolume { parameters: parameters(&thick), ..same.clone() };
    tells(create(named), &["pool is not given", "default is asked for"]);
    let copy = CreateVolume { source: cloned("v", &source).source, ..same };
    tells(create(copy), &["volume_content_source is none", &format!("volume {source}")]);

    let other = bench.create("other");
    bench.snapshot("s", &source);
    let again = bench.engine.create_snapshot(&snapshot("s", &other));
    tells(again, &[&source.to_string(), &other.to_string()]);
}

#[test]
fn a_use_that_differs_is_reported_with_what_was_asked_for() {
    let bench = Bench::new();
    let id = bench.create("v");
    let published = controller_publish(&id, HERE);
    bench.engine.controller_publish(&published).unwrap();
    let read_only = ControllerPublish { read_only: true, ..published };
    let refused = bench.engine.controller_publish(&read_only);
    tells(refused, &["readonly is false, but true is asked for"]);

    bench.stage(&id);
    let flags = mount_with(None, AccessMode::SingleNodeWriter, &["noatime"], None);
    let flagged = StageVolume { capability: flags.clone(), ..stage(&id) };
    let refused = bench.engine.stage_volume(&flagged);
    assert!(!format!("{refused:?}").contains("noatime"), "mount flags are shown: {refused:?}");
    tells(refused, &["the stage of volume", STAGING, "other mount flags"]);

    bench.publish(&id);
    let read_only = PublishVolume { read_only: true, ..publish(&id, TARGET) };
    let refused = bench.engine.publish_volume(&read_only);
    tells(
        refused,
        &["the publication of volume", TARGET, "readonly is false, but true is asked for"],
    );
}
