//! Where volumes are created, and that no name is given twice.

use orlop_csi::proto::csi::v1;
use orlop_model::Pool;
use tonic::Code;

use crate::cluster::{Authority, Node, SIZE, controller, router_before, two_nodes};
use crate::requests::{MIB, create, delete, expect, new_volume, new_volume_at};

fn volumes(node: &Node) -> usize {
    node.pool.catalogue().volumes(None, 0).unwrap().len()
}

#[tokio::test]
async fn topology_then_free_space_decide() {
    let authority = Authority::new();
    let (a, b) =
        (Node::start("a", &authority, SIZE).await, Node::start("b", &authority, 4 * SIZE).await);
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    create(&mut client, new_volume("anywhere")).await.unwrap();
    assert_eq!((volumes(&a), volumes(&b)), (0, 1), "b has more space");
    create(&mut client, new_volume_at("preferred", &["a", "b"])).await.unwrap();
    assert_eq!((volumes(&a), volumes(&b)), (1, 1), "a is preferred");
    let nowhere = create(&mut client, new_volume_at("nowhere", &["c"])).await;
    expect(nowhere, Code::ResourceExhausted);
    let mut large = new_volume_at("large", &["a", "b"]);
    large.capacity_range = Some(v1::CapacityRange { required_bytes: 2048 * MIB, limit_bytes: 0 });
    create(&mut client, large.clone()).await.unwrap();
    assert_eq!((volumes(&a), volumes(&b)), (1, 2), "a is full");
    large.name = "too large".to_owned();
    large.capacity_range = Some(v1::CapacityRange { required_bytes: 8192 * MIB, limit_bytes: 0 });
    expect(create(&mut client, large.clone()).await, Code::OutOfRange);
    large.capacity_range = Some(v1::CapacityRange { required_bytes: 3072 * MIB, limit_bytes: 0 });
    expect(create(&mut client, large).await, Code::ResourceExhausted);
    assert_eq!((volumes(&a), volumes(&b)), (1, 2));
}

#[tokio::test]
async fn a_repeated_creation_meets_the_first_one() {
    let authority = Authority::new();
    let (a, b) =
        (Node::start("a", &authority, SIZE).await, Node::start("b", &authority, 2 * SIZE).await);
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let first = create(&mut client, new_volume("v")).await.unwrap();
    // Now a has more space.
    let mut large = new_volume_at("large", &["b"]);
    large.capacity_range = Some(v1::CapacityRange { required_bytes: 1536 * MIB, limit_bytes: 0 });
    create(&mut client, large).await.unwrap();
    assert_eq!(create(&mut client, new_volume("v")).await.unwrap(), first);
    let mut other = new_volume("v");
    other.capacity_range =
        Some(v1::CapacityRange { required_bytes: 2 * MIB, limit_bytes: 4 * MIB });
    expect(create(&mut client, other).await, Code::AlreadyExists);
    assert_eq!((volumes(&a), volumes(&b)), (0, 2));
    delete(&mut client, &first.volume_id).await.unwrap();
    create(&mut client, new_volume("v")).await.unwrap();
    assert_eq!((volumes(&a), volumes(&b)), (1, 1), "a name that is free again goes anywhere");
}

#[tokio::test]
async fn a_snapshot_of_another_volume_has_its_name() {
    let (authority, a, b) = two_nodes().await;
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let one = create(&mut client, new_volume_at("one", &["a"])).await.unwrap();
    let two = create(&mut client, new_volume_at("two", &["b"])).await.unwrap();
    let request = |source: &v1::Volume| v1::CreateSnapshotRequest {
        source_volume_id: source.volume_id.clone(),
        name: "s".to_owned(),
        ..Default::default()
    };
    let first = client.create_snapshot(request(&one)).await.unwrap().into_inner();
    assert_eq!(client.create_snapshot(request(&one)).await.unwrap().into_inner(), first);
    expect(client.create_snapshot(request(&two)).await, Code::AlreadyExists);
}

/// Two routers, each with its own idea of who has more space.
#[tokio::test(flavor = "multi_thread")]
async fn routers_at_once_create_one_volume() {
    let (authority, a, b) = two_nodes().await;
    let c = Node::start("c", &authority, SIZE).await;
    let mut routers = Vec::new();
    for _ in 0..3 {
        routers.push(router_before(&[&a, &b, &c], &authority).await.0);
    }
    for round in 0..20 {
        let mut creating = tokio::task::JoinSet::new();
        for (number, router) in routers.iter().enumerate() {
            let mut client = controller(router);
            // Each prefers another node.
            let mut nodes = ["a", "b", "c"];
            nodes.rotate_left(number);
            let request = new_volume_at(&format!("v{round}"), &nodes);
            creating.spawn(async move { create(&mut client, request).await });
        }
        let mut made = std::collections::BTreeSet::new();
        while let Some(outcome) = creating.join_next().await {
            match outcome.unwrap() {
                Ok(volume) => drop(made.insert(volume.volume_id)),
                Err(status) => assert_eq!(status.code(), Code::Aborted, "{status}"),
            }
        }
        assert_eq!(made.len(), 1, "round {round}: {made:?}");
        assert_eq!(volumes(&a) + volumes(&b) + volumes(&c), round + 1);
    }
}

/// The caller hangs up at any moment, and calls again, also through another router.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_creation_is_not_made_elsewhere() {
    let (authority, a, b) = two_nodes().await;
    let (one, _) = router_before(&[&a, &b], &authority).await;
    let (two, _) = router_before(&[&a, &b], &authority).await;
    for round in 0..40u64 {
        let name = format!("v{round}");
        let mut client = controller(&one);
        let first = create(&mut client, new_volume_at(&name, &["a", "b"]));
        let timeout = std::time::Duration::from_micros(round * 150);
        let _ = tokio::time::timeout(timeout, first).await;
        let mut client = controller(&two);
        let volume = loop {
            match create(&mut client, new_volume_at(&name, &["b", "a"])).await {
                Ok(volume) => break volume,
                Err(status) => assert_eq!(status.code(), Code::Aborted, "{status}"),
            }
        };
        let listed = client.list_volumes(v1::ListVolumesRequest::default()).await.unwrap();
        let ids: Vec<_> =
            listed.into_inner().entries.into_iter().map(|e| e.volume.unwrap().volume_id).collect();
        assert_eq!(ids, [volume.volume_id.as_str()], "round {round}");
        delete(&mut client, &volume.volume_id).await.unwrap();
    }
}
