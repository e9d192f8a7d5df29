//! Who may call whom.

use std::sync::Arc;
use std::time::Duration;

use orlop_csi::proto::csi::v1;
use orlop_model::Pool;
use orlop_router::{TlsError, TlsFiles, TlsIdentity};
use tonic::Code;

use crate::cluster::{Authority, Node, SIZE, controller, router_at, router_before};
use crate::requests::{create, expect, new_volume_at};

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

/// Nor can it once it has been taken for itself: the connections are kept.
#[tokio::test]
async fn a_peer_that_changes_its_name_is_refused() {
    let authority = Authority::new();
    let a = Node::start("a", &authority, SIZE).await;
    let impostor = Node::start("b", &authority, SIZE).await;
    let (router, peers) = router_before(&[&impostor], &authority).await;
    let mut client = controller(&router);
    create(&mut client, new_volume_at("v", &["b"])).await.unwrap();
    impostor.calls.answer_as(a.routes.for_peers());
    peers.poll().await;
    let refused = create(&mut client, new_volume_at("w", &["b"])).await;
    let why = expect(refused, Code::Unavailable);
    assert!(why.contains("certificate is for another one"), "{why}");
    create(&mut client, new_volume_at("w", &["a"])).await.unwrap_err();
    assert_eq!(a.pool.catalogue().volumes(None, 0).unwrap(), []);
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
async fn what_is_for_people_and_tools_is_not_served_to_peers() {
    let authority = Authority::new();
    let a = Node::start("a", &authority, SIZE).await;
    let routes = a.routes.clone().with_introspection("/nonexistent.sock".as_ref());
    for service in
        ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "orlop.monitor.v1.Monitor"]
    {
        assert!(routes.serves(&format!("/{service}/Method")), "{service}");
        assert!(!routes.for_peers().serves(&format!("/{service}/Method")), "{service}");
    }
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
        peers.poll().await;
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

/// Volumes of the node need no peer, so that is no reason to end.
#[tokio::test]
async fn an_expired_certificate_is_a_warning() {
    let authority = Authority::new();
    for (years, expected) in [(2000..2001, "has expired"), (3000..3001, "is not valid yet")] {
        let files = authority.files("a");
        authority.write_valid("a", files.ca.parent().unwrap(), years);
        let warning = TlsIdentity::load(files, "a").unwrap().warning().unwrap();
        assert!(warning.contains(expected), "{warning}");
    }
    assert_eq!(TlsIdentity::load(authority.files("a"), "a").unwrap().warning(), None);
}

#[tokio::test]
async fn a_certificate_that_others_refuse_is_not_used() {
    let (authority, other) = (Authority::new(), Authority::new());
    let files = TlsFiles { ca: other.signing_files().ca, ..authority.files("a") };
    let refused = TlsIdentity::load(files, "a").map(drop).unwrap_err().to_string();
    assert!(refused.contains("it is not signed by a certificate in"), "{refused}");

    // Nor in place of one that is valid.
    let files = authority.files("a");
    let pool = Arc::clone(&Node::start("x", &authority, SIZE).await.pool);
    let a = Node::serve("x", authority.files("x"), pool, "127.0.0.1:0".parse().unwrap()).await;
    let (router, peers) = router_at(vec![a.address.to_string()], "a", files.clone()).await;
    authority.write_valid("a", files.ca.parent().unwrap(), 2000..2001);
    peers.poll().await;
    create(&mut controller(&router), new_volume_at("v", &["x"])).await.unwrap();
    assert_eq!(peers.silent(), []);
}

/// A daemon that listens and has no peers to look at.
#[tokio::test]
async fn certificates_are_renewed_without_peers() {
    let authority = Authority::new();
    let files = authority.files("a");
    authority.write_valid("a", files.ca.parent().unwrap(), 2000..2001);
    let identity = Arc::new(TlsIdentity::load(files.clone(), "a").unwrap());
    assert!(identity.warning().is_some());
    authority.write("a", files.ca.parent().unwrap());
    let watching = tokio::spawn(Arc::clone(&identity).watch());
    while identity.warning().is_some() {
        assert!(!watching.is_finished());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    watching.abort();
}

/// Whatever reaches the port can do that, without a certificate.
#[tokio::test]
async fn connections_without_a_handshake_keep_no_peer_out() {
    let authority = Authority::new();
    let a = Node::start("a", &authority, SIZE).await;
    let mut mute = Vec::new();
    for _ in 0..400 {
        mute.push(tokio::net::TcpStream::connect(a.address).await.unwrap());
    }
    let (router, peers) = router_before(&[&a], &authority).await;
    assert_eq!(peers.silent(), []);
    create(&mut controller(&router), new_volume_at("v", &["a"])).await.unwrap();
    drop(mute);
}
