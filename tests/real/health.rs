//! Damage is reported, and never made worse.

mod reasons;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use orlop_sys::filesystem::{self, Format, FsKind};
use orlop_sys::{loopdev, tool};
use orlop_tests::*;

const VOLUME: u64 = 320 * MIB;
const BLANK: (&str, &str) = ("mkfsOptions", "-L blank");
const KINDS: [FsKind; 3] = [FsKind::Xfs, FsKind::Ext4, FsKind::Btrfs];

async fn abnormal(client: &Client, volume: &str) -> bool {
    let condition = client.condition(volume).await.unwrap();
    let listed = client.list_volumes().await.unwrap();
    let is_it = |found: &v1::Volume| found.volume_id == volume;
    let entry = listed.into_iter().find(|entry| entry.volume.as_ref().is_some_and(is_it));
    let status = entry.expect("the volume is listed").status;
    let in_list = status.unwrap().volume_condition.expect("a condition");
    assert_eq!(condition, in_list, "both answers agree");
    assert!(!condition.message.is_empty());
    condition.abnormal
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_and_truncated_data_is_reported() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(VOLUME).block().done().await;
    let sound = client.create("sound").size(VOLUME).block().done().await;
    let (id, image) = (&volume.volume_id, pool.volume_data(&volume.volume_id));
    assert!(!abnormal(&client, id).await);

    writable(&image).set_len(VOLUME - MIB).unwrap();
    assert!(abnormal(&client, id).await);
    let node = client.on_node(&volume, block());
    expect_code(node.stage().await, Code::DataLoss);
    expect_code(client.snapshot("snapshot", id).await, Code::DataLoss);
    writable(&image).set_len(VOLUME).unwrap();
    assert!(!abnormal(&client, id).await);

    let aside = image.with_extension("aside");
    std::fs::rename(&image, &aside).unwrap();
    assert!(abnormal(&client, id).await);
    expect_code(node.stage().await, Code::DataLoss);
    let clone = client.create("clone").block().from_volume(id);
    expect_code(clone.send().await, Code::DataLoss);
    assert!(!abnormal(&client, &sound.volume_id).await);
    std::fs::rename(&aside, &image).unwrap();
    assert!(!abnormal(&client, id).await);
    node.up().await;
    node.down().await;
}

/// As after a record was restored from a backup that is older than the volume's last expansion.
#[tokio::test(flavor = "multi_thread")]
async fn outdated_record_is_reported_until_an_expansion() {
    const BEFORE: u64 = 16 * MIB;
    const AFTER: u64 = 64 * MIB;
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [mount("ext4"), block()] {
        let create = client.create("volume").size(BEFORE).capability(capability.clone());
        let node = client.on_node(&create.done().await, capability.clone());
        node.up().await;
        node.down().await;
        let record = pool.volume_record(&node.id);
        let before = std::fs::read(&record).unwrap();
        client.expand(&node.id, AFTER).await.unwrap();
        node.up().await;
        let (offset, length) = if capability.is_block() { (40 * MIB, MIB) } else { (0, 40 * MIB) };
        match capability.is_block() {
            true => Pattern::new(1).write_at(&node.data_path(), offset, length),
            false => Pattern::new(1).write(&node.data_path(), length),
        }
        node.down().await;
        daemon.terminate();
        std::fs::write(&record, before).unwrap();
        daemon.restart().await;

        let condition = client.condition(&node.id).await.unwrap();
        assert!(abnormal(&client, &node.id).await);
        assert!(
            condition.message.contains(&format!("expand it to {AFTER} bytes")),
            "{condition:?}"
        );
        let ran = daemon.launch().run(&["doctor"]);
        assert!(ran.stdout.contains("data-long"), "{}", ran.stdout);
        let refused = expect_code(node.stage().await, Code::FailedPrecondition);
        assert!(refused.message().contains(&AFTER.to_string()), "{refused}");
        expect_code(client.snapshot("cut", &node.id).await, Code::FailedPrecondition);
        let group = client.group_snapshot("cut", std::slice::from_ref(&node.id)).await;
        expect_code(group, Code::FailedPrecondition);
        let clone = client.create("clone").capability(capability).from_volume(&node.id);
        expect_code(clone.send().await, Code::FailedPrecondition);
        assert_eq!(std::fs::metadata(pool.volume_data(&node.id)).unwrap().len(), AFTER);

        client.expand(&node.id, AFTER).await.unwrap();
        assert!(!abnormal(&client, &node.id).await);
        node.up().await;
        Pattern::new(1).check_at(&node.data_path(), offset, length);
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
}

/// Data grows before its record does.
#[tokio::test(flavor = "multi_thread")]
async fn expansion_that_was_interrupted_leaves_a_healthy_volume() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(VOLUME).block().done().await;
    let node = client.on_node(&volume, block());
    writable(&pool.volume_data(&node.id)).set_len(2 * VOLUME).unwrap();
    assert!(!abnormal(&client, &node.id).await);
    node.up().await;
    node.down().await;
}

/// A volume whose record cannot be read keeps its place and its name.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_record_is_reported_and_kept() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let create = |name| client.create(name).size(VOLUME).block();
    let volume = create("volume").done().await;
    let sound = create("sound").done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    Pattern::new(1).write(&node.target, MIB);
    node.down().await;
    daemon.terminate();
    let record = pool.volume_record(&volume.volume_id);
    let before = std::fs::read(&record).unwrap();
    let torn = &before[..before.len() / 2];
    std::fs::write(&record, torn).unwrap();

    daemon.restart().await;
    assert!(abnormal(&client, &volume.volume_id).await);
    assert!(!abnormal(&client, &sound.volume_id).await);
    expect_code(create("volume").send().await, Code::DataLoss);
    expect_code(node.stage().await, Code::DataLoss);
    expect_code(client.delete(&volume.volume_id).await, Code::DataLoss);
    expect_code(client.expand(&volume.volume_id, 2 * VOLUME).await, Code::DataLoss);
    expect_code(client.modify(&volume.volume_id, &[("readIops", "9")]).await, Code::DataLoss);
    assert_eq!(std::fs::read(&record).unwrap(), torn, "it is as it was found");
    client.expand(&sound.volume_id, 2 * VOLUME).await.unwrap();
    Pattern::new(1).check(&pool.volume_data(&volume.volume_id), MIB);

    daemon.terminate();
    std::fs::write(&record, before).unwrap();
    daemon.restart().await;
    assert_eq!(create("volume").done().await, volume);
    node.up().await;
    Pattern::new(1).check(&node.target, MIB);
    node.down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_filesystem_is_reported() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for kind in KINDS {
        let fs = kind.as_str();
        let volume = client.create(fs).size(VOLUME).fs(fs).done().await;
        let node = client.on_node(&volume, mount(fs));
        node.up().await;
        let is_abnormal = async || {
            let stats = node.stats().await.unwrap();
            stats.volume_condition.unwrap().abnormal
        };
        assert!(!is_abnormal().await, "{fs}");
        remount(&node.staging, "ro");
        assert!(is_abnormal().await, "{fs}");
        remount(&node.staging, "rw");
        assert!(!is_abnormal().await, "{fs}");

        // That a publication is read-only says nothing about the filesystem.
        node.unpublish().await.unwrap();
        node.publish_at(&node.target, true).await.unwrap();
        assert!(!is_abnormal().await, "{fs}");
        node.down().await;
    }
}

/// ext4 goes on after an error in its metadata, and counts it.
#[tokio::test(flavor = "multi_thread")]
async fn counted_filesystem_error_is_reported() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(VOLUME).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    node.up().await;
    trigger_ext4_error(&pool, &node);
    let deadline = Instant::now() + Duration::from_secs(60);
    let condition = loop {
        let stats = node.stats().await.unwrap();
        assert_ne!(stats.usage, []);
        let condition = stats.volume_condition.unwrap();
        if condition.abnormal || Instant::now() > deadline {
            break condition;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(condition.abnormal && condition.message.contains("1 error"), "{}", condition.message);

    // It is checked when it is staged next.
    node.down().await;
    node.up().await;
    let condition = node.stats().await.unwrap().volume_condition.unwrap();
    assert!(!condition.abnormal, "{}", condition.message);
    node.down().await;
}

/// An error in the metadata of a mounted ext4. Linux counts it a moment later, in a work queue.
fn trigger_ext4_error(pool: &TestPool, node: &OnNode) {
    let device = loopdev::find(&pool.volume_data(&node.id), false).unwrap().unwrap().path();
    let of_ext4 = Path::new("/sys/fs/ext4").join(device.file_name().unwrap());
    std::fs::write(of_ext4.join("trigger_fs_error"), "a test").unwrap();
}

fn remount(path: &Path, how: &str) {
    let option = format!("remount,{how}");
    let words = ["-o".as_ref(), option.as_ref(), path.as_os_str()];
    tool::run("mount", words).unwrap();
}

/// A mount that was removed from outside is reported too, and can be cleaned up.
#[tokio::test(flavor = "multi_thread")]
async fn vanished_mount_is_reported() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(VOLUME).fs("xfs").done().await;
    let node = client.on_node(&volume, mount("xfs"));
    node.up().await;
    tool::run("umount", [&node.target]).unwrap();
    let stats = node.stats().await.unwrap();
    assert!(stats.volume_condition.unwrap().abnormal);
    node.publish().await.unwrap();
    let stats = node.stats().await.unwrap();
    assert!(!stats.volume_condition.unwrap().abnormal);
    tool::run("umount", [&node.target]).unwrap();
    node.down().await;
}

/// Staging must fail with DATA_LOSS and change no byte.
async fn assert_left_alone(node: &OnNode, image: &Path, what: &str) {
    let before = fingerprint(image);
    for _ in 0..2 {
        let status = node.stage().await.unwrap_err();
        assert_eq!(status.code(), Code::DataLoss, "{what}: {status}");
        assert!(fingerprint(image) == before, "{what}: the data was changed");
    }
}

/// What was formatted once is never formatted again, whatever happened to it.
#[tokio::test(flavor = "multi_thread")]
async fn lost_filesystem_is_not_reformatted() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for kind in KINDS {
        let fs = kind.as_str();
        let volume = client.create(fs).size(VOLUME).fs(fs).done().await;
        let node = client.on_node(&volume, mount(fs));
        let image = pool.volume_data(&node.id);
        node.up().await;
        Pattern::new(1).write(&node.data_path(), MIB);
        node.down().await;
        let first_mib = read_first_mib(&image);

        writable(&image).write_all_at(&vec![0; 1 << 20], 0).unwrap();
        assert_left_alone(&node, &image, &format!("{fs}, zeroed")).await;
        writable(&image).write_all_at(&Pattern::new(9).bytes(0, 1 << 20), 0).unwrap();
        assert_left_alone(&node, &image, &format!("{fs}, overwritten")).await;

        // Whole again, it is as it was.
        writable(&image).write_all_at(&first_mib, 0).unwrap();
        node.up().await;
        Pattern::new(1).check(&node.data_path(), MIB);
        node.down().await;

        make_another(kind, &image);
        assert_left_alone(&node, &image, &format!("{fs}, replaced")).await;
        client.delete(&node.id).await.unwrap();
    }
}

/// Not for long: data that something has open for writing is not staged.
fn writable(image: &Path) -> File {
    File::options().write(true).open(image).unwrap()
}

fn read_first_mib(path: &Path) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    File::open(path).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// A filesystem of the same kind, but with a UUID that is not on record.
fn make_another(kind: FsKind, image: &Path) {
    let force = match kind {
        FsKind::Ext4 => "-F",
        FsKind::Xfs | FsKind::Btrfs => "-f",
    };
    let words = [force.as_ref(), "-q".as_ref(), image.as_os_str()];
    tool::run(&format!("mkfs.{kind}"), words).unwrap();
}

/// The record says that the volume was never written to, but it was.
#[tokio::test(flavor = "multi_thread")]
async fn data_on_a_blank_volume_is_not_formatted_over() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 8 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for provisioning in ["thin", "thick"] {
        for (what, offset) in [("start", 0), ("end", VOLUME - MIB)] {
            // With mkfs options it is not created from a template.
            let create = client.create(what).size(VOLUME).fs("ext4").parameter(BLANK.0, BLANK.1);
            let volume = create.parameter("provisioning", provisioning).done().await;
            let node = client.on_node(&volume, mount("ext4"));
            let image = pool.volume_data(&node.id);
            Pattern::new(5).write_at(&image, offset, MIB);
            assert_left_alone(&node, &image, &format!("{provisioning}, {what}")).await;
            client.delete(&node.id).await.unwrap();
        }
    }
    let create = client.create("filesystem").size(VOLUME).fs("ext4");
    let volume = create.parameter(BLANK.0, BLANK.1).done().await;
    let node = client.on_node(&volume, mount("ext4"));
    let image = pool.volume_data(&node.id);
    make_another(FsKind::Ext4, &image);
    assert_left_alone(&node, &image, "a filesystem").await;
}

/// A volume that was handed out raw belongs to its user: mounted as it is, or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_used_raw_is_not_formatted() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let create = client.create("volume").size(VOLUME);
    let volume = create.capabilities(vec![block(), mount("ext4")]).done().await;
    let raw = client.on_node(&volume, block());
    let mounted = raw.with_capability(mount("ext4"));
    raw.up().await;
    raw.down().await;
    expect_code(mounted.stage().await, Code::FailedPrecondition);

    raw.up().await;
    Pattern::new(1).write_at(&raw.target, 64 * MIB, MIB);
    raw.down().await;
    expect_code(mounted.stage().await, Code::FailedPrecondition);
    Pattern::new(1).check_at(&pool.volume_data(&raw.id), 64 * MIB, MIB);

    raw.up().await;
    let made = Format { kind: FsKind::Ext4, uuid: [8; 16], extra_options: &[] };
    filesystem::format(&raw.target, &made).unwrap();
    raw.down().await;
    mounted.up().await;
    Pattern::new(2).write(&mounted.data_path(), MIB);
    mounted.down().await;
    raw.up().await;
    raw.down().await;
    mounted.up().await;
    Pattern::new(2).check(&mounted.data_path(), MIB);
    mounted.down().await;
}
