//! All members are of one instant.

use orlop_tests::*;

use crate::group::{ids, members, take_down};

const MEMBERS: usize = 10;
const VOLUME: u64 = 320 * MIB;
const GROUPS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn mounted_members_on_an_xfs_pool_are_of_one_instant() {
    needs_root!();
    check(PoolFs::Xfs, mount("xfs")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mounted_members_on_a_btrfs_pool_are_of_one_instant() {
    needs_root!();
    check(PoolFs::Btrfs, mount("xfs")).await;
}

/// Writers of a raw device cannot be frozen; one snapshot of all files at once does
/// not need that.
#[tokio::test(flavor = "multi_thread")]
async fn raw_members_on_a_btrfs_pool_are_of_one_instant() {
    needs_root!();
    check(PoolFs::Btrfs, block()).await;
}

async fn check(fs: PoolFs, capability: v1::VolumeCapability) {
    let pool = TestPool::new(fs, 24 * GIB);
    // Notes of freezes go to memory, as they do where the run directory is below /run.
    let run = tempfile::tempdir_in("/dev/shm").unwrap();
    let launch = Launch::on(&pool).env("ORLOP_RUN_DIR", run.path());
    let daemon = launch.env("ORLOP_LOG", "info").start().await;
    let client = daemon.client();
    let nodes = members(&client, &vec![capability.clone(); MEMBERS], VOLUME).await;
    let writer = SequenceWriter::start(nodes.iter().map(OnNode::data_path).collect());
    let mut taken = Vec::new();
    for number in 0..GROUPS {
        writer.goes_on().await;
        let finished = writer.finished();
        let group = client.group_snapshot(&format!("group {number}"), &ids(&nodes)).await.unwrap();
        // The round that is being written has a number, but is not finished.
        let begun = writer.finished() + 1;
        assert_eq!(group.snapshots.len(), MEMBERS);
        taken.push((group, finished, begun));
    }
    writer.goes_on().await;
    writer.finish();
    if !capability.is_block() {
        report_windows(&daemon, &format!("{MEMBERS} members on {fs:?}"));
    }
    take_down(&client, &nodes).await;

    for (group, finished, begun) in taken {
        let mut stamps = Vec::new();
        for node in &nodes {
            stamps.push(restored_stamp(&client, group.member_of(&node.id), &capability).await);
        }
        report(&format!("{fs:?}: rounds {finished} to {begun}, stamps {stamps:?}"));
        assert_one_instant(&stamps, finished, begun);
        client.delete_group_snapshot(&group.group_snapshot_id, &group.member_ids()).await.unwrap();
    }
}

async fn restored_stamp(
    client: &Client,
    snapshot: &v1::Snapshot,
    capability: &v1::VolumeCapability,
) -> u64 {
    let create = client.create("restored").capability(capability.clone());
    let volume = create.from_snapshot(&snapshot.snapshot_id).done().await;
    let node = client.on_node(&volume, capability.clone());
    node.up().await;
    let stamp = read_sequence(&node.data_path());
    take_down(client, &[node]).await;
    stamp
}

/// For how long writers were held, as the daemon has measured it.
fn report_windows(daemon: &Daemon, what: &str) {
    let log = daemon.log();
    let lines = log.lines().filter(|line| line.contains("froze the writers for a snapshot"));
    let windows: Vec<u64> = lines.map(|line| field(line, "microseconds=")).collect();
    report(&format!("{what}: writers were held for {windows:?} microseconds"));
}

fn field(line: &str, key: &str) -> u64 {
    let (_, rest) = line.split_once(key).unwrap_or_else(|| panic!("no {key} in {line}"));
    let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

/// Where each member is for itself, that is said of each.
#[tokio::test(flavor = "multi_thread")]
async fn consistency_is_reported_for_each_member() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 8 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let nodes = members(&client, &[block(), mount("xfs"), block()], VOLUME).await;
    nodes[2].unpublish().await.unwrap();
    let request = v1::CreateVolumeGroupSnapshotRequest {
        name: "group".to_owned(),
        source_volume_ids: ids(&nodes),
        ..v1::CreateVolumeGroupSnapshotRequest::default()
    };
    let answer = client.group_controller().create_volume_group_snapshot(request).await.unwrap();
    let said = answer.metadata().get_all("orlop-consistency");
    let mut said: Vec<_> = said.iter().map(|value| value.to_str().unwrap().to_owned()).collect();
    let group = answer.into_inner().group_snapshot.unwrap();
    let promise = |node: &OnNode, what| format!("{}={what}", group.member_of(&node.id).snapshot_id);
    let mut expected = vec![
        promise(&nodes[0], "crash-alone"),
        promise(&nodes[1], "filesystem"),
        promise(&nodes[2], "filesystem"),
    ];
    said.sort();
    expected.sort();
    assert_eq!(said, expected);
    client.delete_group_snapshot(&group.group_snapshot_id, &group.member_ids()).await.unwrap();
    take_down(&client, &nodes).await;
}
