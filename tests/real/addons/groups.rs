//! Volume groups, from their beginning to their end.

use orlop_tests::*;

const VOLUME: u64 = 16 * MIB;

on_every_pool!(a_group_is_made_changed_and_deleted);

fn owned(members: &[&str]) -> Vec<String> {
    members.iter().map(ToString::to_string).collect()
}

fn members(group: &volumegroup::VolumeGroup) -> Vec<&str> {
    group.volumes.iter().map(|volume| volume.volume_id.as_str()).collect()
}

#[track_caller]
fn assert_members(group: &volumegroup::VolumeGroup, expected: &[&str]) {
    let (mut found, mut expected) = (members(group), expected.to_vec());
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

async fn a_group_is_made_changed_and_deleted(fs: PoolFs) {
    let pool = TestPool::new(fs, 2 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let mut volumes = Vec::new();
    for name in ["a", "b", "c"] {
        volumes.push(client.create(name).size(VOLUME).block().done().await.volume_id);
    }
    let [a, b, c] = volumes.iter().map(String::as_str).collect::<Vec<_>>()[..] else {
        panic!("three volumes");
    };
    let mut groups = VolumeGroups::of(&client);
    let group = groups.create("group", &[a, b]).await.unwrap();
    assert_members(&group, &[a, b]);
    assert_eq!(groups.create("group", &[a, b]).await.unwrap(), group);
    let id = group.volume_group_id.as_str();
    let empty = groups.create("empty", &[]).await.unwrap();
    assert_members(&empty, &[]);
    assert_eq!(groups.list().await.len(), 2);

    expect_code(client.delete(a).await, Code::FailedPrecondition);
    let other = groups.modify(&empty.volume_group_id, &[a]).await;
    expect_code(other, Code::FailedPrecondition);
    expect_code(groups.delete(id).await, Code::FailedPrecondition);
    let kept = client.list_volumes().await.unwrap();
    assert_eq!(kept.len(), 3, "a group never takes its volumes along");

    let changed = groups.modify(id, &[b, c]).await.unwrap();
    assert_members(&changed, &[b, c]);
    assert_eq!(groups.modify(id, &[b, c]).await.unwrap(), changed);
    client.delete(a).await.unwrap();
    daemon.restart().await;
    assert_eq!(groups.get(id).await.unwrap(), changed, "it outlives the daemon");
    expect_code(client.delete(c).await, Code::FailedPrecondition);
    let snapshots = client.group_snapshot("all of it", &owned(&members(&changed))).await.unwrap();
    assert_eq!(snapshots.snapshots.len(), 2);

    let emptied = groups.modify(id, &[]).await.unwrap();
    assert_members(&emptied, &[]);
    for group in [id, empty.volume_group_id.as_str()] {
        groups.delete(group).await.unwrap();
        groups.delete(group).await.unwrap();
        expect_code(groups.get(group).await, Code::NotFound);
    }
    assert_eq!(groups.list().await, []);
    for volume in [b, c] {
        client.delete(volume).await.unwrap();
    }
    let own = snapshots.member_ids();
    client.delete_group_snapshot(&snapshots.group_snapshot_id, &own).await.unwrap();
}
