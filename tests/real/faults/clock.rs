//! The clock is set back. For a daemon that means records from the future.

use std::path::Path;

use orlop_tests::*;
use serde_json::Value;

use v1::snapshot_metadata_client::SnapshotMetadataClient;

const VOLUME: u64 = 16 * MIB;
const YEAR: i64 = 366 * 24 * 3600;

/// As if it had been made while the clock was a year ahead.
fn move_to_the_future(record: &Path) {
    let mut value: Value = serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
    let seconds = value["created"]["seconds"].as_i64().unwrap();
    value["created"]["seconds"] = (seconds + YEAR).into();
    std::fs::write(record, serde_json::to_vec(&value).unwrap()).unwrap();
}

fn created(snapshot: &v1::Snapshot) -> (i64, i32) {
    let time = snapshot.creation_time.as_ref().expect("a time");
    (time.seconds, time.nanos)
}

/// How many bytes the delta between both tells.
async fn delta(client: &Client, base: &str, target: &str) -> Answer<i64> {
    let request = v1::GetMetadataDeltaRequest {
        base_snapshot_id: base.to_owned(),
        target_snapshot_id: target.to_owned(),
        ..v1::GetMetadataDeltaRequest::default()
    };
    let mut changed = 0;
    let mut calls: SnapshotMetadataClient<_> = client.snapshot_metadata();
    let mut stream = calls.get_metadata_delta(request).await?.into_inner();
    while let Some(page) = stream.message().await? {
        changed += page.block_metadata.iter().map(|block| block.size_bytes).sum::<i64>();
    }
    Ok(changed)
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_works_after_the_clock_is_set_back() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let create = || client.create("volume").size(VOLUME).block();
    let volume = create().done().await;
    let group = VolumeGroups::of(&client).create("group", &[&volume.volume_id]).await.unwrap();
    let earlier = client.snapshot("earlier", &volume.volume_id).await.unwrap();
    daemon.terminate();
    for record in [
        pool.volume_record(&volume.volume_id),
        pool.snapshot_data(&earlier.snapshot_id).with_file_name("record.json"),
        pool.path.join("groups").join(format!("{}.json", group.volume_group_id)),
    ] {
        move_to_the_future(&record);
    }
    daemon.restart().await;

    // Nothing is younger or older by its time stamp than by what was done.
    assert!(!crate::faults::is_abnormal(&client, &volume.volume_id).await);
    assert_eq!(create().done().await, volume, "it is the same volume");
    let again = client.snapshot("earlier", &volume.volume_id).await.unwrap();
    let node = client.on_node(&volume, block());
    node.up().await;
    Pattern::new(1).write(&node.target, MIB);
    let later = client.snapshot("later", &volume.volume_id).await.unwrap();
    assert!(created(&again) > created(&earlier), "the record is from the future");
    assert!(created(&later) > created(&again), "the later one is later");
    let members = [volume.volume_id.clone()];
    let grouped = client.group_snapshot("latest", &members).await.unwrap();
    let latest = grouped.member_of(&volume.volume_id);
    assert!(created(latest) > created(&later), "the later one is later");
    let changed = delta(&client, &earlier.snapshot_id, &later.snapshot_id).await.unwrap();
    assert!(changed >= int(MIB), "{changed} bytes");
    delta(&client, &later.snapshot_id, &latest.snapshot_id).await.unwrap();
    let backwards = delta(&client, &later.snapshot_id, &earlier.snapshot_id).await;
    expect_code(backwards, Code::InvalidArgument);

    node.down().await;
    client.delete_group_snapshot(&grouped.group_snapshot_id, &grouped.member_ids()).await.unwrap();
    for snapshot in [&earlier, &later] {
        client.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
    }
    let mut groups = VolumeGroups::of(&client);
    groups.modify(&group.volume_group_id, &[]).await.unwrap();
    groups.delete(&group.volume_group_id).await.unwrap();
    client.delete(&volume.volume_id).await.unwrap();
}
