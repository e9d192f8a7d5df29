//! A group is there with all its members, or not at all.

use std::fs::File;

use orlop_tests::*;

use crate::group::{assert_no_snapshot, ids, members, take_down};

const VOLUME: u64 = 64 * MIB;
const DATA: u64 = 24 * MIB;

on_every_pool!(
    group_calls_are_idempotent_and_errors_have_codes,
    members_outlive_their_volumes,
    damaged_member_leaves_no_group_snapshot,
);

/// Not in use, so that they can be copied on every pool.
async fn idle_members(client: &Client, count: usize) -> Vec<OnNode> {
    let nodes = members(client, &vec![block(); count], VOLUME).await;
    for (node, seed) in nodes.iter().zip(0..) {
        Pattern::new(seed).write(&node.target, DATA);
        node.down().await;
    }
    nodes
}

async fn group_calls_are_idempotent_and_errors_have_codes(fs: PoolFs) {
    let pool = TestPool::new(fs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let nodes = idle_members(&client, 3).await;
    let mut sources = ids(&nodes);
    let group = client.group_snapshot("group", &sources).await.unwrap();
    assert!(group.ready_to_use);
    assert_eq!(group.snapshots.len(), 3);
    for member in &group.snapshots {
        assert_eq!(member.group_snapshot_id, group.group_snapshot_id);
        assert_eq!(member.creation_time, group.creation_time, "one instant");
    }
    sources.reverse();
    assert_eq!(client.group_snapshot("group", &sources).await.unwrap(), group);
    let other = client.group_snapshot("group", &sources[1..]).await;
    expect_code(other, Code::AlreadyExists);
    let missing = sources[0].replace(|digit: char| digit.is_ascii_digit(), "0");
    let unknown = client.group_snapshot("other", &[sources[1].clone(), missing]).await;
    expect_code(unknown, Code::NotFound);
    let mut listed = client.list_snapshots().await.unwrap();
    let mut made = group.snapshots.clone();
    listed.sort_by(|one, other| one.snapshot_id.cmp(&other.snapshot_id));
    made.sort_by(|one, other| one.snapshot_id.cmp(&other.snapshot_id));
    assert_eq!(listed, made);

    let (id, mut own) = (&group.group_snapshot_id, group.member_ids());
    own.reverse();
    assert_eq!(client.get_group_snapshot(id, &own).await.unwrap(), group);
    expect_code(client.get_group_snapshot(id, &own[1..]).await, Code::InvalidArgument);
    expect_code(client.delete_group_snapshot(id, &own[1..]).await, Code::InvalidArgument);
    expect_code(client.delete_snapshot(&own[0]).await, Code::InvalidArgument);
    assert_eq!(client.get_group_snapshot(id, &own).await.unwrap(), group);

    client.delete_group_snapshot(id, &own).await.unwrap();
    assert_no_snapshot(&pool, &client).await;
    client.delete_group_snapshot(id, &own).await.unwrap();
    expect_code(client.get_group_snapshot(id, &own).await, Code::NotFound);
    for node in &nodes {
        client.delete(&node.id).await.unwrap();
    }
}

async fn members_outlive_their_volumes(fs: PoolFs) {
    let pool = TestPool::new(fs, 4 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let nodes = idle_members(&client, 3).await;
    let group = client.group_snapshot("group", &ids(&nodes)).await.unwrap();
    for node in &nodes {
        client.delete(&node.id).await.unwrap();
    }
    daemon.restart().await;
    let (id, own) = (&group.group_snapshot_id, group.member_ids());
    assert_eq!(client.get_group_snapshot(id, &own).await.unwrap(), group);
    for (node, seed) in nodes.iter().zip(0..) {
        let member = &group.member_of(&node.id).snapshot_id;
        let restored = client.create("restored").block().from_snapshot(member).done().await;
        let restored = client.on_node(&restored, block());
        restored.up().await;
        Pattern::new(seed).check(&restored.target, DATA);
        take_down(&client, &[restored]).await;
    }
    client.delete_group_snapshot(id, &own).await.unwrap();
    assert_no_snapshot(&pool, &client).await;
}

async fn damaged_member_leaves_no_group_snapshot(fs: PoolFs) {
    let pool = TestPool::new(fs, 4 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let nodes = idle_members(&client, 4).await;
    for node in &nodes {
        let image = File::options().write(true).open(pool.volume_data(&node.id)).unwrap();
        image.set_len(VOLUME - MIB).unwrap();
        expect_code(client.group_snapshot("group", &ids(&nodes)).await, Code::DataLoss);
        assert_no_snapshot(&pool, &client).await;
        image.set_len(VOLUME).unwrap();
    }
    daemon.restart().await;
    assert_no_snapshot(&pool, &client).await;
    let group = client.group_snapshot("group", &ids(&nodes)).await.unwrap();
    client.delete_group_snapshot(&group.group_snapshot_id, &group.member_ids()).await.unwrap();
    for node in &nodes {
        client.delete(&node.id).await.unwrap();
    }
}

/// There is room for some of the members, but not for all.
#[tokio::test(flavor = "multi_thread")]
async fn group_snapshot_needs_space_for_all_members() {
    needs_root!();
    let pool = TestPool::directory_of(480 * MIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let nodes = idle_members(&client, 4).await;
    // What the files take is measured now and then, and at each start.
    daemon.restart().await;
    let available = client.capacity().await.unwrap().available_capacity;
    let ballast = u64::try_from(available).unwrap().checked_sub(3 * DATA + MIB).unwrap();
    let file = File::create(pool.path.join("ballast")).unwrap();
    orlop_sys::file::preallocate(&file, 0, ballast).unwrap();
    let before = client.capacity().await.unwrap().available_capacity;
    assert!(before > int(2 * DATA) && before < int(4 * DATA), "{before}");
    let refused = client.group_snapshot("group", &ids(&nodes)).await;
    expect_code(refused, Code::ResourceExhausted);
    assert_no_snapshot(&pool, &client).await;
    let after = client.capacity().await.unwrap().available_capacity;
    assert!(after + int(MIB) >= before, "{before}, then {after}: space is still held");

    let group = client.group_snapshot("group", &ids(&nodes[..2])).await.unwrap();
    client.delete_group_snapshot(&group.group_snapshot_id, &group.member_ids()).await.unwrap();
    for node in &nodes {
        client.delete(&node.id).await.unwrap();
    }
}
