//! Clusters that are not what they seem: node ids twice, pools moved or copied, nodes forgotten and back.

use std::sync::Arc;

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::peer;
use orlop_csi::{Resource, Verdict};
use orlop_model::{Pool, PoolId};
use tonic::Code;

use crate::cluster::{
    Node, SIZE, controller, router_at, router_before, stop_and_forget, two_nodes,
};
use crate::requests::{create, delete, expect, list, new_volume, new_volume_at};

/// What is judged when it is forgotten.
fn resources_of(node: &Node) -> [Resource; 2] {
    [Resource::Node(node.name.clone()), Resource::Pool(node.pool.id().clone())]
}

/// Each keeps a call open on every node, and a connection has a limit of calls.
#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_creations_at_once_all_end() {
    let (authority, a, b) = two_nodes().await;
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut creating = tokio::task::JoinSet::new();
    for number in 0..400 {
        let mut client = controller(&router);
        creating.spawn(async move { create(&mut client, new_volume(&format!("v{number}"))).await });
    }
    for made in creating.join_all().await {
        made.unwrap();
    }
    let listed = controller(&router).list_volumes(list()).await.unwrap();
    assert_eq!(listed.into_inner().entries.len(), 400);
}

/// As many as a router lets begin at once, and more.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_hangs_does_not_stop_creations_elsewhere() {
    let (authority, a, b) = two_nodes().await;
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let hanging = a.hang();
    let mut creating = tokio::task::JoinSet::new();
    for number in 0..100 {
        let (mut client, name) = (controller(&router), format!("v{number}"));
        // Some may be made on b, and a is asked first.
        let nodes: &[&str] = if number % 2 == 0 { &["a"] } else { &["a", "b"] };
        creating.spawn(async move { create(&mut client, new_volume_at(&name, nodes)).await });
    }
    // At the first of them, the others may not have begun.
    for name in ["w", "x"] {
        create(&mut controller(&router), new_volume_at(name, &["b"])).await.unwrap();
    }
    assert!(creating.try_join_next().is_none());
    drop(hanging);
    for made in creating.join_all().await {
        made.unwrap();
    }
}

/// A router has no volumes, and need not be known to another one.
#[tokio::test(flavor = "multi_thread")]
async fn routers_with_low_names_do_not_block_each_other() {
    let (authority, a, b) = two_nodes().await;
    let addresses: Vec<String> = [&a, &b].iter().map(|node| node.address.to_string()).collect();
    let mut routers = Vec::new();
    for name in ["0-router", "1-router"] {
        routers.push(router_at(addresses.clone(), name, authority.files(name)).await.0);
    }
    for round in 0..20 {
        let (mut one, mut two) = (controller(&routers[0]), controller(&routers[1]));
        let request = new_volume(&format!("v{round}"));
        let (one, two) =
            tokio::join!(create(&mut one, request.clone()), create(&mut two, request.clone()));
        assert!(one.is_ok() || two.is_ok(), "round {round}: {one:?} {two:?}");
    }
}

#[tokio::test]
async fn a_forgotten_node_that_comes_back_counts_again() {
    let (authority, a, mut b) = two_nodes().await;
    let (router, peers) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let volume = create(&mut client, new_volume_at("v", &["b"])).await.unwrap().volume_id;
    stop_and_forget(&mut b, &peers).await;
    delete(&mut client, &volume).await.unwrap();
    let mut b = Node::serve("b", authority.files("b"), Arc::clone(&b.pool), b.address).await;
    peers.poll().await;
    client.list_volumes(list()).await.unwrap();
    // It is unreachable once more, and was not given up this time.
    b.stop();
    for _ in 0..2 {
        peers.poll().await;
        expect(delete(&mut client, &volume).await, Code::Unavailable);
        expect(client.list_volumes(list()).await, Code::Unavailable);
        expect(create(&mut client, new_volume("v")).await, Code::Unavailable);
    }
    // An older verdict, from a daemon that was down at the time, changes nothing.
    let old = Verdict { node: "b".to_owned(), forgotten: true, at: 1 };
    for resource in resources_of(&b) {
        a.memory.judge(&resource, old.clone());
    }
    peers.poll().await;
    expect(delete(&mut client, &volume).await, Code::Unavailable);
}

/// A verdict from a machine whose clock is ahead, about a node that is there.
#[tokio::test]
async fn a_node_that_answers_is_not_gone_whatever_others_say() {
    let (authority, a, mut b) = two_nodes().await;
    let (router, peers) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let volume = create(&mut client, new_volume_at("v", &["b"])).await.unwrap().volume_id;
    let now = Verdict::now("b", true);
    for resource in resources_of(&b) {
        a.memory.judge(&resource, Verdict { at: now.at + 600_000, ..now.clone() });
    }
    peers.poll().await;
    assert_eq!(peers.forgotten(), [].into());
    client.list_volumes(list()).await.unwrap();
    b.stop();
    for _ in 0..2 {
        peers.poll().await;
        expect(client.list_volumes(list()).await, Code::Unavailable);
        expect(delete(&mut client, &volume).await, Code::Unavailable);
    }
}

/// Such a one would be written down, and be lines of the log.
#[tokio::test]
async fn what_is_no_node_id_is_not_taken_from_peers() {
    let (authority, a, b) = two_nodes().await;
    let member = peer::Member { node_id: "bad\nnode".to_owned(), ..Default::default() };
    a.memory.set_members(vec![member]);
    let pool: PoolId = "0badcafe".parse().unwrap();
    let verdict = Verdict::now("x\n1 forgotten - b", true);
    a.memory.judge(&Resource::Node(verdict.node.clone()), verdict.clone());
    a.memory.judge(&Resource::Pool(pool), verdict);
    let far = Verdict { at: i64::MAX, ..Verdict::now("c", true) };
    a.memory.judge(&Resource::Pool("00c0ffee".parse().unwrap()), far);
    let (router, peers) = router_before(&[&a, &b], &authority).await;
    assert_eq!(peers.forgotten(), [].into());
    controller(&router).list_volumes(list()).await.unwrap();
}

#[tokio::test]
async fn a_node_that_another_one_reaches_is_not_gone() {
    let (authority, a, b) = two_nodes().await;
    let (_, all) = router_before(&[&a, &b], &authority).await;
    a.memory.set_members(all.described());
    let (router, peers) = router_before(&[&a], &authority).await;
    assert!(peers.is_reached("b"));
    expect(controller(&router).list_volumes(list()).await, Code::Unavailable);
}

#[tokio::test]
async fn two_daemons_with_one_node_id_are_not_trusted() {
    let (authority, a, b) = two_nodes().await;
    let pool = Arc::clone(&Node::start("x", &authority, SIZE).await.pool);
    let twin = Node::serve("b", authority.files("b"), pool, "127.0.0.1:0".parse().unwrap()).await;
    let (router, _) = router_before(&[&a, &b, &twin], &authority).await;
    let mut client = controller(&router);
    expect(client.list_volumes(list()).await, Code::Unavailable);
    let why = expect(create(&mut client, new_volume("v")).await, Code::Unavailable);
    assert!(why.contains("node id b"), "{why}");
    // Which of the two has a volume of this name is not known either.
    let at_b = create(&mut client, new_volume_at("w", &["b"])).await;
    assert!(expect(at_b, Code::Unavailable).contains("node id b"));
    create(&mut client, new_volume_at("w", &["a"])).await.unwrap();
    // Nor a router that has the id of a node.
    let addresses = vec![a.address.to_string(), b.address.to_string()];
    let (router, _) = router_at(addresses, "a", authority.files("a")).await;
    let mut client = controller(&router);
    expect(client.list_volumes(list()).await, Code::Unavailable);
    expect(create(&mut client, new_volume("v")).await, Code::Unavailable);
}

#[tokio::test]
async fn one_daemon_under_two_addresses_is_one() {
    let (authority, a, b) = two_nodes().await;
    let port = b.address.port();
    let addresses = vec![a.address.to_string(), b.address.to_string(), format!("localhost:{port}")];
    let (router, peers) = router_at(addresses, "router", authority.files("router")).await;
    // Where localhost is IPv6 too, none answers there.
    assert!(
        peers.silent().iter().all(|(address, _)| address.contains("[::1]")),
        "{:?}",
        peers.silent()
    );
    if peers.silent().is_empty() {
        controller(&router).list_volumes(list()).await.unwrap();
    }
}

/// Its disk was put into another machine.
#[tokio::test]
async fn a_node_whose_pool_is_served_elsewhere_is_not_missed() {
    let (authority, a, mut b) = two_nodes().await;
    let (router, peers) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let volume = create(&mut client, new_volume_at("v", &["b"])).await.unwrap().volume_id;
    b.stop();
    let c = Node::serve("c", authority.files("c"), Arc::clone(&b.pool), b.address).await;
    peers.poll().await;
    client.list_volumes(list()).await.unwrap();
    create(&mut client, new_volume("w")).await.unwrap();
    delete(&mut client, &volume).await.unwrap();
    drop(c);
}

#[tokio::test]
async fn a_copied_pool_is_refused() {
    let (authority, a, b) = two_nodes().await;
    let (router, peers) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let volume = create(&mut client, new_volume_at("v", &["b"])).await.unwrap().volume_id;
    let address = "127.0.0.1:0".parse().unwrap();
    let c = Node::serve("c", authority.files("c"), Arc::clone(&b.pool), address).await;
    let (router, _) = router_before(&[&a, &b, &c], &authority).await;
    let mut client = controller(&router);
    let why = expect(delete(&mut client, &volume).await, Code::FailedPrecondition);
    assert!(why.contains("node b") && why.contains("node c"), "{why}");
    // What would be created on the copy is lost with it.
    for name in ["v", "w"] {
        let refused = create(&mut client, new_volume_at(name, &["b"])).await;
        assert_eq!(expect(refused, Code::FailedPrecondition), why);
    }
    let elsewhere = create(&mut client, new_volume("x")).await.unwrap().volume_id;
    assert!(elsewhere.contains(a.pool.id().as_str()), "{elsewhere}");
    drop(peers);
}

/// Its disk was put into another machine, and its former node is still configured for it.
#[tokio::test]
async fn a_moved_pool_is_no_copy_while_its_former_node_waits() {
    let (authority, mut a, mut b) = two_nodes().await;
    let (router, peers) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let volume = create(&mut client, new_volume_at("v", &["b"])).await.unwrap().volume_id;
    a.stop();
    b.stop();
    let waiting = Node::opening("b", authority.files("b"), b.address).await;
    peers.poll().await;
    expect(delete(&mut client, &volume).await, Code::Unavailable);
    let taken_over = Node::serve("a", authority.files("a"), Arc::clone(&b.pool), a.address).await;
    peers.poll().await;
    delete(&mut client, &volume).await.unwrap();
    drop((waiting, taken_over));
}

/// A daemon that cannot read its disk does not know its pools.
#[tokio::test]
async fn a_node_with_unknown_pools_is_not_taken_for_empty() {
    let (authority, a, mut b) = two_nodes().await;
    b.stop();
    a.memory.set_members(vec![peer::Member {
        node_id: "b".to_owned(),
        away: "gone".to_owned(),
        incomplete: true,
        ..Default::default()
    }]);
    let (router, peers) = router_before(&[&a], &authority).await;
    let mut client = controller(&router);
    expect(client.list_volumes(list()).await, Code::Unavailable);
    expect(create(&mut client, new_volume("v")).await, Code::Unavailable);
    peers.forget("b", [].into()).await;
    peers.poll().await;
    client.list_volumes(list()).await.unwrap();
}

/// The same name was asked for on the other pool before.
#[tokio::test]
async fn a_named_pool_excludes_no_unreachable_node() {
    let (authority, a, mut b) = two_nodes().await;
    let (router, peers) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    create(&mut client, new_volume_at("v", &["b"])).await.unwrap();
    b.stop();
    peers.poll().await;
    let mut request = new_volume("v");
    request.parameters.insert("pool".to_owned(), a.pool.name().to_owned());
    expect(create(&mut client, request).await, Code::Unavailable);
}

#[tokio::test]
async fn a_call_with_two_messages_is_refused() {
    use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
    use tonic::codegen::http::uri::PathAndQuery;
    let (authority, a, b) = two_nodes().await;
    let (router, _) = router_before(&[&a, &b], &authority).await;
    drop(ControllerClient::new(router.clone()));
    let mut grpc = tonic::client::Grpc::new(router.clone());
    let path = PathAndQuery::from_static("/csi.v1.Controller/CreateVolume");
    let codec =
        tonic_prost::ProstCodec::<v1::CreateVolumeRequest, v1::CreateVolumeResponse>::default();
    let twice = tokio_stream::iter([new_volume("one"), new_volume("two")]);
    let refused = grpc.client_streaming(tonic::Request::new(twice), path, codec).await;
    expect(refused, Code::InvalidArgument);
    let listed = controller(&router).list_volumes(list()).await.unwrap();
    assert!(listed.into_inner().entries.is_empty());
}
