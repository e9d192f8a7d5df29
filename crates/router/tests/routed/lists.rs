//! Pages of what several daemons have, and their space.

use orlop_csi::proto::csi::v1;
use tonic::Code;

use crate::cluster::{Authority, Node, SIZE, controller, router_before, two_nodes};
use crate::requests::{at, create, delete, expect, new_volume_at};

#[tokio::test]
async fn pages_hold_each_volume_once() {
    let (authority, a, b) = two_nodes().await;
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let mut made = std::collections::BTreeSet::new();
    for number in 0..11 {
        let node = if number % 3 == 0 { "a" } else { "b" };
        let request = new_volume_at(&format!("v{number}"), &[node]);
        made.insert(create(&mut client, request).await.unwrap().volume_id);
    }
    for max_entries in [0, 1, 2, 3, 5, 10, 11, 12] {
        let mut found = Vec::new();
        let mut starting_token = String::new();
        loop {
            let request = v1::ListVolumesRequest { max_entries, starting_token };
            let page = client.list_volumes(request).await.unwrap().into_inner();
            assert!(
                max_entries == 0 || page.entries.len() <= usize::try_from(max_entries).unwrap()
            );
            found.extend(page.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id));
            if page.next_token.is_empty() {
                break;
            }
            starting_token = page.next_token;
        }
        assert_eq!(found, made.iter().cloned().collect::<Vec<_>>(), "pages of {max_entries}");
    }
    let request =
        v1::ListVolumesRequest { max_entries: 0, starting_token: "never issued".to_owned() };
    expect(client.list_volumes(request).await, Code::Aborted);
}

#[tokio::test]
async fn snapshots_are_listed_from_everywhere_or_one_source() {
    let (authority, a, b) = two_nodes().await;
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let mut sources = Vec::new();
    for node in ["a", "b"] {
        let volume = create(&mut client, new_volume_at(node, &[node])).await.unwrap().volume_id;
        for number in 0..2 {
            let request = v1::CreateSnapshotRequest {
                source_volume_id: volume.clone(),
                name: format!("{node}{number}"),
                ..Default::default()
            };
            client.create_snapshot(request).await.unwrap();
        }
        sources.push(volume);
    }
    let all = client.list_snapshots(v1::ListSnapshotsRequest::default()).await.unwrap();
    assert_eq!(all.into_inner().entries.len(), 4);
    for source in &sources {
        let request =
            v1::ListSnapshotsRequest { source_volume_id: source.clone(), ..Default::default() };
        let listed = client.list_snapshots(request).await.unwrap().into_inner().entries;
        assert_eq!(listed.len(), 2);
        assert!(
            listed.iter().all(|entry| entry.snapshot.as_ref().unwrap().source_volume_id == *source)
        );
    }
}

#[tokio::test]
async fn capacity_is_that_of_the_place_or_of_all() {
    let authority = Authority::new();
    let (a, b) =
        (Node::start("a", &authority, SIZE).await, Node::start("b", &authority, 2 * SIZE).await);
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let mut ask = async |place: Option<&str>| {
        let request =
            v1::GetCapacityRequest { accessible_topology: place.map(at), ..Default::default() };
        let answer = client.get_capacity(request).await.unwrap().into_inner();
        u64::try_from(answer.available_capacity).unwrap()
    };
    let (of_a, of_b) = (ask(Some("a")).await, ask(Some("b")).await);
    assert!(of_a > SIZE / 2 && of_a <= SIZE, "{of_a}");
    assert!(of_b > SIZE && of_b <= 2 * SIZE, "{of_b}");
    assert_eq!(ask(None).await, of_a + of_b);
    assert_eq!(ask(Some("c")).await, 0);
}

#[tokio::test]
async fn what_works_on_each_node_is_offered() {
    let (authority, a, b) = two_nodes().await;
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let request = v1::ControllerGetCapabilitiesRequest {};
    let offered = client.controller_get_capabilities(request).await.unwrap().into_inner();
    assert!(offered.capabilities.len() > 8, "{}", offered.capabilities.len());
    delete(&mut client, "never issued").await.unwrap();
}
