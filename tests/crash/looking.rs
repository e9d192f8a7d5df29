//! Calls that change nothing.

use std::collections::BTreeSet;

use orlop_tests::identity::identity_client::IdentityClient;
use orlop_tests::volumegroup::controller_client::ControllerClient;
use orlop_tests::{Answer, Client, Code, block, identity, v1, volumegroup};

use crate::world::World;

/// Each of them, and that it was answered.
#[derive(Default)]
struct Looks(BTreeSet<&'static str>);

impl Looks {
    fn took<T>(&mut self, call: &'static str, answer: Answer<T>) {
        match answer {
            Ok(_) => {}
            // Of something that is not there, it looks all the same.
            Err(status) => assert_eq!(status.code(), Code::NotFound, "{call}: {status}"),
        }
        self.0.insert(call);
    }
}

/// Makes them all, and tells which they were.
pub(crate) async fn all(world: &World) -> BTreeSet<&'static str> {
    let mut looks = Looks::default();
    let client = world.client();
    at_identity(client, &mut looks).await;
    at_controller(world, &mut looks).await;
    at_snapshots(world, &mut looks).await;
    at_node(world, &mut looks).await;
    at_addons(client, &mut looks).await;
    looks.0
}

async fn at_identity(client: &Client, looks: &mut Looks) {
    let mut plugin = client.identity();
    let answer = plugin.get_plugin_info(v1::GetPluginInfoRequest::default()).await;
    looks.took("csi.v1.Identity/GetPluginInfo", answer);
    let request = v1::GetPluginCapabilitiesRequest::default();
    let answer = plugin.get_plugin_capabilities(request).await;
    looks.took("csi.v1.Identity/GetPluginCapabilities", answer);
    looks.took("csi.v1.Identity/Probe", client.probe().await);
}

async fn at_controller(world: &World, looks: &mut Looks) {
    let client = world.client();
    let volume = &world.bystander().node.id;
    let request = v1::ValidateVolumeCapabilitiesRequest {
        volume_id: volume.clone(),
        volume_capabilities: vec![block()],
        ..Default::default()
    };
    let answer = client.controller().validate_volume_capabilities(request).await;
    looks.took("csi.v1.Controller/ValidateVolumeCapabilities", answer);
    let request = v1::ControllerGetCapabilitiesRequest::default();
    let answer = client.controller().controller_get_capabilities(request).await;
    looks.took("csi.v1.Controller/ControllerGetCapabilities", answer);
    looks.took("csi.v1.Controller/ListVolumes", client.list_volumes().await);
    looks.took("csi.v1.Controller/GetCapacity", client.capacity().await);
    looks.took("csi.v1.Controller/ControllerGetVolume", client.get_volume(volume).await);
}

async fn at_snapshots(world: &World, looks: &mut Looks) {
    let client = world.client();
    let snapshot = world.bystander().snapshot.clone();
    looks.took("csi.v1.Controller/ListSnapshots", client.list_snapshots().await);
    let request = v1::GetSnapshotRequest { snapshot_id: snapshot.clone(), ..Default::default() };
    let answer = client.controller().get_snapshot(request).await;
    looks.took("csi.v1.Controller/GetSnapshot", answer);
    let request = v1::GroupControllerGetCapabilitiesRequest::default();
    let answer = client.group_controller().group_controller_get_capabilities(request).await;
    looks.took("csi.v1.GroupController/GroupControllerGetCapabilities", answer);
    let answer = client.get_group_snapshot("g-none", std::slice::from_ref(&snapshot)).await;
    looks.took("csi.v1.GroupController/GetVolumeGroupSnapshot", answer);

    let request =
        v1::GetMetadataAllocatedRequest { snapshot_id: snapshot.clone(), ..Default::default() };
    let mut stream = client.snapshot_metadata().get_metadata_allocated(request).await;
    let answer = stream.as_mut().expect("a stream").get_mut().message().await;
    looks.took("csi.v1.SnapshotMetadata/GetMetadataAllocated", answer);
    let request = v1::GetMetadataDeltaRequest {
        base_snapshot_id: snapshot.clone(),
        target_snapshot_id: snapshot,
        ..Default::default()
    };
    let mut stream = client.snapshot_metadata().get_metadata_delta(request).await;
    let answer = stream.as_mut().expect("a stream").get_mut().message().await;
    looks.took("csi.v1.SnapshotMetadata/GetMetadataDelta", answer);
}

async fn at_node(world: &World, looks: &mut Looks) {
    looks.took("csi.v1.Node/NodeGetVolumeStats", world.bystander().node.stats().await);
    let mut node = world.client().node();
    let answer = node.node_get_capabilities(v1::NodeGetCapabilitiesRequest::default()).await;
    looks.took("csi.v1.Node/NodeGetCapabilities", answer);
    let answer = node.node_get_info(v1::NodeGetInfoRequest::default()).await;
    looks.took("csi.v1.Node/NodeGetInfo", answer);
}

async fn at_addons(client: &Client, looks: &mut Looks) {
    let mut plugin = IdentityClient::new(client.channel());
    let answer = plugin.get_identity(identity::GetIdentityRequest::default()).await;
    looks.took("identity.Identity/GetIdentity", answer);
    let answer = plugin.get_capabilities(identity::GetCapabilitiesRequest::default()).await;
    looks.took("identity.Identity/GetCapabilities", answer);
    let answer = plugin.probe(identity::ProbeRequest::default()).await;
    looks.took("identity.Identity/Probe", answer);
    let mut groups = ControllerClient::new(client.channel());
    let request = volumegroup::ListVolumeGroupsRequest::default();
    let answer = groups.list_volume_groups(request).await;
    looks.took("volumegroup.Controller/ListVolumeGroups", answer);
    let request = volumegroup::ControllerGetVolumeGroupRequest {
        volume_group_id: "g-none".to_owned(),
        ..Default::default()
    };
    let answer = groups.controller_get_volume_group(request).await;
    looks.took("volumegroup.Controller/ControllerGetVolumeGroup", answer);
}
