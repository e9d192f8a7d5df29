//! Copies of volumes that are in use and have lost their node record.

use orlop_sys::mounts;
use orlop_tests::*;

use crate::restart::unrecorded::{delete_once_unused, lose_record};

const VOLUME: u64 = 320 * MIB;
/// Enough that copying it takes much longer than writing one sequence number.
const DATA: u64 = 128 * MIB;

/// The snapshot's id and its consistency (`orlop-consistency`).
async fn snapshot_with_consistency(
    client: &Client,
    name: &str,
    source: &str,
) -> Answer<(String, String)> {
    let request = v1::CreateSnapshotRequest {
        source_volume_id: source.to_owned(),
        name: name.to_owned(),
        ..v1::CreateSnapshotRequest::default()
    };
    let answer = client.controller().create_snapshot(request).await?;
    let consistency =
        answer.metadata().get("orlop-consistency").unwrap().to_str().unwrap().to_owned();
    let id = answer.into_inner().snapshot.unwrap().snapshot_id;
    let of_snapshot = consistency.strip_prefix(&format!("{id}=")).unwrap().to_owned();
    Ok((id, of_snapshot))
}

/// On a pool that copies piece by piece, so that writes during the copy would show in it.
#[tokio::test(flavor = "multi_thread")]
async fn writer_without_a_record_is_frozen() {
    needs_root!();
    let pool = TestPool::directory_of(4 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let mut freezes = 0;
    for fs in ["xfs", "ext4", "btrfs"] {
        let create = |what: &str| client.create(&format!("{what} {fs}")).fs(fs).size(VOLUME);
        let source = client.on_node(&create("source").done().await, mount(fs));
        source.up().await;
        let sequence_files = |node: &OnNode| ["a", "b"].map(|name| node.target.join(name)).to_vec();
        let writer = SequenceWriter::start(sequence_files(&source));
        Pattern::new(1).write(&source.data_path(), DATA);
        daemon.kill9();
        lose_record(&daemon, &source.id);
        daemon.restart().await;
        writer.goes_on().await;

        let finished = writer.finished();
        let (snapshot, consistency) =
            snapshot_with_consistency(&client, fs, &source.id).await.unwrap();
        assert_eq!(consistency, "filesystem", "{fs}");
        freezes += 1;
        let log = daemon.log();
        let frozen = log.lines().filter(|line| line.contains("froze the writers for a snapshot"));
        assert_eq!(frozen.count(), freezes, "{fs}: {log}");
        let cloned = create("clone").from_volume(&source.id).done().await;
        freezes += 1;
        let begun = writer.finished() + 1;
        writer.goes_on().await;
        let restored = create("restored").from_snapshot(&snapshot).done().await;
        for copy in [restored, cloned] {
            let copy = client.on_node(&copy, mount(fs));
            copy.up().await;
            let sequences: Vec<u64> =
                sequence_files(&copy).iter().map(|path| read_sequence(path)).collect();
            assert_one_instant(&sequences, finished, begun);
            copy.down().await;
            client.delete(&copy.id).await.unwrap();
        }
        writer.finish();
        source.unpublish().await.unwrap();
        source.unstage().await.unwrap();
        client.delete(&source.id).await.unwrap();
        client.delete_snapshot(&snapshot).await.unwrap();
    }
}

/// Neither a mount in another mount namespace nor a raw device can be frozen.
#[tokio::test(flavor = "multi_thread")]
async fn unfreezable_volumes_are_reported_as_crash_consistent() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let mounted = client.create("mounted").size(VOLUME).fs("ext4").done().await;
    let mounted = client.on_node(&mounted, mount("ext4"));
    let raw = client.create("raw").size(VOLUME).block().done().await;
    let raw = client.on_node(&raw, block());
    for node in [&mounted, &raw] {
        node.up().await;
    }
    let holder = MountHolder::of(&[&mounted.staging]);
    daemon.kill9();
    for node in [&mounted, &raw] {
        lose_record(&daemon, &node.id);
    }
    for path in [&mounted.target, &mounted.staging] {
        mounts::ensure_unmounted(path).unwrap();
    }
    daemon.restart().await;
    for node in [&mounted, &raw] {
        let (snapshot, consistency) =
            snapshot_with_consistency(&client, &node.id, &node.id).await.unwrap();
        assert_eq!(consistency, "crash", "{}", node.id);
        client.delete_snapshot(&snapshot).await.unwrap();
    }
    let request = v1::CreateVolumeGroupSnapshotRequest {
        name: "both".to_owned(),
        source_volume_ids: vec![mounted.id.clone(), raw.id.clone()],
        ..v1::CreateVolumeGroupSnapshotRequest::default()
    };
    let answer = client.group_controller().create_volume_group_snapshot(request).await.unwrap();
    let consistency: Vec<_> = answer.metadata().get_all("orlop-consistency").iter().collect();
    assert!(
        consistency.iter().all(|it| it.to_str().unwrap().ends_with("=crash-alone")),
        "{consistency:?}"
    );
    let group = answer.into_inner().group_snapshot.unwrap();
    client.delete_group_snapshot(&group.group_snapshot_id, &group.member_ids()).await.unwrap();
    drop(holder);
    std::fs::remove_dir(&mounted.target).unwrap();
    raw.unpublish().await.unwrap();
    for node in [&mounted, &raw] {
        delete_once_unused(&client, &node.id).await;
    }
}

/// A pool that copies piece by piece cannot copy a volume while it is written to.
#[tokio::test(flavor = "multi_thread")]
async fn raw_writer_without_a_record_is_detected() {
    needs_root!();
    let pool = TestPool::directory_of(2 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("raw").size(VOLUME).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    Pattern::new(1).write_at(&node.target, 8 * MIB, DATA);
    let workload = Workload::writing(&node.target);
    workload.goes_on().await;
    daemon.kill9();
    lose_record(&daemon, &node.id);
    daemon.restart().await;
    workload.goes_on().await;
    let torn = snapshot_with_consistency(&client, "torn", &node.id).await;
    expect_code(torn, Code::FailedPrecondition);
    workload.finish();
    let (snapshot, consistency) =
        snapshot_with_consistency(&client, "quiet", &node.id).await.unwrap();
    assert_eq!(consistency, "crash");
    client.delete_snapshot(&snapshot).await.unwrap();
    node.unpublish().await.unwrap();
    client.delete(&node.id).await.unwrap();
}
