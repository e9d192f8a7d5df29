//! The health of volumes on several daemons, and snapshots that can be used from one place only.

use std::collections::BTreeSet;

use orlop_csi::proto::csi::v1;
use orlop_model::{Condition, HealthReason};
use tonic::Code;

use crate::cluster::{Node, controller, router_before, two_nodes};
use crate::requests::{at, create, expect, new_volume_at};

fn spoil(node: &Node, volume_id: &str) {
    let condition = Condition::abnormal(HealthReason::PoolFull, "below the floor");
    node.pool.set_condition(&volume_id.parse().unwrap(), condition);
}

fn health_of(volume_id: &str) -> v1::ControllerGetVolumeHealthRequest {
    v1::ControllerGetVolumeHealthRequest { volume_id: volume_id.to_owned(), ..Default::default() }
}

fn page(max_entries: i32, starting_token: String) -> v1::ControllerListVolumeHealthRequest {
    v1::ControllerListVolumeHealthRequest { max_entries, starting_token, ..Default::default() }
}

#[tokio::test]
async fn pages_list_each_abnormal_volume_once() {
    let (authority, a, b) = two_nodes().await;
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let mut sick = BTreeSet::new();
    for number in 0..12 {
        let node = if number % 3 == 0 { &a } else { &b };
        let request = new_volume_at(&format!("v{number}"), &[&node.name]);
        let id = create(&mut client, request).await.unwrap().volume_id;
        if number % 2 == 0 {
            spoil(node, &id);
            sick.insert(id);
        }
    }
    for max_entries in [0, 1, 2, 5, 6, 7] {
        let mut found = Vec::new();
        let mut token = String::new();
        loop {
            let answer = client.controller_list_volume_health(page(max_entries, token)).await;
            let listed = answer.unwrap().into_inner();
            let most = usize::try_from(max_entries).unwrap();
            assert!(max_entries == 0 || listed.entries.len() <= most);
            found.extend(listed.entries.into_iter().map(|entry| entry.volume_id));
            token = listed.next_token;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(found, sick.iter().cloned().collect::<Vec<_>>(), "pages of {max_entries}");
    }
    let garbage = page(0, "never issued".to_owned());
    expect(client.controller_list_volume_health(garbage).await, Code::Aborted);
    let negative = page(-1, String::new());
    expect(client.controller_list_volume_health(negative).await, Code::InvalidArgument);
}

#[tokio::test]
async fn the_daemon_of_the_volume_tells_its_health() {
    let (authority, a, mut b) = two_nodes().await;
    let (router, peers) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let on_a = create(&mut client, new_volume_at("on-a", &["a"])).await.unwrap().volume_id;
    let on_b = create(&mut client, new_volume_at("on-b", &["b"])).await.unwrap().volume_id;
    spoil(&b, &on_b);
    for (id, problems) in [(&on_a, 0), (&on_b, 1)] {
        let answer = client.controller_get_volume_health(health_of(id)).await.unwrap();
        let health = answer.into_inner().volume_health.unwrap();
        assert_eq!((&health.volume_id, health.health_statuses.len()), (id, problems));
    }
    expect(client.controller_get_volume_health(health_of("")).await, Code::InvalidArgument);
    expect(client.controller_get_volume_health(health_of("fake")).await, Code::NotFound);

    // What is on b could be anything, and what is missing from a list counts as healthy.
    b.stop();
    peers.poll().await;
    expect(client.controller_get_volume_health(health_of(&on_b)).await, Code::Unavailable);
    let all = page(0, String::new());
    expect(client.controller_list_volume_health(all).await, Code::Unavailable);
    client.controller_get_volume_health(health_of(&on_a)).await.unwrap();
}

#[tokio::test]
async fn snapshots_are_usable_from_the_node_of_their_source() {
    let (authority, a, b) = two_nodes().await;
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let volume = create(&mut client, new_volume_at("on-b", &["b"])).await.unwrap().volume_id;
    let from = |node: &str| v1::CreateSnapshotRequest {
        source_volume_id: volume.clone(),
        name: "s".to_owned(),
        accessibility_requirements: Some(v1::TopologyRequirement {
            requisite: vec![at(node)],
            ..Default::default()
        }),
        ..Default::default()
    };
    expect(client.create_snapshot(from("a")).await, Code::ResourceExhausted);
    let made = client.create_snapshot(from("b")).await.unwrap().into_inner().snapshot.unwrap();
    assert_eq!(made.accessible_topology, [at("b")]);
    let listed = client.list_snapshots(v1::ListSnapshotsRequest::default()).await.unwrap();
    assert_eq!(listed.into_inner().entries[0].snapshot, Some(made));
}
