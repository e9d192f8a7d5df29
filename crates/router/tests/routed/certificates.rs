//! Who may call whom.

use std::sync::Arc;

use orlop_csi::proto::csi::v1;
use orlop_router::{TlsError, TlsFiles, TlsIdentity};
use tonic::Code;

use crate::cluster::{Authority, Node, controller, router_at, router_before};
use crate::requests::{create, expect, new_volume_at};

const SIZE: u64 = 1 << 30;

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let a = Node::start("a", &authority, SIZE).await;
    let (router, _) = router_before(&[&a], &other).await;
    let refused = create(&mut controller(&router), new_volume_at("v", &["a"])).await;
    let why = expect(refused, Code::Unavailable);
    assert!(why.contains("certificate"), "{why}");
    assert!(why.contains(&a.address.to_string()), "{why}");
}

#[tokio::test]
async fn a_certificate_is_for_its_own_node() {
    let authority = Authority::new();
    let files = authority.files("another-program");
    let loaded = TlsIdentity::load(files, "a");
    assert!(matches!(loaded, Err(TlsError::OtherNode { .. })));
}

/// A node whose certificate was stolen cannot pass for another.
#[tokio::test]
async fn a_peer_that_gives_another_name_is_refused() {
    let authority = Authority::new();
    let a = Node::start("a", &authority, SIZE).await;
    let node = Arc::clone(&a.pool);
    // Its certificate is right for b, and it says that it is a.
    let impostor = Node::serve_as("a", "b", authority.files("b"), node).await;
    let addresses = vec![impostor.address.to_string()];
    let (router, _) = router_at(addresses, "router", authority.files("router")).await;
    let refused = create(&mut controller(&router), new_volume_at("v", &["a"])).await;
    let why = expect(refused, Code::Unavailable);
    assert!(why.contains("certificate is for another one"), "{why}");
}

#[tokio::test]
async fn a_caller_that_gives_another_name_is_refused() {
    let authority = Authority::new();
    let a = Node::start("a", &authority, SIZE).await;
    let addresses = vec![a.address.to_string()];
    let (router, _) =
        crate::cluster::router_called("b", "router", addresses, authority.files("router")).await;
    let refused = create(&mut controller(&router), new_volume_at("v", &["a"])).await;
    let why = expect(refused, Code::Unavailable);
    assert!(why.contains("its certificate is for another one"), "{why}");
}

#[tokio::test]
async fn nodes_services_are_not_served_to_peers() {
    let authority = Authority::new();
    let a = Node::start("a", &authority, SIZE).await;
    let mut node = v1::node_client::NodeClient::new(a.routes.for_peers());
    let request = v1::NodeGetInfoRequest {};
    expect(node.node_get_info(request).await, Code::Unimplemented);
    let mut node = v1::node_client::NodeClient::new(a.routes.clone());
    node.node_get_info(request).await.unwrap();
}

#[tokio::test]
async fn renewed_certificates_are_used_without_a_restart() {
    let (authority, next) = (Authority::new(), Authority::new());
    let files = authority.files("a");
    let pool = Arc::clone(&Node::start("x", &authority, SIZE).await.pool);
    let mut a = Node::serve("a", files.clone(), pool, "127.0.0.1:0".parse().unwrap()).await;
    let router_files = authority.files("router");
    let addresses = vec![a.address.to_string()];
    let (router, peers) = router_at(addresses, "router", router_files.clone()).await;
    let mut client = controller(&router);
    create(&mut client, new_volume_at("v", &["x"])).await.unwrap();
    // Both get certificates of another authority; a is restarted, the router is not.
    next.write("router", router_files.ca.parent().unwrap());
    next.write("a", files.ca.parent().unwrap());
    a.stop();
    let (address, pool) = (a.address, Arc::clone(&a.pool));
    let _a = Node::serve("a", files, pool, address).await;
    for _ in 0..2 {
        peers.look().await;
    }
    create(&mut client, new_volume_at("w", &["x"])).await.unwrap();
}

/// As in a DaemonSet, where all nodes have the same files.
#[tokio::test]
async fn daemons_sign_certificates_for_themselves() {
    let authority = Authority::new();
    let files = authority.signing_files();
    let pool = Arc::clone(&Node::start("a", &authority, SIZE).await.pool);
    let a = Node::serve_as("a", "a", files.clone(), pool).await;
    let addresses = vec![a.address.to_string()];
    let (router, _) = router_at(addresses.clone(), "router", files.clone()).await;
    create(&mut controller(&router), new_volume_at("v", &["a"])).await.unwrap();
    // Of another authority, with the same name.
    let (stranger, _) = router_at(addresses, "router", Authority::new().signing_files()).await;
    let refused = create(&mut controller(&stranger), new_volume_at("w", &["a"])).await;
    expect(refused, Code::Unavailable);
}

#[tokio::test]
async fn a_key_of_another_authority_signs_nothing() {
    let (authority, other) = (Authority::new(), Authority::new());
    let files = TlsFiles { ca: other.signing_files().ca, ..authority.signing_files() };
    let loaded = TlsIdentity::load(files, "a");
    assert!(matches!(loaded, Err(TlsError::Unusable { .. })));
}
