//! What an operator has said of nodes and pools that are gone for good, and what becomes of it.

use std::sync::Arc;

use orlop_csi::proto::csi::v1;
use orlop_csi::{Resource, Verdict};
use orlop_model::Pool;
use tonic::Code;

use crate::cluster::{
    Node, SIZE, controller, router_before, router_that_remembers, stop_and_forget, two_nodes,
};
use crate::requests::{create, delete, expect, list, new_volume, new_volume_at};

/// Its disk was put into another machine after all, and only the router remembers that.
#[tokio::test]
async fn a_pool_that_is_served_again_is_not_gone() {
    let (authority, mut a, b) = two_nodes().await;
    let mut c = Node::start("c", &authority, SIZE).await;
    let run = tempfile::tempdir().unwrap();
    let (router, peers) = router_that_remembers(&[&a, &b, &c], &authority, run.path()).await;
    let request = new_volume_at("v", &["a"]);
    let volume = create(&mut controller(&router), request).await.unwrap().volume_id;
    a.stop();
    c.stop();
    peers.poll().await;
    peers.forget("a", [a.pool.id().clone()].into()).await;
    peers.poll().await;
    let mut c = Node::serve("c", authority.files("c"), Arc::clone(&a.pool), c.address).await;
    peers.poll().await;
    let get = v1::ControllerGetVolumeRequest { volume_id: volume.clone() };
    controller(&router).controller_get_volume(get.clone()).await.unwrap();
    c.stop();
    let (router, _) = router_that_remembers(&[&a, &b, &c], &authority, run.path()).await;
    let mut client = controller(&router);
    expect(delete(&mut client, &volume).await, Code::Unavailable);
    expect(client.controller_get_volume(get).await, Code::Unavailable);
}

#[tokio::test]
async fn pools_of_a_node_that_was_replaced_stay_forgotten() {
    let (authority, a, mut b) = two_nodes().await;
    let (router, peers) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let volume = create(&mut client, new_volume_at("v", &["b"])).await.unwrap().volume_id;
    stop_and_forget(&mut b, &peers).await;
    // The new machine has the old name, and does not know its pools at first.
    let mut opening = Node::opening("b", authority.files("b"), b.address).await;
    peers.poll().await;
    expect(delete(&mut client, &volume).await, Code::Unavailable);
    opening.stop();
    peers.poll().await;
    expect(delete(&mut client, &volume).await, Code::Unavailable);
    let pool = Arc::clone(&Node::start("b", &authority, SIZE).await.pool);
    let replaced = Node::serve("b", authority.files("b"), pool, b.address).await;
    peers.poll().await;
    delete(&mut client, &volume).await.unwrap();
    client.list_volumes(list()).await.unwrap();
    drop(replaced);
}

#[tokio::test]
async fn a_node_that_is_there_can_have_lost_a_pool() {
    let (authority, a, mut b) = two_nodes().await;
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let request = new_volume_at("v", &["b"]);
    let volume = create(&mut controller(&router), request).await.unwrap().volume_id;
    b.stop();
    let pool = Arc::clone(&Node::start("b", &authority, SIZE).await.pool);
    let replaced = Node::serve("b", authority.files("b"), pool, b.address).await;
    let (router, peers) = router_before(&[&a, &replaced], &authority).await;
    let mut client = controller(&router);
    expect(delete(&mut client, &volume).await, Code::FailedPrecondition);
    peers.forget_pools("b", [b.pool.id().clone()].into()).await;
    peers.poll().await;
    delete(&mut client, &volume).await.unwrap();
    create(&mut client, new_volume_at("v", &["b"])).await.unwrap();
}

#[tokio::test]
async fn forgetting_another_pool_leaves_the_first_forgotten() {
    let (authority, a, mut b) = two_nodes().await;
    let (router, peers) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let volume = create(&mut client, new_volume_at("v", &["b"])).await.unwrap().volume_id;
    b.stop();
    peers.poll().await;
    peers.forget("b", [b.pool.id().clone()].into()).await;
    peers.forget("b", ["0badcafe".parse().unwrap()].into()).await;
    peers.poll().await;
    assert_eq!(peers.forgotten().len(), 2);
    delete(&mut client, &volume).await.unwrap();
}

#[tokio::test]
async fn a_restart_does_not_miss_a_forgotten_node() {
    let (authority, a, mut b) = two_nodes().await;
    let run = tempfile::tempdir().unwrap();
    let (_, peers) = router_that_remembers(&[&a, &b], &authority, run.path()).await;
    stop_and_forget(&mut b, &peers).await;
    for _ in 0..2 {
        let (router, _) = router_that_remembers(&[&a, &b], &authority, run.path()).await;
        controller(&router).list_volumes(list()).await.unwrap();
        create(&mut controller(&router), new_volume("v")).await.unwrap();
    }
    // Another daemon that was at its address, and was not forgotten.
    let pool = Arc::clone(&Node::start("c", &authority, SIZE).await.pool);
    let mut c = Node::serve("c", authority.files("c"), pool, b.address).await;
    let (_, peers) = router_that_remembers(&[&a, &c], &authority, run.path()).await;
    c.stop();
    peers.poll().await;
    let (router, _) = router_that_remembers(&[&a, &c], &authority, run.path()).await;
    expect(controller(&router).list_volumes(list()).await, Code::Unavailable);
}

/// The clock of the one who saw it last was ahead.
#[tokio::test]
async fn a_node_can_be_forgotten_whatever_the_clocks_say() {
    let (authority, a, mut b) = two_nodes().await;
    let (router, peers) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let volume = create(&mut client, new_volume_at("v", &["b"])).await.unwrap().volume_id;
    b.stop();
    let now = Verdict::now("b", false);
    let ahead = Verdict { at: now.at + 7_200_000, ..now };
    for resource in [Resource::Node("b".to_owned()), Resource::Pool(b.pool.id().clone())] {
        a.memory.judge(&resource, ahead.clone());
    }
    peers.poll().await;
    expect(delete(&mut client, &volume).await, Code::Unavailable);
    peers.forget("b", [b.pool.id().clone()].into()).await;
    peers.poll().await;
    delete(&mut client, &volume).await.unwrap();
    client.list_volumes(list()).await.unwrap();
}
