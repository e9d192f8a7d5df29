//! Several volumes, one instant.

use orlop_csi::Mode;
use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::group_controller_client::GroupControllerClient;
use orlop_model::{Error, Pool};
use tonic::Code;
use tonic::transport::Channel;

use crate::plugin::{NO_GROUP_SNAPSHOT, NO_VOLUME, Plugin, Setup, code, entry, new_volume};
use crate::required_fields::needs;

fn groups(plugin: &Plugin) -> GroupControllerClient<Channel> {
    GroupControllerClient::new(plugin.channel())
}

fn create(name: &str, sources: &[&str]) -> v1::CreateVolumeGroupSnapshotRequest {
    v1::CreateVolumeGroupSnapshotRequest {
        name: name.to_owned(),
        source_volume_ids: sources.iter().map(ToString::to_string).collect(),
        ..Default::default()
    }
}

fn delete(id: &str, members: &[String]) -> v1::DeleteVolumeGroupSnapshotRequest {
    v1::DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: id.to_owned(),
        snapshot_ids: members.to_vec(),
        ..Default::default()
    }
}

fn get(id: &str, members: &[String]) -> v1::GetVolumeGroupSnapshotRequest {
    v1::GetVolumeGroupSnapshotRequest {
        group_snapshot_id: id.to_owned(),
        snapshot_ids: members.to_vec(),
        ..Default::default()
    }
}

fn members(group: &v1::VolumeGroupSnapshot) -> Vec<String> {
    group.snapshots.iter().map(|snapshot| snapshot.snapshot_id.clone()).collect()
}

async fn made(plugin: &Plugin, name: &str, sources: &[&str]) -> v1::VolumeGroupSnapshot {
    let answer = groups(plugin).create_volume_group_snapshot(create(name, sources)).await;
    answer.unwrap().into_inner().group_snapshot.unwrap()
}

#[tokio::test]
async fn group_lifecycle() {
    let plugin = Plugin::start().await;
    let (a, b) = (plugin.volume("a").await.volume_id, plugin.volume("b").await.volume_id);
    let group = made(&plugin, "g", &[&b, &a]).await;
    assert!(group.ready_to_use && group.creation_time.is_some(), "GG-21, GG-22");
    let mut sources: Vec<_> = group.snapshots.iter().map(|s| s.source_volume_id.as_str()).collect();
    sources.sort_unstable();
    let mut expected = [a.as_str(), b.as_str()];
    expected.sort_unstable();
    assert_eq!(sources, expected, "GG-20");
    assert!(group.snapshots.iter().all(|s| s.group_snapshot_id == group.group_snapshot_id));

    assert_eq!(made(&plugin, "g", &[&a, &b, &a]).await, group, "GG-06");
    let mut shuffled = members(&group);
    shuffled.reverse();
    let id = &group.group_snapshot_id;
    let found = groups(&plugin).get_volume_group_snapshot(get(id, &shuffled)).await.unwrap();
    assert_eq!(found.into_inner().group_snapshot.unwrap(), group, "GG-46");

    let listed = plugin.controller().list_snapshots(v1::ListSnapshotsRequest::default()).await;
    let listed = listed.unwrap().into_inner().entries;
    assert!(listed.iter().all(|e| e.snapshot.as_ref().unwrap().group_snapshot_id == *id));
    assert_eq!(listed.len(), 2);

    for _ in 0..2 {
        let gone = groups(&plugin).delete_volume_group_snapshot(delete(id, &shuffled)).await;
        assert_eq!(code(gone), Code::Ok, "GG-31, GG-32");
    }
    assert!(plugin.pool.catalogue().snapshots(None, 0).unwrap().is_empty());
    let gone = groups(&plugin).get_volume_group_snapshot(get(id, &shuffled)).await;
    assert_eq!(code(gone), Code::NotFound, "GG-40");
}

#[tokio::test]
async fn member_can_be_restored_but_not_deleted_alone() {
    let plugin = Plugin::start().await;
    let a = plugin.volume("a").await.volume_id;
    let member = members(&made(&plugin, "g", &[&a]).await).remove(0);
    let request = v1::DeleteSnapshotRequest { snapshot_id: member.clone(), ..Default::default() };
    let refused = plugin.controller().delete_snapshot(request).await;
    assert_eq!(code(refused), Code::InvalidArgument, "DS-04");
    use v1::volume_content_source::{SnapshotSource, Type};
    let source = Type::Snapshot(SnapshotSource { snapshot_id: member });
    let mut request = new_volume("restored");
    request.volume_content_source = Some(v1::VolumeContentSource { r#type: Some(source) });
    plugin.controller().create_volume(request).await.unwrap();
}

#[tokio::test]
async fn response_metadata_states_the_consistency() {
    let plugin = Plugin::start().await;
    let volume = plugin.volume("a").await;
    let other = plugin.volume("b").await;
    let request = v1::CreateSnapshotRequest {
        source_volume_id: volume.volume_id.clone(),
        name: "s".to_owned(),
        ..Default::default()
    };
    let answer = plugin.controller().create_snapshot(request).await.unwrap();
    let consistency =
        answer.metadata().get("orlop-consistency").unwrap().to_str().unwrap().to_owned();
    let id = answer.into_inner().snapshot.unwrap().snapshot_id;
    assert_eq!(consistency, format!("{id}=filesystem"));

    let request = create("g", &[&volume.volume_id, &other.volume_id]);
    let answer = groups(&plugin).create_volume_group_snapshot(request).await.unwrap();
    let consistency: Vec<_> = answer
        .metadata()
        .get_all("orlop-consistency")
        .iter()
        .map(|value| value.to_str().unwrap().to_owned())
        .collect();
    let group = answer.into_inner().group_snapshot.unwrap();
    let expected: Vec<_> = members(&group).iter().map(|id| format!("{id}=filesystem")).collect();
    assert_eq!(consistency, expected);
}

#[tokio::test]
async fn large_group_reports_the_weakest_consistency() {
    let plugin = Plugin::start().await;
    let mut ids = Vec::new();
    for number in 0..70 {
        ids.push(plugin.volume(&format!("v{number}")).await.volume_id);
    }
    let sources: Vec<_> = ids.iter().map(String::as_str).collect();
    let answer = groups(&plugin).create_volume_group_snapshot(create("g", &sources)).await.unwrap();
    let consistency: Vec<_> = answer
        .metadata()
        .get_all("orlop-consistency")
        .iter()
        .map(|value| value.to_str().unwrap().to_owned())
        .collect();
    let id = answer.into_inner().group_snapshot.unwrap().group_snapshot_id;
    assert_eq!(consistency, [format!("{id}=filesystem")]);
}

#[tokio::test]
async fn every_error_has_its_code() {
    let plugin = Plugin::start().await;
    let (a, b) = (plugin.volume("a").await.volume_id, plugin.volume("b").await.volume_id);
    let mut client = groups(&plugin);
    let group = made(&plugin, "g", &[&a]).await;
    let mut answer = async |request| code(client.create_volume_group_snapshot(request).await);
    assert_eq!(answer(create("g", &[&a, &b])).await, Code::AlreadyExists, "GG-26");
    assert_eq!(answer(create("a\u{7f}", &[&a])).await, Code::InvalidArgument, "GG-15");
    assert_eq!(answer(create("x", &["", &a])).await, Code::InvalidArgument);
    assert_eq!(answer(create("x", &["fake", ""])).await, Code::InvalidArgument, "open point 8");
    for missing in ["fake-id", NO_VOLUME] {
        assert_eq!(answer(create("x", &[&a, missing])).await, Code::NotFound, "GG-29");
    }
    let foreign = entry("csi.storage.k8s.io/volumegroupsnapshot/name", "x");
    let request = |parameters| v1::CreateVolumeGroupSnapshotRequest {
        parameters,
        ..create("parametrised", &[&a])
    };
    assert_eq!(answer(request(entry("colour", "red"))).await, Code::InvalidArgument, "GG-17");
    assert_eq!(answer(request(foreign)).await, Code::Ok);
    plugin.pool.fail_next("begin_group_snapshot", Error::exhausted("full".to_owned()));
    assert_eq!(answer(create("full", &[&a])).await, Code::ResourceExhausted, "GG-28");

    let id = &group.group_snapshot_id;
    let wrong = [NO_VOLUME.to_owned()];
    let deleted = client.delete_volume_group_snapshot(delete(id, &wrong)).await;
    assert_eq!(code(deleted), Code::InvalidArgument, "GG-35, GG-36");
    let found = client.get_volume_group_snapshot(get(id, &wrong)).await;
    assert_eq!(code(found), Code::InvalidArgument, "GG-43, GG-44");
}

#[tokio::test]
async fn failed_member_leaves_no_group() {
    let plugin = Plugin::start().await;
    let (a, b) = (plugin.volume("a").await.volume_id, plugin.volume("b").await.volume_id);
    plugin.pool.fail_next("capture", Error::failed("capture", "EIO"));
    let failed = groups(&plugin).create_volume_group_snapshot(create("g", &[&a, &b])).await;
    assert_eq!(code(failed), Code::Internal, "GG-09");
    assert!(plugin.pool.catalogue().snapshots(None, 0).unwrap().is_empty(), "GG-10");
    made(&plugin, "g", &[&a, &b]).await;
}

#[tokio::test]
async fn required_fields_come_before_not_found() {
    let plugin = Plugin::start().await;
    let one = || vec!["s".to_owned()];
    needs!(
        groups(&plugin),
        create_volume_group_snapshot(create("g", &[NO_VOLUME])),
        [name, source_volume_ids]
    );
    needs!(
        groups(&plugin),
        delete_volume_group_snapshot(delete(NO_GROUP_SNAPSHOT, &one())),
        [group_snapshot_id, snapshot_ids]
    );
    needs!(
        groups(&plugin),
        get_volume_group_snapshot(get(NO_GROUP_SNAPSHOT, &one())),
        [group_snapshot_id, snapshot_ids]
    );
    let mut client = groups(&plugin);
    for members in [one(), Vec::new()] {
        let deleted = client.delete_volume_group_snapshot(delete("fake", &members)).await;
        assert_eq!(code(deleted), Code::Ok, "GG-32");
        let found = client.get_volume_group_snapshot(get("fake", &members)).await;
        assert_eq!(code(found), Code::NotFound, "GG-40");
    }
}

#[tokio::test]
async fn group_snapshots_are_served_by_the_controller_only() {
    use v1::group_controller_service_capability::{Type, rpc};
    let ask = async |plugin: &Plugin| {
        let request = v1::GroupControllerGetCapabilitiesRequest {};
        groups(plugin).group_controller_get_capabilities(request).await
    };
    let answer = ask(&Plugin::start().await).await.unwrap().into_inner();
    let offered: Vec<_> = answer
        .capabilities
        .into_iter()
        .map(|each| match each.r#type {
            Some(Type::Rpc(rpc)) => rpc.r#type(),
            None => rpc::Type::Unknown,
        })
        .collect();
    assert_eq!(offered, [rpc::Type::CreateDeleteGetVolumeGroupSnapshot], "GG-03");
    let node = Plugin::with(Setup { mode: Mode::Node, ..Setup::default() }).await;
    assert_eq!(code(ask(&node).await), Code::Unimplemented);
}
