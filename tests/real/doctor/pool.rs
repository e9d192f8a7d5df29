//! What can be wrong in the pool itself.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use orlop_sys::file;
use orlop_tests::*;

use crate::patient::{Patient, doctor, footprint};

on_every_pool!(
    a_sound_pool_has_no_findings,
    data_without_a_record_is_set_aside,
    a_record_without_data_is_set_aside,
    what_is_damaged_is_told_and_left,
    longer_data_is_cut_unless_something_is_in_it,
    leftovers_are_removed
);

async fn a_sound_pool_has_no_findings(fs: PoolFs) {
    let mut patient = Patient::new(fs).await;
    let id = patient.block_volume("sound").await;
    let sources = [id.clone(), patient.block_volume("other").await];
    patient.client.snapshot("s", &id).await.unwrap();
    patient.client.group_snapshot("g", &sources).await.unwrap();
    patient.daemon.terminate();
    let before = footprint(&patient.pool.path);
    patient.doctor(&["--repair"]).expect(0, &[]);
    assert_eq!(footprint(&patient.pool.path), before);
}

async fn data_without_a_record_is_set_aside(fs: PoolFs) {
    let mut patient = Patient::new(fs).await;
    let (id, sound) = (patient.block_volume("a").await, patient.block_volume("b").await);
    patient.daemon.terminate();
    let kept = footprint(&patient.home(&sound));
    fs::remove_file(patient.pool.volume_record(&id)).unwrap();
    patient.cure("data-without-record");
    let aside = patient.pool.path.join("set-aside").join(format!("{id}.0"));
    Pattern::new(7).check(&aside.join("data"), MIB);
    assert_eq!(footprint(&patient.home(&sound)), kept, "the other volume is not touched");
    patient.daemon.restart().await;
    patient.client.get_volume(&sound).await.unwrap();
    expect_code(patient.client.get_volume(&id).await, Code::NotFound);
    Pattern::new(7).check(&aside.join("data"), MIB);
}

async fn a_record_without_data_is_set_aside(fs: PoolFs) {
    let mut patient = Patient::new(fs).await;
    let id = patient.block_volume("a").await;
    patient.daemon.terminate();
    fs::remove_file(patient.pool.volume_data(&id)).unwrap();
    patient.cure("data-missing");
    patient.daemon.restart().await;
    expect_code(patient.client.get_volume(&id).await, Code::NotFound);
    patient.client.delete(&id).await.expect("what is gone is deleted");
}

async fn what_is_damaged_is_told_and_left(fs: PoolFs) {
    let mut patient = Patient::new(fs).await;
    let id = patient.block_volume("a").await;
    patient.daemon.terminate();
    let record = patient.pool.volume_record(&id);
    let text = fs::read(&record).unwrap();
    fs::write(&record, &text[..text.len() / 2]).unwrap();
    patient.incurable("record-damaged");
    fs::write(&record, text).unwrap();

    let data = patient.pool.volume_data(&id);
    OpenOptions::new().write(true).open(&data).unwrap().set_len(15 * MIB).unwrap();
    patient.incurable("data-short");
    OpenOptions::new().write(true).open(&data).unwrap().set_len(16 * MIB).unwrap();

    let foreign = patient.pool.path.join("volumes").join(format!("v-00000000-{}", "0".repeat(32)));
    fs::create_dir(&foreign).unwrap();
    patient.incurable("foreign");
    fs::remove_dir(&foreign).unwrap();
    patient.doctor(&[]).expect(0, &[]);
}

async fn longer_data_is_cut_unless_something_is_in_it(fs: PoolFs) {
    let mut patient = Patient::new(fs).await;
    let id = patient.block_volume("a").await;
    patient.daemon.terminate();
    let data = OpenOptions::new().write(true).open(patient.pool.volume_data(&id)).unwrap();
    data.set_len(32 * MIB).unwrap();
    patient.cure("data-long");
    assert_eq!(data.metadata().unwrap().len(), 16 * MIB);
    data.set_len(32 * MIB).unwrap();
    data.write_all_at(b"written by somebody", 20 * MIB).unwrap();
    data.sync_all().unwrap();
    patient.incurable("data-long");
}

async fn leftovers_are_removed(fs: PoolFs) {
    let mut patient = Patient::new(fs).await;
    let id = patient.block_volume("a").await;
    patient.daemon.terminate();
    for directory in ["staging", "trash"].map(|name| patient.pool.path.join(name)) {
        let (left, foreign) = (directory.join(format!("{id}.3")), directory.join("website"));
        for path in [&left, &foreign] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("data"), b"half").unwrap();
        }
        patient.cure("leftover");
        assert!(!left.exists());
        assert!(foreign.join("data").exists(), "it is not Orlop's");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_named_after_nothing_is_set_aside() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    patient.daemon.terminate();
    fs::create_dir(patient.pool.path.join("volumes/my-backup")).unwrap();
    patient.cure("stray");
    assert!(patient.pool.path.join("set-aside/my-backup.0").is_dir());
    fs::create_dir(patient.pool.path.join("volumes/my-backup")).unwrap();
    patient.cure("stray");
    assert!(patient.pool.path.join("set-aside/my-backup.1").is_dir(), "nothing is replaced");
}

/// The outer pool was made around it, or its own configuration forgets the inner one.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_within_a_pool_is_never_set_aside() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    let id = patient.block_volume("a").await;
    patient.daemon.terminate();
    let pool_id = id.split('-').nth(1).unwrap();
    let unrecorded = format!("volumes/v-{pool_id}-{}", "0".repeat(32));
    for inner in ["volumes/inner", "snapshots/shelf/deep/inner", "groups/inner", &unrecorded] {
        let inner = patient.pool.path.join(inner);
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("orlop.pool"), "{}").unwrap();
        let below = inner.strip_prefix(&patient.pool.path).unwrap();
        let top: std::path::PathBuf = below.iter().take(2).collect();
        patient.incurable("pool-inside");
        file::remove_tree(&patient.pool.path.join(top)).unwrap();
    }
    patient.doctor(&[]).expect(0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_named_like_a_volume_hides_nothing_else() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    let id = patient.block_volume("a").await;
    patient.daemon.terminate();
    let pool_id = id.split('-').nth(1).unwrap();
    for (shelf, letter) in [("volumes", 'v'), ("snapshots", 's')] {
        let name = format!("{letter}-{pool_id}-{}", "0".repeat(32));
        let path = patient.pool.path.join(shelf).join(name);
        fs::write(&path, "x").unwrap();
        patient.incurable("record-damaged");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&path, &path).unwrap();
        patient.incurable("record-damaged");
        let stray = patient.pool.path.join("snapshots/zzz");
        fs::create_dir(&stray).unwrap();
        patient
            .doctor(&["--repair"])
            .expect(1, &[("record-damaged", "by-hand"), ("stray", "repaired")]);
        fs::remove_file(&path).unwrap();
    }
    patient.doctor(&[]).expect(0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_that_lost_something_are_told() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    let sources = [patient.block_volume("a").await, patient.block_volume("b").await];
    let group = patient.client.group_snapshot("g", &sources).await.unwrap();
    let members: Vec<String> = group.snapshots.iter().map(|it| it.snapshot_id.clone()).collect();
    patient.daemon.terminate();
    let away = patient.pool.path.join("away");
    let member = patient.pool.path.join("snapshots").join(&members[0]);
    fs::rename(&member, &away).unwrap();
    patient.incurable("member-missing");
    fs::rename(&away, &member).unwrap();

    let record =
        patient.pool.path.join("group-snapshots").join(format!("{}.json", group.group_snapshot_id));
    fs::rename(&record, &away).unwrap();
    let twice = [("group-missing", "repairable"), ("group-missing", "repairable")];
    patient.doctor(&[]).expect(1, &twice);
    patient.doctor(&["--repair"]).expect(0, &twice.map(|(code, _)| (code, "repaired")));
    for id in &members {
        let data = patient.pool.path.join("set-aside").join(format!("{id}.0")).join("data");
        Pattern::new(7).check(&data, MIB);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_group_forgets_volumes_that_are_gone() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    let id = patient.block_volume("a").await;
    patient.daemon.terminate();
    let digest = "0".repeat(32);
    let pool_id = id.split('-').nth(1).unwrap();
    let (group, gone) = (format!("g-{pool_id}-{digest}"), format!("v-{pool_id}-{digest}"));
    let record = serde_json::json!({
        "version": 1, "id": group, "name": "g", "members": [id, gone], "max_members": 9,
        "created": { "seconds": 1, "nanos": 0 },
    });
    let path = patient.pool.path.join("groups").join(format!("{group}.json"));
    fs::write(&path, record.to_string()).unwrap();
    patient.cure("member-missing");
    let after: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(after["members"], serde_json::json!([id]));
}

#[tokio::test(flavor = "multi_thread")]
async fn publications_to_other_machines_are_cleared() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    let id = patient.block_volume("a").await;
    patient.client.controller_publish(&id, "test-node", block(), false).await.unwrap();
    patient.daemon.terminate();
    patient.doctor(&[]).expect(0, &[]);
    let elsewhere = patient.daemon.launch().clone().env("ORLOP_NODE_ID", "another");
    doctor(&elsewhere, &[]).expect(1, &[("foreign-publication", "repairable")]);
    doctor(&elsewhere, &["--repair"]).expect(0, &[("foreign-publication", "repaired")]);
    doctor(&elsewhere, &[]).expect(0, &[]);
}

/// The node id was given wrongly: what is attached here is published to this machine.
#[tokio::test(flavor = "multi_thread")]
async fn publications_of_volumes_in_use_are_kept() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    let client = &patient.client;
    let volume = client.create("v").size(16 * MIB).block().done().await;
    let id = &volume.volume_id;
    client.controller_publish(id, "test-node", block(), false).await.unwrap();
    let node = client.on_node(&volume, block());
    node.up().await;
    patient.daemon.terminate();
    let record = fs::read(patient.pool.volume_record(id)).unwrap();
    let mistaken = patient.daemon.launch().clone().env("ORLOP_NODE_ID", "another");
    doctor(&mistaken, &["--repair"]).expect(1, &[("foreign-publication", "by-hand")]);
    let path = patient.pool.path.to_str().unwrap();
    let adopted = mistaken.run(&["pool", "adopt", path, "--yes"]);
    assert_eq!(adopted.status.code(), Some(1), "{adopted:?}");
    assert!(adopted.stderr.contains("not all publications could be cleared"), "{adopted:?}");
    assert_eq!(fs::read(patient.pool.volume_record(id)).unwrap(), record);
    patient.daemon.restart().await;
    node.down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_is_full_missing_unmarked_or_copied_is_told() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    patient.block_volume("a").await;
    patient.daemon.terminate();
    let launch = patient.daemon.launch().clone();
    doctor(&launch.clone().env("ORLOP_POOL_FLOOR", "99%"), &[]).expect(1, &[("full", "by-hand")]);

    let nowhere = launch.clone().env("ORLOP_POOL", patient.pool.scratch().join("nowhere"));
    doctor(&nowhere, &["--repair"]).expect(1, &[("no-pool", "by-hand")]);
    assert!(!patient.pool.scratch().join("nowhere").exists());

    let copy = patient.pool.scratch().ensure_dir("copy");
    fs::copy(patient.pool.path.join("orlop.pool"), copy.join("orlop.pool")).unwrap();
    let config = patient.pool.scratch().join("orlop.toml");
    let pool = |name: &str, path: &std::path::Path| {
        format!("[[pool]]\nname = \"{name}\"\npath = \"{}\"\n", path.display())
    };
    fs::write(&config, pool("one", &patient.pool.path) + &pool("two", &copy)).unwrap();
    let both = launch.clone().without_env("ORLOP_POOL").env("ORLOP_CONFIG", &config);
    doctor(&both, &[]).expect(1, &[("same-id", "by-hand")]);

    let mark = patient.pool.path.join("orlop.pool");
    let text = fs::read(&mark).unwrap();
    fs::write(&mark, &text[..10]).unwrap();
    patient.incurable("mark-damaged");
    fs::remove_file(&mark).unwrap();
    patient.incurable("mark-missing");
    fs::write(&mark, text).unwrap();
    patient.doctor(&[]).expect(0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_managed_pool_is_opened_for_the_look() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Launch::on(&pool).env("ORLOP_POOL_IMAGE_SIZE", "400MiB").start().await;
    let client = daemon.client();
    let mut patient = Patient { pool, daemon, client };
    let volume = patient.client.create("a").size(16 * MIB).block().done().await;
    let inside = patient.pool.path.join("mnt/volumes").join(&volume.volume_id);
    fs::rename(inside.join("data"), patient.pool.path.join("mnt/away")).unwrap();
    patient.doctor(&[]).expect(1, &[("data-missing", "by-hand")]);
    patient.daemon.terminate();
    assert!(!inside.exists(), "the image is not mounted");
    fs::create_dir(patient.pool.path.join("staging/pool.xfs.0123abcd")).unwrap();
    let found = [("data-missing", "repaired"), ("leftover", "repaired")];
    patient.doctor(&["--repair"]).expect(0, &found);
    patient.doctor(&[]).expect(0, &[]);
    assert_eq!(patient.daemon.leaks(), [""; 0], "it is unmounted again");
}

/// Killed after any of its effects, the doctor is simply called again.
#[tokio::test(flavor = "multi_thread")]
async fn a_repair_may_be_interrupted_anywhere() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    let id = patient.block_volume("a").await;
    patient.daemon.terminate();
    let record = patient.pool.volume_record(&id);
    let (text, home) = (fs::read(&record).unwrap(), patient.home(&id));
    let crash = patient.pool.scratch().ensure_dir("crash");
    let armed = patient.daemon.launch().clone().env("ORLOP_TEST_CRASH", &crash);
    let aside = patient.pool.path.join("set-aside");
    for effects in 0_u32.. {
        fs::remove_file(&record).unwrap();
        fs::write(crash.join("at"), effects.to_string()).unwrap();
        let ended = armed.run(&["doctor", "--repair"]).status.code();
        patient.doctor(&["--repair"]);
        patient.doctor(&[]).expect(0, &[]);
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
