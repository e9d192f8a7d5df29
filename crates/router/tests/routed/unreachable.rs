//! Daemons that do not answer, that come back, and that are replaced.

use std::sync::Arc;

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::identity_client::IdentityClient;
use orlop_model::Pool;
use tonic::Code;

use crate::cluster::{Authority, Node, SIZE, controller, router_before, two_nodes};
use crate::requests::{create, delete, expect, list, new_volume, new_volume_at};

#[tokio::test]
async fn an_unreachable_peer_fails_only_what_needs_it() {
    let (authority, a, mut b) = two_nodes().await;
    let (router, peers) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let on_a = create(&mut client, new_volume_at("on-a", &["a"])).await.unwrap().volume_id;
    let on_b = create(&mut client, new_volume_at("on-b", &["b"])).await.unwrap().volume_id;
    b.stop();
    // Before and after the router has noticed.
    for _ in 0..2 {
        expect(delete(&mut client, &on_b).await, Code::Unavailable);
        expect(client.list_volumes(list()).await, Code::Unavailable);
        expect(create(&mut client, new_volume("anywhere")).await, Code::Unavailable);
        peers.poll().await;
    }
    let why = expect(delete(&mut client, &on_b).await, Code::Unavailable);
    assert!(why.contains("node b is unreachable"), "{why}");
    let request = v1::ControllerGetVolumeRequest { volume_id: on_a.clone() };
    client.controller_get_volume(request).await.unwrap();
    create(&mut client, new_volume_at("another", &["a"])).await.unwrap();
    // It may be on b.
    expect(create(&mut client, new_volume_at("on-b", &["a", "b"])).await, Code::Unavailable);
    delete(&mut client, &on_a).await.unwrap();
    let capacity = client.get_capacity(v1::GetCapacityRequest::default()).await.unwrap();
    assert!(capacity.into_inner().available_capacity <= i64::try_from(SIZE).unwrap());

    // Back at another address, with the same pool.
    let b = Node::serve("b", authority.files("b"), Arc::clone(&b.pool), b.address).await;
    peers.poll().await;
    let request = new_volume_at("on-b", &["a", "b"]);
    assert_eq!(create(&mut client, request).await.unwrap().volume_id, on_b);
    delete(&mut client, &on_b).await.unwrap();
    drop(b);
}

#[tokio::test]
async fn a_volume_of_an_unknown_pool_is_not_called_deleted() {
    let (authority, a, mut b) = two_nodes().await;
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let on_b = create(&mut controller(&router), new_volume_at("v", &["b"])).await.unwrap();
    b.stop();
    // A router that has never seen b.
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let why = expect(delete(&mut client, &on_b.volume_id).await, Code::Unavailable);
    assert!(why.contains(&b.address.to_string()), "{why}");
    expect(create(&mut client, new_volume("new")).await, Code::Unavailable);
    create(&mut client, new_volume_at("new", &["a"])).await.unwrap();
    // Nor if the name is asked for where a is, and b may be.
    expect(create(&mut client, new_volume_at("v", &["a", "b"])).await, Code::Unavailable);
    let mut open = new_volume_at("v", &["a"]);
    open.accessibility_requirements.as_mut().unwrap().requisite.clear();
    expect(create(&mut client, open).await, Code::Unavailable);
    // Nor if b is not among the peers any more.
    let (router, _) = router_before(&[&a], &authority).await;
    let mut client = controller(&router);
    expect(delete(&mut client, &on_b.volume_id).await, Code::FailedPrecondition);
}

/// Its disk is late; until then it does not know which pools it has.
#[tokio::test]
async fn a_node_that_opens_its_pools_may_have_the_volume() {
    let authority = Authority::new();
    let address = "127.0.0.1:0".parse().unwrap();
    let a = Node::opening("a", authority.files("a"), address).await;
    let (b, c) =
        (Node::start("b", &authority, SIZE).await, Node::start("c", &authority, SIZE).await);
    let (router, _) = router_before(&[&a, &b, &c], &authority).await;
    let mut client = controller(&router);
    let why = expect(create(&mut client, new_volume_at("v", &["a", "b"])).await, Code::Unavailable);
    assert!(why.contains("node a"), "{why}");
    create(&mut client, new_volume_at("v", &["b", "c"])).await.unwrap();
}

#[tokio::test]
async fn a_router_is_ready_once_a_peer_answers() {
    let authority = Authority::new();
    let mut a = Node::start("a", &authority, SIZE).await;
    let (router, peers) = router_before(&[&a], &authority).await;
    let mut identity = IdentityClient::new(router.clone());
    let mut v0 = orlop_csi::proto::csi::v0::identity_client::IdentityClient::new(router.clone());
    let mut addons = orlop_csi::proto::identity::identity_client::IdentityClient::new(router);
    // By each of the protocols.
    let mut ready = async || {
        let answer = identity.probe(v1::ProbeRequest {}).await.unwrap().into_inner();
        let by_addons = addons.probe(orlop_csi::proto::identity::ProbeRequest {}).await.unwrap();
        let by_v0 = v0.probe(orlop_csi::proto::csi::v0::ProbeRequest {}).await;
        let by_v0 = by_v0.map(drop).map_err(|status| status.code());
        (answer.ready.unwrap(), by_addons.into_inner().ready.unwrap(), by_v0)
    };
    assert_eq!(ready().await, (true, true, Ok(())));
    a.stop();
    peers.poll().await;
    assert_eq!(ready().await, (false, false, Err(Code::Unavailable)));
}

/// It asks the others who is there.
#[tokio::test]
async fn a_new_router_learns_of_an_unreachable_node() {
    let (authority, a, mut b) = two_nodes().await;
    let (router, peers) = router_before(&[&a, &b], &authority).await;
    let on_b = create(&mut controller(&router), new_volume_at("v", &["b"])).await.unwrap();
    // As a daemon of the node a would say: its own router knows b.
    a.memory.set_members(peers.described());
    b.stop();
    let (router, _) = router_before(&[&a], &authority).await;
    let mut client = controller(&router);
    let why = expect(delete(&mut client, &on_b.volume_id).await, Code::Unavailable);
    assert!(why.contains("node b is unreachable"), "{why}");
    expect(create(&mut client, new_volume("v")).await, Code::Unavailable);
}

#[tokio::test]
async fn what_was_on_a_forgotten_node_can_be_deleted() {
    let (authority, a, mut b) = two_nodes().await;
    let (router, peers) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let volume = create(&mut client, new_volume_at("v", &["b"])).await.unwrap().volume_id;
    b.stop();
    peers.poll().await;
    expect(delete(&mut client, &volume).await, Code::Unavailable);
    let informed = peers.forget("b", [b.pool.id().clone()].into()).await;
    assert_eq!(informed, [("a".to_owned(), Ok(()))]);
    // It hears of it from a.
    peers.poll().await;
    delete(&mut client, &volume).await.unwrap();
    let request = v1::ControllerGetVolumeRequest { volume_id: volume.clone() };
    let why = expect(client.controller_get_volume(request.clone()).await, Code::NotFound);
    assert!(why.contains("node b"), "{why}");
    create(&mut client, new_volume("w")).await.unwrap();
    assert_eq!(client.list_volumes(list()).await.unwrap().into_inner().entries.len(), 1);
    // A router that has never seen b.
    let (other, _) = router_before(&[&a], &authority).await;
    delete(&mut controller(&other), &volume).await.unwrap();

    // It was not gone for good after all.
    let b = Node::serve("b", authority.files("b"), Arc::clone(&b.pool), b.address).await;
    peers.poll().await;
    client.controller_get_volume(request).await.unwrap();
    delete(&mut client, &volume).await.unwrap();
    assert!(b.pool.catalogue().volumes(None, 0).unwrap().is_empty());
}
