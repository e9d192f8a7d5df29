//! What can be wrong in the pool itself.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use orlop_sys::file;
use orlop_tests::*;

use crate::doctor::fixture::{Fixture, doctor, footprint};

on_every_pool!(
    a_sound_pool_has_no_findings,
    data_without_a_record_is_quarantined,
    record_without_data_is_quarantined,
    damaged_objects_are_reported_and_kept,
    longer_data_is_truncated_unless_it_holds_bytes,
    leftovers_are_removed
);

async fn a_sound_pool_has_no_findings(fs: PoolFs) {
    let mut fixture = Fixture::new(fs).await;
    let id = fixture.block_volume("sound").await;
    let sources = [id.clone(), fixture.block_volume("other").await];
    fixture.client.snapshot("s", &id).await.unwrap();
    fixture.client.group_snapshot("g", &sources).await.unwrap();
    fixture.daemon.terminate();
    let before = footprint(&fixture.pool.path);
    fixture.doctor(&["--repair"]).expect(0, &[]);
    assert_eq!(footprint(&fixture.pool.path), before);
}

async fn data_without_a_record_is_quarantined(fs: PoolFs) {
    let mut fixture = Fixture::new(fs).await;
    let (id, sound) = (fixture.block_volume("a").await, fixture.block_volume("b").await);
    fixture.daemon.terminate();
    let kept = footprint(&fixture.home(&sound));
    fs::remove_file(fixture.pool.volume_record(&id)).unwrap();
    fixture.repair("data-without-record");
    let aside = fixture.pool.path.join("set-aside").join(format!("{id}.0"));
    Pattern::new(7).check(&aside.join("data"), MIB);
    assert_eq!(footprint(&fixture.home(&sound)), kept, "the other volume is not touched");
    fixture.daemon.restart().await;
    fixture.client.get_volume(&sound).await.unwrap();
    expect_code(fixture.client.get_volume(&id).await, Code::NotFound);
    Pattern::new(7).check(&aside.join("data"), MIB);
}

async fn record_without_data_is_quarantined(fs: PoolFs) {
    let mut fixture = Fixture::new(fs).await;
    let id = fixture.block_volume("a").await;
    fixture.daemon.terminate();
    fs::remove_file(fixture.pool.volume_data(&id)).unwrap();
    fixture.repair("data-missing");
    fixture.daemon.restart().await;
    expect_code(fixture.client.get_volume(&id).await, Code::NotFound);
    fixture.client.delete(&id).await.expect("what is gone is deleted");
}

/// The word of the health calls, for programs and for people.
#[track_caller]
fn names_reason(fixture: &Fixture, reason: &str) {
    let document = fixture.doctor(&[]).text;
    assert!(document.contains(&format!(r#""reason": "{reason}""#)), "{document}");
    let lines = fixture.daemon.launch().run(&["doctor"]).stdout;
    assert!(lines.contains(&format!(" ({reason}); ")), "{lines}");
}

async fn damaged_objects_are_reported_and_kept(fs: PoolFs) {
    let mut fixture = Fixture::new(fs).await;
    let id = fixture.block_volume("a").await;
    fixture.daemon.terminate();
    let record = fixture.pool.volume_record(&id);
    let text = fs::read(&record).unwrap();
    fs::write(&record, &text[..text.len() / 2]).unwrap();
    fixture.not_repairable("record-damaged");
    names_reason(&fixture, "RecordDamaged");
    fs::write(&record, text).unwrap();

    let data = fixture.pool.volume_data(&id);
    OpenOptions::new().write(true).open(&data).unwrap().set_len(15 * MIB).unwrap();
    fixture.not_repairable("data-short");
    names_reason(&fixture, "BackingFileTruncated");
    OpenOptions::new().write(true).open(&data).unwrap().set_len(16 * MIB).unwrap();

    let foreign = fixture.pool.path.join("volumes").join(format!("v-00000000-{}", "0".repeat(32)));
    fs::create_dir(&foreign).unwrap();
    fixture.not_repairable("foreign");
    fs::remove_dir(&foreign).unwrap();
    fixture.doctor(&[]).expect(0, &[]);
}

async fn longer_data_is_truncated_unless_it_holds_bytes(fs: PoolFs) {
    let mut fixture = Fixture::new(fs).await;
    let id = fixture.block_volume("a").await;
    fixture.daemon.terminate();
    // Open only while it is changed: a program that writes to it is a finding, too.
    let path = fixture.pool.volume_data(&id);
    let opened = || OpenOptions::new().write(true).open(&path).unwrap();
    opened().set_len(32 * MIB).unwrap();
    fixture.repair("data-long");
    assert_eq!(fs::metadata(&path).unwrap().len(), 16 * MIB);
    let data = opened();
    data.set_len(32 * MIB).unwrap();
    data.write_all_at(b"written by a program", 20 * MIB).unwrap();
    data.sync_all().unwrap();
    drop(data);
    fixture.not_repairable("data-long");
}

async fn leftovers_are_removed(fs: PoolFs) {
    let mut fixture = Fixture::new(fs).await;
    let id = fixture.block_volume("a").await;
    fixture.daemon.terminate();
    for directory in ["staging", "trash"].map(|name| fixture.pool.path.join(name)) {
        let (left, foreign) = (directory.join(format!("{id}.3")), directory.join("website"));
        for path in [&left, &foreign] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("data"), b"half").unwrap();
        }
        fixture.repair("leftover");
        assert!(!left.exists());
        assert!(foreign.join("data").exists(), "it is not Orlop's");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_name_is_quarantined() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    fixture.daemon.terminate();
    fs::create_dir(fixture.pool.path.join("volumes/my-backup")).unwrap();
    fixture.repair("stray");
    assert!(fixture.pool.path.join("set-aside/my-backup.0").is_dir());
    fs::create_dir(fixture.pool.path.join("volumes/my-backup")).unwrap();
    fixture.repair("stray");
    assert!(fixture.pool.path.join("set-aside/my-backup.1").is_dir(), "nothing is replaced");
}

/// The outer pool was made around it, or its own configuration forgets the inner one.
#[tokio::test(flavor = "multi_thread")]
async fn nested_pool_is_never_quarantined() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let id = fixture.block_volume("a").await;
    fixture.daemon.terminate();
    let pool_id = id.split('-').nth(1).unwrap();
    let unrecorded = format!("volumes/v-{pool_id}-{}", "0".repeat(32));
    for inner in ["volumes/inner", "snapshots/shelf/deep/inner", "groups/inner", &unrecorded] {
        let inner = fixture.pool.path.join(inner);
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("orlop.pool"), "{}").unwrap();
        let below = inner.strip_prefix(&fixture.pool.path).unwrap();
        let top: std::path::PathBuf = below.iter().take(2).collect();
        fixture.not_repairable("pool-inside");
        file::remove_tree(&fixture.pool.path.join(top)).unwrap();
    }
    fixture.doctor(&[]).expect(0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn file_named_like_a_volume_hides_no_finding() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let id = fixture.block_volume("a").await;
    fixture.daemon.terminate();
    let pool_id = id.split('-').nth(1).unwrap();
    for (shelf, letter) in [("volumes", 'v'), ("snapshots", 's')] {
        let name = format!("{letter}-{pool_id}-{}", "0".repeat(32));
        let path = fixture.pool.path.join(shelf).join(name);
        fs::write(&path, "x").unwrap();
        fixture.not_repairable("record-damaged");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&path, &path).unwrap();
        fixture.not_repairable("record-damaged");
        let stray = fixture.pool.path.join("snapshots/zzz");
        fs::create_dir(&stray).unwrap();
        fixture
            .doctor(&["--repair"])
            .expect(1, &[("record-damaged", "by-hand"), ("stray", "repaired")]);
        fs::remove_file(&path).unwrap();
    }
    fixture.doctor(&[]).expect(0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_with_lost_members_are_reported() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let sources = [fixture.block_volume("a").await, fixture.block_volume("b").await];
    let group = fixture.client.group_snapshot("g", &sources).await.unwrap();
    let members: Vec<String> = group.snapshots.iter().map(|it| it.snapshot_id.clone()).collect();
    fixture.daemon.terminate();
    let away = fixture.pool.path.join("away");
    let member = fixture.pool.path.join("snapshots").join(&members[0]);
    fs::rename(&member, &away).unwrap();
    fixture.not_repairable("member-missing");
    fs::rename(&away, &member).unwrap();

    let record =
        fixture.pool.path.join("group-snapshots").join(format!("{}.json", group.group_snapshot_id));
    fs::rename(&record, &away).unwrap();
    let twice = [("group-missing", "repairable"), ("group-missing", "repairable")];
    fixture.doctor(&[]).expect(1, &twice);
    fixture.doctor(&["--repair"]).expect(0, &twice.map(|(code, _)| (code, "repaired")));
    for id in &members {
        let data = fixture.pool.path.join("set-aside").join(format!("{id}.0")).join("data");
        Pattern::new(7).check(&data, MIB);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_volumes_are_removed_from_volume_groups() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let id = fixture.block_volume("a").await;
    fixture.daemon.terminate();
    let digest = "0".repeat(32);
    let pool_id = id.split('-').nth(1).unwrap();
    let (group, gone) = (format!("g-{pool_id}-{digest}"), format!("v-{pool_id}-{digest}"));
    let record = serde_json::json!({
        "version": 1, "id": group, "name": "g", "members": [id, gone], "max_members": 9,
        "created": { "seconds": 1, "nanos": 0 },
    });
    let path = fixture.pool.path.join("groups").join(format!("{group}.json"));
    fs::write(&path, record.to_string()).unwrap();
    fixture.repair("member-missing");
    let after: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(after["members"], serde_json::json!([id]));
}

#[tokio::test(flavor = "multi_thread")]
async fn publications_to_other_machines_are_cleared() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let id = fixture.block_volume("a").await;
    fixture.client.controller_publish(&id, "test-node", block(), false).await.unwrap();
    fixture.daemon.terminate();
    fixture.doctor(&[]).expect(0, &[]);
    let elsewhere = fixture.daemon.launch().clone().env("ORLOP_NODE_ID", "another");
    doctor(&elsewhere, &[]).expect(1, &[("foreign-publication", "repairable")]);
    doctor(&elsewhere, &["--repair"]).expect(0, &[("foreign-publication", "repaired")]);
    doctor(&elsewhere, &[]).expect(0, &[]);
}

/// The node id was given wrongly: what is attached here is published to this machine.
#[tokio::test(flavor = "multi_thread")]
async fn publications_of_volumes_in_use_are_kept() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let client = &fixture.client;
    let volume = client.create("v").size(16 * MIB).block().done().await;
    let id = &volume.volume_id;
    client.controller_publish(id, "test-node", block(), false).await.unwrap();
    let node = client.on_node(&volume, block());
    node.up().await;
    fixture.daemon.terminate();
    let record = fs::read(fixture.pool.volume_record(id)).unwrap();
    let mistaken = fixture.daemon.launch().clone().env("ORLOP_NODE_ID", "another");
    doctor(&mistaken, &["--repair"]).expect(1, &[("foreign-publication", "by-hand")]);
    let path = fixture.pool.path.to_str().unwrap();
    let adopted = mistaken.run(&["pool", "adopt", path, "--yes"]);
    assert_eq!(adopted.status.code(), Some(1), "{adopted:?}");
    assert!(adopted.stderr.contains("not all publications could be cleared"), "{adopted:?}");
    assert_eq!(fs::read(fixture.pool.volume_record(id)).unwrap(), record);
    fixture.daemon.restart().await;
    node.down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_missing_headerless_or_copied_pool_is_reported() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    fixture.block_volume("a").await;
    fixture.daemon.terminate();
    let launch = fixture.daemon.launch().clone();
    let full = doctor(&launch.clone().env("ORLOP_POOL_FLOOR", "99%"), &[]);
    full.expect(1, &[("full", "by-hand")]);
    assert!(full.text.contains(r#""reason": "PoolFull""#), "{}", full.text);

    let nowhere = launch.clone().env("ORLOP_POOL", fixture.pool.scratch().join("nowhere"));
    doctor(&nowhere, &["--repair"]).expect(1, &[("no-pool", "by-hand")]);
    assert!(!fixture.pool.scratch().join("nowhere").exists());

    let copy = fixture.pool.scratch().ensure_dir("copy");
    fs::copy(fixture.pool.path.join("orlop.pool"), copy.join("orlop.pool")).unwrap();
    let config = fixture.pool.scratch().join("orlop.toml");
    let pool = |name: &str, path: &std::path::Path| {
        format!("[[pool]]\nname = \"{name}\"\npath = \"{}\"\n", path.display())
    };
    fs::write(&config, pool("one", &fixture.pool.path) + &pool("two", &copy)).unwrap();
    let both = launch.clone().without_env("ORLOP_POOL").env("ORLOP_CONFIG", &config);
    doctor(&both, &[]).expect(1, &[("same-id", "by-hand")]);

    let mark = fixture.pool.path.join("orlop.pool");
    let text = fs::read(&mark).unwrap();
    fs::write(&mark, &text[..10]).unwrap();
    fixture.not_repairable("mark-damaged");
    fs::remove_file(&mark).unwrap();
    fixture.not_repairable("mark-missing");
    fs::write(&mark, text).unwrap();
    fixture.doctor(&[]).expect(0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn managed_pool_is_mounted_for_inspection() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Launch::on(&pool).env("ORLOP_POOL_IMAGE_SIZE", "400MiB").start().await;
    let client = daemon.client();
    let mut fixture = Fixture { pool, daemon, client };
    let volume = fixture.client.create("a").size(16 * MIB).block().done().await;
    let inside = fixture.pool.path.join("mnt/volumes").join(&volume.volume_id);
    fs::rename(inside.join("data"), fixture.pool.path.join("mnt/away")).unwrap();
    fixture.doctor(&[]).expect(1, &[("data-missing", "by-hand")]);
    fixture.daemon.terminate();
    assert!(!inside.exists(), "the image is not mounted");
    fs::create_dir(fixture.pool.path.join("staging/pool.xfs.0123abcd")).unwrap();
    let found = [("data-missing", "repaired"), ("leftover", "repaired")];
    fixture.doctor(&["--repair"]).expect(0, &found);
    fixture.doctor(&[]).expect(0, &[]);
    assert_eq!(fixture.daemon.leaks(), [""; 0], "it is unmounted again");
}

/// Killed after any of its effects, the doctor is simply called again.
#[tokio::test(flavor = "multi_thread")]
async fn a_repair_may_be_interrupted_anywhere() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let id = fixture.block_volume("a").await;
    fixture.daemon.terminate();
    let record = fixture.pool.volume_record(&id);
    let (text, home) = (fs::read(&record).unwrap(), fixture.home(&id));
    let crash = fixture.pool.scratch().ensure_dir("crash");
    let armed = fixture.daemon.launch().clone().env("ORLOP_TEST_CRASH", &crash);
    let aside = fixture.pool.path.join("set-aside");
    for effects in 0_u32.. {
        fs::remove_file(&record).unwrap();
        fs::write(crash.join("at"), effects.to_string()).unwrap();
        let ended = armed.run(&["doctor", "--repair"]).status.code();
        fixture.doctor(&["--repair"]);
        fixture.doctor(&[]).expect(0, &[]);
        let moved = fs::read_dir(&aside).unwrap().next().unwrap().unwrap().path();
        Pattern::new(7).check(&moved.join("data"), MIB);
        fs::rename(&moved, &home).unwrap();
        fs::write(&record, &text).unwrap();
        if ended.is_some() {
            assert!(effects > 2, "no effect was interrupted");
            return;
        }
    }
}
