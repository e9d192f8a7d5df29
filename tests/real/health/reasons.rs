//! Real faults, as the health calls of CSI 1.13 tell them.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use orlop_sys::tool;
use orlop_tests::v1::VolumeHealthErrorType::{DataLoss, Degraded, Inaccessible};
use orlop_tests::v1::{StorageHealthErrorType, VolumeHealthErrorType};
use orlop_tests::*;

use crate::daemon::hung::until;

use super::{VOLUME, read_first_mib, remount, trigger_ext4_error, writable};

type Found = Vec<(VolumeHealthErrorType, String)>;

fn found(health: &v1::VolumeHealth) -> Found {
    let statuses = health.health_statuses.iter();
    statuses
        .map(|entry| {
            assert!(!entry.message.is_empty() && entry.message.len() <= 128, "{entry:?}");
            (entry.status(), entry.reason.clone())
        })
        .collect()
}

fn as_found(expected: &[(VolumeHealthErrorType, &str)]) -> Found {
    expected.iter().map(|(status, reason)| (*status, (*reason).to_owned())).collect()
}

/// What the controller says, which has to be the same in the list. The old condition agrees.
async fn by_controller(client: &Client, volume: &str) -> Found {
    let health = client.health(volume).await.unwrap();
    assert_eq!(health.volume_id, volume);
    let listed = client.list_health().await.unwrap();
    let entry = listed.iter().find(|entry| entry.volume_id == volume);
    match health.health_statuses.first() {
        None => assert_eq!(entry, None, "healthy volumes are left out"),
        Some(_) => assert_eq!(entry, Some(&health)),
    }
    let condition = client.condition(volume).await.unwrap();
    assert_eq!(condition.abnormal, !health.health_statuses.is_empty());
    if let Some(first) = health.health_statuses.first() {
        assert_eq!(condition.message, first.message, "one source for both");
    }
    found(&health)
}

async fn by_node(node: &OnNode) -> Found {
    found(&node.health().await.unwrap())
}

async fn until_healthy(node: &OnNode) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !by_node(node).await.is_empty() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(by_node(node).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_data_has_its_reason() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(VOLUME).block().done().await;
    let (id, image) = (&volume.volume_id, pool.volume_data(&volume.volume_id));
    assert_eq!(by_controller(&client, id).await, []);

    writable(&image).set_len(VOLUME - MIB).unwrap();
    let expected = as_found(&[(DataLoss, "BackingFileTruncated")]);
    assert_eq!(by_controller(&client, id).await, expected);
    writable(&image).set_len(VOLUME).unwrap();
    assert_eq!(by_controller(&client, id).await, []);

    let aside = image.with_extension("aside");
    fs::rename(&image, &aside).unwrap();
    let expected = as_found(&[(DataLoss, "BackingFileMissing")]);
    assert_eq!(by_controller(&client, id).await, expected);
    fs::create_dir(&image).unwrap();
    let expected = as_found(&[(DataLoss, "BackingFileReplaced")]);
    assert_eq!(by_controller(&client, id).await, expected);
    fs::remove_dir(&image).unwrap();
    fs::rename(&aside, &image).unwrap();
    assert_eq!(by_controller(&client, id).await, []);
}

/// The device goes on with the file that has no name.
#[tokio::test(flavor = "multi_thread")]
async fn data_that_goes_while_it_is_used_has_its_reason() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(VOLUME).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    expect_code(node.health().await, Code::NotFound);
    node.up().await;
    assert_eq!(by_node(&node).await, []);
    let image = pool.volume_data(&node.id);
    let aside = image.with_extension("aside");
    fs::rename(&image, &aside).unwrap();
    let missing = as_found(&[(DataLoss, "BackingFileMissing")]);
    assert_eq!(by_node(&node).await, missing);
    assert_eq!(by_controller(&client, &node.id).await, missing);
    fs::copy(&aside, &image).unwrap();
    let replaced = as_found(&[(DataLoss, "BackingFileReplaced")]);
    assert_eq!(by_node(&node).await, replaced);
    fs::rename(&aside, &image).unwrap();
    assert_eq!(by_node(&node).await, []);
    node.down().await;
    expect_code(node.health().await, Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_has_its_reason() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(VOLUME).block().done().await;
    daemon.terminate();
    let record = pool.volume_record(&volume.volume_id);
    let before = fs::read(&record).unwrap();
    fs::write(&record, &before[..before.len() / 2]).unwrap();
    daemon.restart().await;
    let expected = as_found(&[(Inaccessible, "RecordDamaged")]);
    assert_eq!(by_controller(&client, &volume.volume_id).await, expected);
    daemon.terminate();
    fs::write(&record, before).unwrap();
    daemon.restart().await;
    assert_eq!(by_controller(&client, &volume.volume_id).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn filesystems_in_trouble_have_their_reasons() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(VOLUME).fs("xfs").done().await;
    let node = client.on_node(&volume, mount("xfs"));
    node.up().await;
    remount(&node.staging, "ro");
    assert_eq!(by_node(&node).await, as_found(&[(Degraded, "FilesystemReadOnly")]));
    remount(&node.staging, "rw");
    assert_eq!(by_node(&node).await, []);
    tool::run("umount", [&node.target]).unwrap();
    assert_eq!(by_node(&node).await, as_found(&[(Inaccessible, "MountMissing")]));
    node.publish().await.unwrap();
    assert_eq!(by_node(&node).await, []);

    tool::run("xfs_io", ["-x", "-c", "shutdown", node.staging.to_str().unwrap()]).unwrap();
    assert_eq!(by_node(&node).await, as_found(&[(Inaccessible, "FilesystemShutDown")]));
    // From elsewhere nothing is wrong with it.
    assert_eq!(by_controller(&client, &node.id).await, []);
    node.down().await;
    node.up().await;
    assert_eq!(by_node(&node).await, []);
    node.down().await;
}

/// Without any call, once when it begins and once when it is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_filesystem_that_turns_read_only_is_logged() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(VOLUME).fs("xfs").done().await;
    let node = client.on_node(&volume, mount("xfs"));
    node.up().await;
    let lines = |level: &str, words: &str| {
        let log = daemon.log();
        log.lines().filter(|line| line.contains(level) && line.contains(words)).count()
    };
    remount(&node.staging, "ro");
    until("it is logged", || async { lines("WARN", "has become read-only") == 1 }).await;
    let events = daemon.launch().run(&["events", "--level", "warn"]).stdout;
    assert!(events.contains("has become read-only"), "{events}");
    let status = daemon.launch().run(&["pool", "status"]).stdout;
    assert!(status.contains("1 volume with FilesystemReadOnly"), "{status}");
    remount(&node.staging, "rw");
    until("the end is logged", || async { lines("INFO", "on this node is over") == 1 }).await;
    assert_eq!(lines("WARN", "has become read-only"), 1);
    node.down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counted_errors_have_their_reason() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(VOLUME).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    node.up().await;
    trigger_ext4_error(&pool, &node);
    let deadline = Instant::now() + Duration::from_secs(60);
    while by_node(&node).await.is_empty() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(by_node(&node).await, as_found(&[(Degraded, "FilesystemErrors")]));
    node.down().await;
}

/// Both are reported: the one is not over because of the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_stands_beside_what_is_worse() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let daemon = Launch::on(&pool).env("ORLOP_POOL_FLOOR", "40%").start().await;
    let client = daemon.client();
    let volume = client.create("volume").size(64 * MIB).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    assert_eq!(client.storage_health().await.unwrap(), []);
    let hog = pool.path.join("hog");
    tool::run("fallocate", ["--length", "700M", hog.to_str().unwrap()]).unwrap();
    let full = as_found(&[(Degraded, "PoolFull")]);
    assert_eq!(by_controller(&client, &node.id).await, full);
    assert_eq!(by_node(&node).await, full);
    let storage = client.storage_health().await.unwrap();
    assert_eq!(storage, [(StorageHealthErrorType::StorageDegraded, "PoolFull".to_owned())]);

    let image = pool.volume_data(&node.id);
    let aside = image.with_extension("aside");
    fs::rename(&image, &aside).unwrap();
    let both = as_found(&[(DataLoss, "BackingFileMissing"), (Degraded, "PoolFull")]);
    assert_eq!(by_controller(&client, &node.id).await, both);
    assert_eq!(by_node(&node).await, both);
    fs::rename(&aside, &image).unwrap();
    fs::remove_file(&hog).unwrap();
    // XFS gives the space back a moment later.
    until_healthy(&node).await;
    assert_eq!(client.storage_health().await.unwrap(), []);
    node.down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_is_away_has_its_reason() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(64 * MIB).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    let elsewhere = pool.path.with_extension("elsewhere");
    fs::rename(&pool.path, &elsewhere).unwrap();
    let away = as_found(&[(Inaccessible, "PoolUnreachable")]);
    assert_eq!(by_controller(&client, &node.id).await, away);
    assert_eq!(by_node(&node).await, away);
    let storage = client.storage_health().await.unwrap();
    let unreachable = StorageHealthErrorType::StorageUnreachable;
    assert_eq!(storage, [(unreachable, "PoolUnreachable".to_owned())]);
    fs::rename(&elsewhere, &pool.path).unwrap();
    assert_eq!(by_controller(&client, &node.id).await, []);
    assert_eq!(by_node(&node).await, []);
    assert_eq!(client.storage_health().await.unwrap(), []);
    node.down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_stage_explains_itself() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(VOLUME).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    let image = pool.volume_data(&node.id);
    node.up().await;
    node.down().await;
    let first_mib = read_first_mib(&image);
    let spoil = || writable(&image).write_all_at(&vec![0; 1 << 20], 0).unwrap();
    spoil();
    let why = expect_code(node.stage().await, Code::DataLoss);
    let health = node.health().await.unwrap();
    assert_eq!(found(&health), as_found(&[(Inaccessible, "StageFailed")]));
    let said = &health.health_statuses[0].message;
    let same = said.trim_end_matches('…');
    assert!(why.message().starts_with(same), "{said} is not of {why}");

    writable(&image).write_all_at(&first_mib, 0).unwrap();
    node.up().await;
    assert_eq!(by_node(&node).await, []);
    node.down().await;
    expect_code(node.health().await, Code::NotFound);

    // In memory alone: the next attempt tells it again.
    spoil();
    expect_code(node.stage().await, Code::DataLoss);
    daemon.restart().await;
    expect_code(node.health().await, Code::NotFound);
    expect_code(node.stage().await, Code::DataLoss);
    assert_eq!(by_node(&node).await, as_found(&[(Inaccessible, "StageFailed")]));
    node.unstage().await.unwrap();
    expect_code(node.health().await, Code::NotFound);
}
