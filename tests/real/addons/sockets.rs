//! On the socket of CSI, and on a separate one where that is configured.

use identity::identity_client::IdentityClient;
use orlop_tests::*;
use volumegroup::controller_client::ControllerClient;

async fn answers(client: &Client) -> Answer<identity::GetIdentityResponse> {
    let mut identity = IdentityClient::new(client.channel());
    let probe = identity.probe(identity::ProbeRequest {}).await?.into_inner();
    assert_eq!(probe.ready, Some(true));
    let offered = identity.get_capabilities(identity::GetCapabilitiesRequest {}).await?;
    assert!(!offered.into_inner().capabilities.is_empty());
    Ok(identity.get_identity(identity::GetIdentityRequest {}).await?.into_inner())
}

#[tokio::test(flavor = "multi_thread")]
async fn addons_socket_serves_the_same_volumes() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let second = pool.scratch().join("addons.sock");
    let endpoint = format!("unix://{}", second.display());
    let mut daemon = Launch::on(&pool).env("ORLOP_ADDONS_ENDPOINT", endpoint).start().await;
    let client = daemon.client();
    let addons = daemon.client_at(&second);
    let name = answers(&addons).await.unwrap().name;
    let info = client.identity().get_plugin_info(v1::GetPluginInfoRequest {}).await.unwrap();
    assert_eq!(name, info.into_inner().name);
    assert_eq!(answers(&client).await.unwrap().name, name, "on the socket of CSI as well");

    let volume = client.create("volume").size(16 * MIB).block().done().await;
    let request = volumegroup::CreateVolumeGroupRequest {
        name: "group".to_owned(),
        volume_ids: vec![volume.volume_id.clone()],
        ..volumegroup::CreateVolumeGroupRequest::default()
    };
    let mut groups = ControllerClient::new(addons.channel());
    let group = groups.create_volume_group(request).await.unwrap().into_inner();
    assert_eq!(group.volume_group.unwrap().volumes, [volume]);
    expect_code(addons.list_volumes().await, Code::Unimplemented);

    daemon.terminate();
    assert!(!second.exists(), "{} is left", second.display());
}
