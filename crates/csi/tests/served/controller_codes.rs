//! What the controller's calls answer, good and bad.

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use orlop_model::{Condition, HealthReason};
use tonic::Code;

use crate::plugin::{
    MIB, NO_VOLUME, NODE, Plugin, Setup, code, entry, mount, mount_of, new_volume, range,
};

type Change<Request> = fn(&mut Request);

fn from_snapshot(id: &str) -> Option<v1::VolumeContentSource> {
    let snapshot_id = id.to_owned();
    Some(v1::VolumeContentSource { r#type: Some(Type::Snapshot(SnapshotSource { snapshot_id })) })
}

fn from_volume(id: &str) -> Option<v1::VolumeContentSource> {
    let volume_id = id.to_owned();
    Some(v1::VolumeContentSource { r#type: Some(Type::Volume(VolumeSource { volume_id })) })
}

async fn create_code(plugin: &Plugin, change: impl FnOnce(&mut v1::CreateVolumeRequest)) -> Code {
    let mut request = new_volume("a");
    change(&mut request);
    code(plugin.controller().create_volume(request).await)
}

#[tokio::test]
async fn create_is_idempotent_and_compares_arguments() {
    let plugin = Plugin::start().await;
    let first = plugin.volume("a").await;
    assert_eq!(plugin.volume("a").await, first);
    assert_eq!(first.capacity_bytes, 400 * MIB);
    assert!(!first.volume_context.is_empty());

    let larger = create_code(&plugin, |r| r.capacity_range = Some(range(800 * MIB, 0))).await;
    assert_eq!(larger, Code::AlreadyExists);
    let thick = create_code(&plugin, |r| r.parameters = entry("provisioning", "thick")).await;
    assert_eq!(thick, Code::AlreadyExists);
}

#[tokio::test]
async fn illegal_values_are_refused() {
    let plugin = Plugin::start().await;
    let long = "x".repeat(129);
    let changes: [(&str, Change<v1::CreateVolumeRequest>); 9] = [
        ("control character", |r| r.name = "a\u{1}".to_owned()),
        ("empty range", |r| r.capacity_range = Some(range(0, 0))),
        ("negative range", |r| r.capacity_range = Some(range(-1, 0))),
        ("filesystem", |r| r.volume_capabilities = vec![mount(), mount_of("nosuchfs")]),
        ("parameter", |r| r.parameters = entry("colour", "red")),
        ("mutable", |r| r.mutable_parameters = entry("unknownKey", "value")),
        ("secret key", |r| r.secrets = entry("a b", "c")),
        ("source", |r| r.volume_content_source = Some(v1::VolumeContentSource::default())),
        ("topology", |r| {
            r.accessibility_requirements = Some(v1::TopologyRequirement::default());
        }),
    ];
    for (what, change) in changes {
        assert_eq!(create_code(&plugin, change).await, Code::InvalidArgument, "{what}");
    }
    assert_eq!(create_code(&plugin, |r| r.name = long).await, Code::InvalidArgument);
    let huge = create_code(&plugin, |r| r.capacity_range = Some(range(i64::MAX, 0))).await;
    assert_eq!(huge, Code::OutOfRange);
    assert!(plugin.pool_is_empty());
}

impl Plugin {
    fn pool_is_empty(&self) -> bool {
        use orlop_model::Pool;
        self.pool.catalogue().volumes(None, 0).unwrap().is_empty()
    }
}

#[tokio::test]
async fn copies_report_their_source() {
    let plugin = Plugin::start().await;
    let volume = plugin.volume("a").await;
    let snapshot = plugin.snapshot(&volume, "s").await;
    assert!(snapshot.ready_to_use && snapshot.creation_time.is_some());
    assert_eq!(snapshot.source_volume_id, volume.volume_id);

    for (name, source) in [
        ("restored", from_snapshot(&snapshot.snapshot_id)),
        ("cloned", from_volume(&volume.volume_id)),
    ] {
        let mut request = new_volume(name);
        request.volume_content_source = source;
        let made = plugin.controller().create_volume(request.clone()).await.unwrap();
        let made = made.into_inner().volume.unwrap();
        assert_eq!(made.content_source, request.volume_content_source, "VO-11");
    }
    for foreign in [from_snapshot("non-existing"), from_volume("fake"), from_volume(NO_VOLUME)] {
        let answer = create_code(&plugin, |r| {
            r.name = "orphan".to_owned();
            r.volume_content_source = foreign;
        });
        assert_eq!(answer.await, Code::NotFound);
    }
}

#[tokio::test]
async fn deleting_and_unpublishing_unknown_objects_succeeds() {
    let plugin = Plugin::start().await;
    let mut controller = plugin.controller();
    let volume_id = || "not-ours".to_owned();
    let delete = v1::DeleteVolumeRequest { volume_id: volume_id(), ..Default::default() };
    assert_eq!(code(controller.delete_volume(delete).await), Code::Ok, "DV-10");
    let unpublish = v1::ControllerUnpublishVolumeRequest {
        volume_id: volume_id(),
        node_id: "no-node".to_owned(),
        ..Default::default()
    };
    assert_eq!(code(controller.controller_unpublish_volume(unpublish).await), Code::Ok, "CU-06");
    let delete =
        v1::DeleteSnapshotRequest { snapshot_id: "not-ours".to_owned(), ..Default::default() };
    assert_eq!(code(controller.delete_snapshot(delete).await), Code::Ok, "DS-02");
}

async fn publish(
    plugin: &Plugin,
    volume_id: &str,
    node_id: &str,
    readonly: bool,
) -> Result<v1::ControllerPublishVolumeResponse, tonic::Status> {
    let request = v1::ControllerPublishVolumeRequest {
        volume_id: volume_id.to_owned(),
        node_id: node_id.to_owned(),
        volume_capability: Some(mount()),
        readonly,
        ..Default::default()
    };
    let answer = plugin.controller().controller_publish_volume(request).await;
    answer.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn publications_appear_in_lists() {
    let plugin = Plugin::start().await;
    let volume = plugin.volume("a").await;
    let id = volume.volume_id.as_str();
    let answer = publish(&plugin, id, NODE, true).await.unwrap();
    assert_eq!(answer.publish_context, entry("readonly", "true"));
    assert_eq!(code(publish(&plugin, id, NODE, true).await), Code::Ok, "CP-04");
    assert_eq!(code(publish(&plugin, id, NODE, false).await), Code::AlreadyExists, "CP-14");
    assert_eq!(code(publish(&plugin, "fake", NODE, false).await), Code::NotFound, "CP-12");

    let listed = plugin.controller().list_volumes(v1::ListVolumesRequest::default()).await;
    let entry = listed.unwrap().into_inner().entries.remove(0);
    assert_eq!(entry.volume.unwrap().volume_id, id);
    let status = entry.status.unwrap();
    assert_eq!(status.published_node_ids, [NODE]);
    assert!(!status.volume_condition.unwrap().message.is_empty());

    let request = v1::ControllerGetVolumeRequest { volume_id: id.to_owned() };
    let got = plugin.controller().controller_get_volume(request).await.unwrap();
    assert_eq!(got.into_inner().status.unwrap().published_node_ids, [NODE]);
}

#[tokio::test]
async fn a_damaged_volume_is_listed_with_a_short_reason() {
    let plugin = Plugin::start().await;
    let id = plugin.volume("a").await.volume_id;
    plugin.pool.damage_volume(&id.parse().unwrap(), &"its record is scorched ".repeat(20));
    let listed = plugin.controller().list_volumes(v1::ListVolumesRequest::default()).await;
    let entry = listed.unwrap().into_inner().entries.remove(0);
    assert_eq!(entry.volume.unwrap().volume_id, id);
    let condition = entry.status.unwrap().volume_condition.unwrap();
    assert!(condition.abnormal && condition.message.len() <= 128);
}

#[tokio::test]
async fn lists_come_in_pages() {
    let plugin = Plugin::start().await;
    for name in ["a", "b", "c"] {
        plugin.volume(name).await;
    }
    let page = async |max_entries: i32, starting_token: &str| {
        let request =
            v1::ListVolumesRequest { max_entries, starting_token: starting_token.to_owned() };
        plugin.controller().list_volumes(request).await.map(tonic::Response::into_inner)
    };
    let first = page(2, "").await.unwrap();
    assert_eq!(first.entries.len(), 2);
    let last = page(2, &first.next_token).await.unwrap();
    assert_eq!((last.entries.len(), last.next_token.as_str()), (1, ""));
    assert_eq!(page(0, "").await.unwrap().entries.len(), 3);
    assert_eq!(code(page(-1, "").await), Code::InvalidArgument, "LV-06");
    assert_eq!(code(page(0, "invalid-token").await), Code::Aborted, "LV-09");
}

#[tokio::test]
async fn snapshots_are_found_by_filters() {
    let plugin = Plugin::start().await;
    let (a, b) = (plugin.volume("a").await, plugin.volume("b").await);
    let of_a = plugin.snapshot(&a, "of-a").await;
    plugin.snapshot(&b, "of-b").await;
    let count = async |snapshot_id: &str, source_volume_id: &str| {
        let request = v1::ListSnapshotsRequest {
            snapshot_id: snapshot_id.to_owned(),
            source_volume_id: source_volume_id.to_owned(),
            ..Default::default()
        };
        let answer = plugin.controller().list_snapshots(request).await.unwrap();
        answer.into_inner().entries.len()
    };
    assert_eq!(count("", "").await, 2);
    assert_eq!(count(&of_a.snapshot_id, "").await, 1);
    assert_eq!(count("", &a.volume_id).await, 1);
    assert_eq!(count(&of_a.snapshot_id, &b.volume_id).await, 0, "LS-16");
    assert_eq!(count("none-exist-id", "").await, 0, "LS-15");
    assert_eq!(count("", "none-exist-id").await, 0, "LS-14");

    for (max_entries, token, expected) in
        [(-1, "", Code::InvalidArgument), (0, "garbage", Code::Aborted)]
    {
        let request = v1::ListSnapshotsRequest {
            max_entries,
            starting_token: token.to_owned(),
            ..Default::default()
        };
        assert_eq!(code(plugin.controller().list_snapshots(request).await), expected);
    }
    let request = v1::GetSnapshotRequest {
        snapshot_id: "reallyfakesnapshotid".to_owned(),
        ..Default::default()
    };
    assert_eq!(code(plugin.controller().get_snapshot(request).await), Code::NotFound);
}

#[tokio::test]
async fn snapshot_refuses_parameters_and_another_source() {
    let plugin = Plugin::start().await;
    let (a, b) = (plugin.volume("a").await, plugin.volume("b").await);
    plugin.snapshot(&a, "s").await;
    let snapshot = |source: &v1::Volume, parameters| v1::CreateSnapshotRequest {
        source_volume_id: source.volume_id.clone(),
        name: "s".to_owned(),
        parameters,
        ..Default::default()
    };
    let mut controller = plugin.controller();
    let other_source = controller.create_snapshot(snapshot(&b, [].into())).await;
    assert_eq!(code(other_source), Code::AlreadyExists, "CS-14");
    let unknown = controller.create_snapshot(snapshot(&a, entry("colour", "red"))).await;
    assert_eq!(code(unknown), Code::InvalidArgument, "CS-13");
    let foreign = entry("csi.storage.k8s.io/volumesnapshot/name", "x");
    assert_eq!(code(controller.create_snapshot(snapshot(&a, foreign)).await), Code::Ok);
}

async fn validate(
    plugin: &Plugin,
    volume: &v1::Volume,
    change: impl FnOnce(&mut v1::ValidateVolumeCapabilitiesRequest),
) -> Result<v1::ValidateVolumeCapabilitiesResponse, tonic::Status> {
    let mut request = v1::ValidateVolumeCapabilitiesRequest {
        volume_id: volume.volume_id.clone(),
        volume_context: volume.volume_context.clone(),
        volume_capabilities: vec![mount()],
        ..Default::default()
    };
    change(&mut request);
    let answer = plugin.controller().validate_volume_capabilities(request).await;
    answer.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn validation_confirms_what_it_checked() {
    let plugin = Plugin::start().await;
    let volume = plugin.volume("a").await;
    let answer = validate(&plugin, &volume, |r| {
        r.parameters = entry("provisioning", "thin");
        r.mutable_parameters = entry("readIops", "5");
    });
    let confirmed = answer.await.unwrap().confirmed.expect("VC-03");
    assert_eq!(confirmed.volume_context, volume.volume_context);
    assert_eq!(confirmed.volume_capabilities.len(), 1);
    assert_eq!(confirmed.parameters, entry("provisioning", "thin"));
    assert_eq!(confirmed.mutable_parameters, entry("readIops", "5"));
}

#[tokio::test]
async fn unsupported_capability_is_not_confirmed_with_ok() {
    let plugin = Plugin::start().await;
    let volume = plugin.volume("a").await;
    let changes: [(&str, Change<v1::ValidateVolumeCapabilitiesRequest>); 6] = [
        ("filesystem", |r| r.volume_capabilities.push(mount_of("nosuchfs"))),
        ("two filesystems", |r| {
            r.volume_capabilities = vec![mount_of("xfs"), mount_of("ext4")];
        }),
        ("parameters", |r| r.parameters = entry("colour", "red")),
        ("other parameters", |r| r.parameters = entry("provisioning", "thick")),
        ("mutable", |r| r.mutable_parameters = entry("colour", "red")),
        ("context", |r| r.volume_context = entry("pool", "other")),
    ];
    for (what, change) in changes {
        let answer = validate(&plugin, &volume, change).await.unwrap();
        assert!(answer.confirmed.is_none(), "{what}");
        assert!(!answer.message.is_empty() && answer.message.len() <= 128, "{what}");
    }
    // VC-10 comes before any "no", and half a capability is not even a question.
    let missing = validate(&plugin, &volume, |r| {
        r.volume_id = NO_VOLUME.to_owned();
        r.volume_capabilities = vec![mount_of("nosuchfs")];
    });
    assert_eq!(code(missing.await), Code::NotFound);
    let half = validate(&plugin, &volume, |r| r.volume_capabilities[0].access_type = None);
    assert_eq!(code(half.await), Code::InvalidArgument);
}

#[tokio::test]
async fn capacity_shrinks_with_each_volume() {
    let plugin = Plugin::start().await;
    let capacity = async || {
        let answer = plugin.controller().get_capacity(v1::GetCapacityRequest::default()).await;
        answer.unwrap().into_inner()
    };
    let before = capacity().await;
    plugin.volume("a").await;
    let after = capacity().await;
    let promised = before.available_capacity - after.available_capacity;
    // It is reported in steps of up to a GiB.
    assert!((400 * MIB..=1424 * MIB).contains(&promised), "{promised}");
    assert!(after.maximum_volume_size > after.minimum_volume_size);

    let malformed = v1::GetCapacityRequest {
        accessible_topology: Some(v1::Topology { segments: entry("Zone_", "a") }),
        ..Default::default()
    };
    assert_eq!(code(plugin.controller().get_capacity(malformed).await), Code::InvalidArgument);
}

/// An orchestrator that sees no capacity never sends the CreateVolume whose error says what is wrong.
#[tokio::test]
async fn capacity_ignores_invalid_class_parameters() {
    let plugin = Plugin::start().await;
    let ask = async |key: &str, value: &str| {
        let parameters = entry(key, value);
        let request = v1::GetCapacityRequest { parameters, ..Default::default() };
        plugin.controller().get_capacity(request).await
    };
    let usual = ask("provisioning", "thin").await.unwrap().into_inner();
    assert!(usual.available_capacity > 0);
    for (key, value) in [
        ("colour", "red"),
        ("fsType", "ext4"),
        ("provisioning", "thinn"),
        ("mkfsOptions", "--all"),
        ("readIops", "many"),
        ("pool", "no pool has blanks"),
    ] {
        assert_eq!(ask(key, value).await.unwrap().into_inner(), usual, "{key}");
        let refused = create_code(&plugin, |r| r.parameters = entry(key, value)).await;
        assert_eq!(refused, Code::InvalidArgument, "{key}");
    }
    // It may be a pool of another node.
    let elsewhere = ask("pool", "elsewhere").await.unwrap().into_inner();
    assert_eq!(elsewhere.available_capacity, 0);
}

#[tokio::test]
async fn expand_and_modify_change_the_volume() {
    let plugin = Plugin::start().await;
    let volume_id = plugin.volume("a").await.volume_id;
    let expand = |capacity_range| v1::ControllerExpandVolumeRequest {
        volume_id: volume_id.clone(),
        capacity_range: Some(capacity_range),
        ..Default::default()
    };
    let mut controller = plugin.controller();
    let grown = controller.controller_expand_volume(expand(range(800 * MIB, 0))).await;
    assert_eq!(grown.unwrap().into_inner().capacity_bytes, 800 * MIB);
    let empty = controller.controller_expand_volume(expand(range(0, 0))).await;
    assert_eq!(code(empty), Code::InvalidArgument, "CR-01");

    let modify = |key: &str| v1::ControllerModifyVolumeRequest {
        volume_id: volume_id.clone(),
        mutable_parameters: entry(key, "100"),
        ..Default::default()
    };
    assert_eq!(code(controller.controller_modify_volume(modify("readIops")).await), Code::Ok);
    let unknown = controller.controller_modify_volume(modify("colour")).await;
    assert_eq!(code(unknown), Code::InvalidArgument, "MV-06");
}

#[tokio::test]
async fn without_attaching_no_nodes_are_listed() {
    let plugin = Plugin::with(Setup { attach: false, ..Setup::default() }).await;
    let id = plugin.volume("a").await.volume_id.parse().unwrap();
    plugin.pool.set_condition(&id, Condition::abnormal(HealthReason::PoolFull, "below the floor"));
    let listed = plugin.controller().list_volumes(v1::ListVolumesRequest::default()).await;
    let status = listed.unwrap().into_inner().entries.remove(0).status.unwrap();
    assert!(status.published_node_ids.is_empty());
    assert_eq!(status.volume_condition.unwrap().message, "below the floor");
}
