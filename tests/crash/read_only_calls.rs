//! Calls that change nothing.

use std::collections::BTreeSet;

use orlop_tests::identity::identity_client::IdentityClient;
use orlop_tests::monitor::monitor_client::MonitorClient;
use orlop_tests::volumegroup::controller_client::ControllerClient;
use orlop_tests::{Answer, Client, Code, block, identity, monitor, v1, volumegroup};

use crate::fixture::Fixture;

/// Names of the calls that were made and answered.
#[derive(Default)]
struct ReadOnlyCalls(BTreeSet<&'static str>);

impl ReadOnlyCalls {
    fn record<T>(&mut self, call: &'static str, answer: Answer<T>) {
        match answer {
            Ok(_) => {}
            // The call has read the state also for an object that does not exist.
            Err(status) => assert_eq!(status.code(), Code::NotFound, "{call}: {status}"),
        }
        self.0.insert(call);
    }
}

/// Makes them all, and returns their names.
pub(crate) async fn all(fixture: &Fixture) -> BTreeSet<&'static str> {
    let mut calls = ReadOnlyCalls::default();
    let client = fixture.client();
    at_identity(client, &mut calls).await;
    at_controller(fixture, &mut calls).await;
    at_snapshots(fixture, &mut calls).await;
    at_node(fixture, &mut calls).await;
    at_addons(client, &mut calls).await;
    at_monitor(fixture, &mut calls).await;
    calls.0
}

async fn at_identity(client: &Client, calls: &mut ReadOnlyCalls) {
    let mut plugin = client.identity();
    let answer = plugin.get_plugin_info(v1::GetPluginInfoRequest::default()).await;
    calls.record("csi.v1.Identity/GetPluginInfo", answer);
    let request = v1::GetPluginCapabilitiesRequest::default();
    let answer = plugin.get_plugin_capabilities(request).await;
    calls.record("csi.v1.Identity/GetPluginCapabilities", answer);
    calls.record("csi.v1.Identity/Probe", client.probe().await);
}

async fn at_controller(fixture: &Fixture, calls: &mut ReadOnlyCalls) {
    let client = fixture.client();
    let volume = &fixture.preexisting().node.id;
    let request = v1::ValidateVolumeCapabilitiesRequest {
        volume_id: volume.clone(),
        volume_capabilities: vec![block()],
        ..Default::default()
    };
    let answer = client.controller().validate_volume_capabilities(request).await;
    calls.record("csi.v1.Controller/ValidateVolumeCapabilities", answer);
    let request = v1::ControllerGetCapabilitiesRequest::default();
    let answer = client.controller().controller_get_capabilities(request).await;
    calls.record("csi.v1.Controller/ControllerGetCapabilities", answer);
    calls.record("csi.v1.Controller/ListVolumes", client.list_volumes().await);
    calls.record("csi.v1.Controller/GetCapacity", client.capacity().await);
    calls.record("csi.v1.Controller/ControllerGetVolume", client.get_volume(volume).await);
    let answer = client.health(volume).await;
    calls.record("csi.v1.Controller/ControllerGetVolumeHealth", answer);
    let answer = client.list_health().await;
    calls.record("csi.v1.Controller/ControllerListVolumeHealth", answer);
}

async fn at_snapshots(fixture: &Fixture, calls: &mut ReadOnlyCalls) {
    let client = fixture.client();
    let snapshot = fixture.preexisting().snapshot.clone();
    calls.record("csi.v1.Controller/ListSnapshots", client.list_snapshots().await);
    let request = v1::GetSnapshotRequest { snapshot_id: snapshot.clone(), ..Default::default() };
    let answer = client.controller().get_snapshot(request).await;
    calls.record("csi.v1.Controller/GetSnapshot", answer);
    let request = v1::GroupControllerGetCapabilitiesRequest::default();
    let answer = client.group_controller().group_controller_get_capabilities(request).await;
    calls.record("csi.v1.GroupController/GroupControllerGetCapabilities", answer);
    let answer = client.get_group_snapshot("g-none", std::slice::from_ref(&snapshot)).await;
    calls.record("csi.v1.GroupController/GetVolumeGroupSnapshot", answer);

    let request =
        v1::GetMetadataAllocatedRequest { snapshot_id: snapshot.clone(), ..Default::default() };
    let mut stream = client.snapshot_metadata().get_metadata_allocated(request).await;
    let answer = stream.as_mut().expect("a stream").get_mut().message().await;
    calls.record("csi.v1.SnapshotMetadata/GetMetadataAllocated", answer);
    let request = v1::GetMetadataDeltaRequest {
        base_snapshot_id: snapshot.clone(),
        target_snapshot_id: snapshot,
        ..Default::default()
    };
    let mut stream = client.snapshot_metadata().get_metadata_delta(request).await;
    let answer = stream.as_mut().expect("a stream").get_mut().message().await;
    calls.record("csi.v1.SnapshotMetadata/GetMetadataDelta", answer);
}

async fn at_node(fixture: &Fixture, calls: &mut ReadOnlyCalls) {
    calls.record("csi.v1.Node/NodeGetVolumeStats", fixture.preexisting().node.stats().await);
    calls.record("csi.v1.Node/NodeGetVolumeHealth", fixture.preexisting().node.health().await);
    calls.record("csi.v1.Node/NodeGetStorageHealth", fixture.client().storage_health().await);
    let mut node = fixture.client().node();
    let answer = node.node_get_capabilities(v1::NodeGetCapabilitiesRequest::default()).await;
    calls.record("csi.v1.Node/NodeGetCapabilities", answer);
    let answer = node.node_get_info(v1::NodeGetInfoRequest::default()).await;
    calls.record("csi.v1.Node/NodeGetInfo", answer);
}

async fn at_addons(client: &Client, calls: &mut ReadOnlyCalls) {
    let mut plugin = IdentityClient::new(client.channel());
    let answer = plugin.get_identity(identity::GetIdentityRequest::default()).await;
    calls.record("identity.Identity/GetIdentity", answer);
    let answer = plugin.get_capabilities(identity::GetCapabilitiesRequest::default()).await;
    calls.record("identity.Identity/GetCapabilities", answer);
    let answer = plugin.probe(identity::ProbeRequest::default()).await;
    calls.record("identity.Identity/Probe", answer);
    let mut groups = ControllerClient::new(client.channel());
    let request = volumegroup::ListVolumeGroupsRequest::default();
    let answer = groups.list_volume_groups(request).await;
    calls.record("volumegroup.Controller/ListVolumeGroups", answer);
    let request = volumegroup::ControllerGetVolumeGroupRequest {
        volume_group_id: "g-none".to_owned(),
        ..Default::default()
    };
    let answer = groups.controller_get_volume_group(request).await;
    calls.record("volumegroup.Controller/ControllerGetVolumeGroup", answer);
}

async fn at_monitor(fixture: &Fixture, calls: &mut ReadOnlyCalls) {
    let mut daemon = MonitorClient::new(fixture.client().channel());
    let answer = daemon.list_volume_io(monitor::ListVolumeIoRequest::default()).await;
    calls.record("orlop.monitor.v1.Monitor/ListVolumeIo", answer);
    let answer = daemon.list_volume_usage(monitor::ListVolumeUsageRequest::default()).await;
    calls.record("orlop.monitor.v1.Monitor/ListVolumeUsage", answer);
    let request =
        monitor::ListFootprintsRequest { volume_id: fixture.preexisting().node.id.clone() };
    let answer = daemon.list_footprints(request).await;
    calls.record("orlop.monitor.v1.Monitor/ListFootprints", answer);
    let answer = daemon.list_snapshot_names(monitor::ListSnapshotNamesRequest::default()).await;
    calls.record("orlop.monitor.v1.Monitor/ListSnapshotNames", answer);
    let answer = daemon.list_pools(monitor::ListPoolsRequest::default()).await;
    calls.record("orlop.monitor.v1.Monitor/ListPools", answer);
    let answer = daemon.list_events(monitor::ListEventsRequest::default()).await;
    calls.record("orlop.monitor.v1.Monitor/ListEvents", answer);
}
