//! CSI-Addons: identity and services, on the CSI socket and on a separate one.

use std::sync::Arc;

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use orlop_csi::proto::identity as wire;
use orlop_csi::proto::identity::capability::{Type, reclaim_space, service, volume_group};
use orlop_csi::proto::identity::identity_client::IdentityClient;
use orlop_csi::proto::volumegroup as vg;
use orlop_csi::proto::volumegroup::controller_client::ControllerClient as GroupsClient;
use orlop_csi::{Mode, Routes};
use orlop_model::Error;
use tokio::sync::oneshot;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::plugin::{Plugin, Setup, code, features, noticed};

async fn capabilities(channel: Channel) -> Vec<Type> {
    let request = wire::GetCapabilitiesRequest {};
    let answer = IdentityClient::new(channel).get_capabilities(request).await.unwrap();
    answer.into_inner().capabilities.into_iter().map(|each| each.r#type.unwrap()).collect()
}

fn services(offered: &[Type]) -> Vec<service::Type> {
    let service = |each: &Type| {
        let Type::Service(service) = each else { return None };
        Some(service.r#type())
    };
    offered.iter().filter_map(service).collect()
}

fn reclaims(offered: &[Type]) -> Vec<reclaim_space::Type> {
    let reclaim = |each: &Type| {
        let Type::ReclaimSpace(reclaim) = each else { return None };
        Some(reclaim.r#type())
    };
    offered.iter().filter_map(reclaim).collect()
}

fn groups(offered: &[Type]) -> Vec<volume_group::Type> {
    let group = |each: &Type| {
        let Type::VolumeGroup(group) = each else { return None };
        Some(group.r#type())
    };
    offered.iter().filter_map(group).collect()
}

#[tokio::test]
async fn each_instance_says_exactly_what_it_serves() {
    use reclaim_space::Type::{Offline, Online};
    use service::Type::{ControllerService, NodeService};
    let controller = (vec![ControllerService], vec![Offline], 6);
    let node = (vec![NodeService], vec![Online], 0);
    let all = (vec![ControllerService, NodeService], vec![Offline, Online], 6);
    for (mode, expected) in [(Mode::Controller, controller), (Mode::Node, node), (Mode::All, all)] {
        let plugin = Plugin::with(Setup { mode, ..Setup::default() }).await;
        let offered = capabilities(plugin.channel()).await;
        let kinds = (services(&offered), reclaims(&offered), groups(&offered).len());
        assert_eq!(kinds, expected, "CA-10, CA-11, CA-14 in {mode:?}");
        let rotates = offered.iter().filter(|each| matches!(each, Type::EncryptionKeyRotation(_)));
        let rotates = rotates.count();
        assert_eq!(rotates, usize::from(mode != Mode::Controller), "CA-15 in {mode:?}");
        let unserved = offered.len() - kinds.0.len() - kinds.1.len() - kinds.2 - rotates;
        assert_eq!(unserved, 0, "CA-12, CA-13");
        let listed = list_groups(plugin.channel()).await;
        let expected = if mode == Mode::Node { Code::Unimplemented } else { Code::Ok };
        assert_eq!(code(listed), expected);
    }
}

async fn list_groups(channel: Channel) -> Result<(), Status> {
    let request = vg::ListVolumeGroupsRequest::default();
    GroupsClient::new(channel).list_volume_groups(request).await.map(drop)
}

async fn probe(plugin: &Plugin) -> Result<Option<bool>, Status> {
    let answer = IdentityClient::new(plugin.channel()).probe(wire::ProbeRequest {}).await;
    answer.map(|answer| answer.into_inner().ready)
}

#[tokio::test]
async fn addons_identity_matches_csi_identity_and_health() {
    let plugin = Plugin::start().await;
    let request = wire::GetIdentityRequest {};
    let answer = IdentityClient::new(plugin.channel()).get_identity(request).await.unwrap();
    let csi = plugin.identity().get_plugin_info(v1::GetPluginInfoRequest {}).await.unwrap();
    let (addons, csi) = (answer.into_inner(), csi.into_inner());
    assert_eq!((&addons.name, &addons.vendor_version), (&csi.name, &csi.vendor_version), "CA-05");

    assert_eq!(probe(&plugin).await.unwrap(), Some(true), "CA-20");
    plugin.pool.fail_next("check_health", Error::failed("read pool", "the disk is gone"));
    let failed = noticed(Result::is_ok, || probe(&plugin)).await;
    assert_eq!(code(failed), Code::FailedPrecondition, "CA-17");
    let starting = Plugin::with(Setup { ready: false, ..Setup::default() }).await;
    assert_eq!(probe(&starting).await.unwrap(), Some(false), "CA-19");
}

#[tokio::test]
async fn addons_socket_serves_only_addons() {
    let plugin = Plugin::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("addons.sock");
    let socket = orlop_csi::bind(&path).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async {
        stopped.await.ok();
    };
    let executor = Arc::clone(&plugin.executor);
    let routes = Routes::addons(&executor, &Arc::new(features(&Setup::default())));
    let serving = tokio::spawn(orlop_csi::serve(socket, executor, routes, stopped));
    let endpoint = Endpoint::from_shared(format!("unix://{}", path.display())).unwrap();
    let channel = endpoint.connect().await.unwrap();

    assert_eq!(services(&capabilities(channel.clone()).await).len(), 2);
    assert_eq!(code(list_groups(channel.clone()).await), Code::Ok);
    let request = v1::GetPluginInfoRequest {};
    let mut identity = v1::identity_client::IdentityClient::new(channel.clone());
    assert_eq!(code(identity.get_plugin_info(request).await), Code::Ok);
    let request = v1::ListVolumesRequest::default();
    let hidden = ControllerClient::new(channel).list_volumes(request).await;
    assert_eq!(code(hidden), Code::Unimplemented);

    stop.send(()).unwrap();
    serving.await.unwrap().unwrap();
    assert!(!path.exists());
}
