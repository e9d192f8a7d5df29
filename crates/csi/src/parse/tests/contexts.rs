use orlop_model::{IoLimits, Provisioning};

use super::super::*;
use super::*;

#[test]
fn publish_context_round_trips() {
    let attached = features(true, true);
    let read_only = |value: &str| publish_context(&map(&[("readonly", value)]), &attached);
    assert!(read_only("true").unwrap().read_only);
    assert!(!read_only("false").unwrap().read_only);
    assert!(!publish_context(&map(&[]), &attached).unwrap().read_only);
    for bad in [
        map(&[("readonly", "yes")]),
        map(&[("readonly", "")]),
        map(&[("device", "/dev/mock")]),
        map(&[("readonly", "true"), ("device", "x")]),
    ] {
        assert!(is_invalid(&publish_context(&bad, &attached)));
    }
}

#[test]
fn no_publish_context_without_attach() {
    let detached = features(false, true);
    assert!(publish_context(&map(&[]), &detached).is_ok());
    assert!(is_invalid(&publish_context(&map(&[("readonly", "false")]), &detached)));
}

#[test]
fn mutable_parameters_need_working_limits() {
    let wanted = map(&[("readIops", "100")]);
    assert!(!mutable_parameters(&wanted, &features(true, true)).unwrap().is_empty());
    assert!(is_invalid(&mutable_parameters(&wanted, &features(true, false))));
    assert!(is_invalid(&volume_parameters(&wanted, &features(true, false))));
    assert!(mutable_parameters(&map(&[]), &features(true, false)).unwrap().is_empty());
}

#[test]
fn error_names_the_offending_field() {
    let unknown = map(&[("unknownKey", "value")]);
    let error = mutable_parameters(&unknown, &features(true, true)).unwrap_err();
    assert!(error.to_string().starts_with("mutable_parameters: "), "{error}");
    let error = volume_parameters(&unknown, &features(true, true)).unwrap_err();
    assert!(error.to_string().starts_with("parameters: "), "{error}");
}

#[test]
fn snapshot_parameters_must_be_the_orchestrators() {
    let foreign = map(&[("csi.storage.k8s.io/volumesnapshot/name", "x")]);
    assert!(check_snapshot_parameters(&foreign).is_ok());
    assert!(is_invalid(&check_snapshot_parameters(&map(&[("pool", "fast")]))));
}

fn inline(
    entries: &[(&str, &str)],
) -> orlop_model::Result<Option<orlop_engine::request::InlineVolume>> {
    let mut context = map(entries);
    context.insert("csi.storage.k8s.io/ephemeral".to_owned(), "true".to_owned());
    context.insert("csi.storage.k8s.io/pod.name".to_owned(), "web-0".to_owned());
    inline_volume(&context, &features(true, true))
}

#[test]
fn only_an_ephemeral_context_makes_an_inline_volume() {
    for context in [
        map(&[]),
        map(&[("csi.storage.k8s.io/ephemeral", "false"), ("size", "what")]),
        map(&[("size", "1Gi")]),
    ] {
        assert!(inline_volume(&context, &features(true, true)).unwrap().is_none());
    }
    assert!(inline(&[]).unwrap().unwrap().range.is_none());
}

#[test]
fn an_inline_volume_has_a_size_and_parameters() {
    let volume = inline(&[("size", "1Gi"), ("provisioning", "thick"), ("writeIops", "50")]);
    let volume = volume.unwrap().unwrap();
    assert_eq!(volume.range.unwrap().required(), 1 << 30);
    assert_eq!(volume.parameters.provisioning, Provisioning::Thick);
    let limits = volume.limits.applied_to(IoLimits::default());
    assert_eq!(limits.write_iops, Some(50));

    for bad in [("size", "1 Gi"), ("size", "0"), ("colour", "red")] {
        let error = inline(&[bad]).unwrap_err().to_string();
        assert!(error.starts_with("volume_context: "), "{error}");
    }
}
