//! CSI-Addons: volumes that are handled together.

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::volumegroup as vg;
use orlop_csi::proto::volumegroup::controller_client::ControllerClient;
use orlop_model::Error;
use tonic::Code;
use tonic::transport::Channel;

use crate::plugin::{NO_GROUP, NO_VOLUME, Plugin, code, entry};
use crate::required_fields::needs;

fn groups(plugin: &Plugin) -> ControllerClient<Channel> {
    ControllerClient::new(plugin.channel())
}

fn ids(volumes: &[&v1::Volume]) -> Vec<String> {
    volumes.iter().map(|volume| volume.volume_id.clone()).collect()
}

fn create(name: &str, volumes: &[&v1::Volume]) -> vg::CreateVolumeGroupRequest {
    vg::CreateVolumeGroupRequest {
        name: name.to_owned(),
        volume_ids: ids(volumes),
        ..Default::default()
    }
}

fn modify(group: &str, volumes: &[&v1::Volume]) -> vg::ModifyVolumeGroupMembershipRequest {
    vg::ModifyVolumeGroupMembershipRequest {
        volume_group_id: group.to_owned(),
        volume_ids: ids(volumes),
        ..Default::default()
    }
}

fn delete(group: &str) -> vg::DeleteVolumeGroupRequest {
    vg::DeleteVolumeGroupRequest { volume_group_id: group.to_owned(), ..Default::default() }
}

fn get(group: &str) -> vg::ControllerGetVolumeGroupRequest {
    vg::ControllerGetVolumeGroupRequest { volume_group_id: group.to_owned(), ..Default::default() }
}

fn list(max_entries: i32, starting_token: &str) -> vg::ListVolumeGroupsRequest {
    vg::ListVolumeGroupsRequest {
        max_entries,
        starting_token: starting_token.to_owned(),
        ..Default::default()
    }
}

async fn made(plugin: &Plugin, name: &str, volumes: &[&v1::Volume]) -> vg::VolumeGroup {
    let answer = groups(plugin).create_volume_group(create(name, volumes)).await;
    answer.unwrap().into_inner().volume_group.unwrap()
}

async fn found(plugin: &Plugin, group: &str) -> vg::VolumeGroup {
    let answer = groups(plugin).controller_get_volume_group(get(group)).await;
    answer.unwrap().into_inner().volume_group.unwrap()
}

fn members(group: &vg::VolumeGroup) -> Vec<String> {
    group.volumes.iter().map(|volume| volume.volume_id.clone()).collect()
}

async fn delete_volume_code(plugin: &Plugin, volume: &v1::Volume) -> Code {
    let request =
        v1::DeleteVolumeRequest { volume_id: volume.volume_id.clone(), ..Default::default() };
    code(plugin.controller().delete_volume(request).await)
}

#[tokio::test]
async fn group_lifecycle() {
    let plugin = Plugin::start().await;
    let (a, b) = (plugin.volume("a").await, plugin.volume("b").await);
    let group = made(&plugin, "g", &[&a]).await;
    let id = &group.volume_group_id;
    assert_eq!(group.volumes, std::slice::from_ref(&a), "VG-06, VG-10");
    assert_eq!(made(&plugin, "g", &[&a]).await, group, "VG-03");
    assert_eq!(delete_volume_code(&plugin, &a).await, Code::FailedPrecondition, "VG-19");

    for _ in 0..2 {
        let request = modify(id, &[&a, &b]);
        let answer = groups(&plugin).modify_volume_group_membership(request).await.unwrap();
        let mut both = members(&answer.into_inner().volume_group.unwrap());
        let mut expected = ids(&[&a, &b]);
        both.sort_unstable();
        expected.sort_unstable();
        assert_eq!(both, expected, "VG-23, VG-24");
    }
    let refused = groups(&plugin).delete_volume_group(delete(id)).await;
    assert_eq!(code(refused), Code::FailedPrecondition, "VG-20, open point 10");

    groups(&plugin).modify_volume_group_membership(modify(id, &[&b])).await.unwrap();
    assert_eq!(members(&found(&plugin, id).await), ids(&[&b]), "VG-25, VG-34");
    assert_eq!(delete_volume_code(&plugin, &a).await, Code::Ok);
    groups(&plugin).modify_volume_group_membership(modify(id, &[])).await.unwrap();
    assert!(found(&plugin, id).await.volumes.is_empty(), "VG-26");

    for _ in 0..2 {
        assert_eq!(code(groups(&plugin).delete_volume_group(delete(id)).await), Code::Ok, "VG-15");
    }
    let gone = groups(&plugin).controller_get_volume_group(get(id)).await;
    assert_eq!(code(gone), Code::NotFound, "VG-35");
    assert_eq!(delete_volume_code(&plugin, &b).await, Code::Ok);
}

#[tokio::test]
async fn parameters_are_checked_compared_and_kept() {
    let plugin = Plugin::start().await;
    let (a, b) = (plugin.volume("a").await, plugin.volume("b").await);
    let with =
        |name: &str, parameters| vg::CreateVolumeGroupRequest { parameters, ..create(name, &[&a]) };
    let mut client = groups(&plugin);
    for (key, value) in
        [("colour", "red"), ("maxVolumes", "0"), ("maxVolumes", "1001"), ("maxVolumes", "+5")]
    {
        let refused = client.create_volume_group(with("x", entry(key, value))).await;
        assert_eq!(code(refused), Code::InvalidArgument, "VG-11: {key}={value}");
    }
    let foreign = entry("csi.storage.k8s.io/pvc/name", "x");
    let made = client.create_volume_group(with("foreign", foreign)).await.unwrap();
    let id = made.into_inner().volume_group.unwrap().volume_group_id;
    client.modify_volume_group_membership(modify(&id, &[])).await.unwrap();

    let narrow = with("narrow", entry("maxVolumes", "1"));
    let made = client.create_volume_group(narrow.clone()).await.unwrap();
    let id = made.into_inner().volume_group.unwrap().volume_group_id;
    assert_eq!(code(client.create_volume_group(narrow).await), Code::Ok);
    let wider = client.create_volume_group(with("narrow", entry("maxVolumes", "2"))).await;
    assert_eq!(code(wider), Code::AlreadyExists, "VG-12");
    let crowded = client.modify_volume_group_membership(modify(&id, &[&a, &b])).await;
    assert_eq!(code(crowded), Code::ResourceExhausted, "VG-30");
    for (value, expected) in [("1", Code::Ok), ("2", Code::InvalidArgument)] {
        let mut request = modify(&id, &[&a]);
        request.parameters = entry("maxVolumes", value);
        assert_eq!(code(client.modify_volume_group_membership(request).await), expected, "VG-32");
    }
}

#[tokio::test]
async fn every_error_has_its_code() {
    let plugin = Plugin::start().await;
    let a = plugin.volume("a").await;
    let id = made(&plugin, "g", &[&a]).await.volume_group_id;
    let mut client = groups(&plugin);
    let taken = client.create_volume_group(create("h", &[&a])).await;
    assert_eq!(code(taken), Code::FailedPrecondition, "VG-46");
    for missing in [NO_VOLUME, "fake"] {
        let mut request = create("x", &[]);
        request.volume_ids = vec![missing.to_owned()];
        assert_eq!(code(client.create_volume_group(request).await), Code::NotFound);
        let mut request = modify(&id, &[]);
        request.volume_ids = vec![missing.to_owned()];
        let answer = client.modify_volume_group_membership(request).await;
        assert_eq!(code(answer), Code::NotFound, "VG-29");
    }
    for missing in [NO_GROUP, "fake"] {
        let answer = client.modify_volume_group_membership(modify(missing, &[])).await;
        assert_eq!(code(answer), Code::NotFound, "VG-29");
        let answer = client.controller_get_volume_group(get(missing)).await;
        assert_eq!(code(answer), Code::NotFound, "VG-35");
    }
    assert_eq!(code(client.delete_volume_group(delete("fake")).await), Code::Ok, "VG-15");
    let refused = client.create_volume_group(create("a\u{1}", &[])).await;
    assert_eq!(code(refused), Code::InvalidArgument);
    plugin.pool.fail_next("save_volume_group", Error::failed("save", "EIO"));
    let failed = client.modify_volume_group_membership(modify(&id, &[])).await;
    assert_eq!(code(failed), Code::Internal, "VG-31");
    assert_eq!(members(&found(&plugin, &id).await), ids(&[&a]), "VG-31");
}

#[tokio::test]
async fn required_fields_come_first() {
    let plugin = Plugin::start().await;
    needs!(groups(&plugin), create_volume_group(create("g", &[])), [name]);
    needs!(
        groups(&plugin),
        modify_volume_group_membership(modify(NO_GROUP, &[])),
        [volume_group_id]
    );
    needs!(groups(&plugin), delete_volume_group(delete(NO_GROUP)), [volume_group_id]);
    needs!(groups(&plugin), controller_get_volume_group(get(NO_GROUP)), [volume_group_id]);
}

#[tokio::test]
async fn lists_come_in_pages() {
    let plugin = Plugin::start().await;
    let mut expected = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        expected.push(made(&plugin, name, &[]).await.volume_group_id);
    }
    expected.sort_unstable();
    let mut client = groups(&plugin);
    let mut page = async |max_entries, token: &str| {
        client.list_volume_groups(list(max_entries, token)).await.map(tonic::Response::into_inner)
    };
    let ids = |answer: &vg::ListVolumeGroupsResponse| {
        let groups = answer.entries.iter().map(|entry| entry.volume_group.as_ref().unwrap());
        groups.map(|group| group.volume_group_id.clone()).collect::<Vec<_>>()
    };
    let all = page(0, "").await.unwrap();
    assert_eq!((ids(&all), all.next_token.as_str()), (expected.clone(), ""), "VG-38, VG-41");
    let (mut token, mut seen) = (String::new(), Vec::new());
    loop {
        let answer = page(2, &token).await.unwrap();
        assert!(answer.entries.len() <= 2, "VG-39");
        seen.extend(ids(&answer));
        token = answer.next_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, expected, "VG-40");
    assert_eq!(code(page(-1, "").await), Code::InvalidArgument, "VG-42");
    assert_eq!(code(page(0, "garbage").await), Code::Aborted, "VG-43");
}
