//! Who may write: read-only publications, reader-only modes, mount flags, groups.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use orlop_sys::{mounts, tool};
use orlop_tests::*;
use rustix::io::Errno;

const VOLUME: u64 = 320 * MIB;
const DATA: u64 = MIB;

fn every_use() -> [v1::VolumeCapability; 4] {
    [mount("xfs"), mount("ext4"), mount("btrfs"), block()]
}

/// Where data lies below a target: the device itself, or a file.
fn data_at(target: &Path, capability: &v1::VolumeCapability) -> std::path::PathBuf {
    if capability.is_block() { target.to_owned() } else { target.join("data") }
}

/// No way to write, through the cache or past it; nor to make anything new.
fn assert_cannot_be_written(target: &Path, capability: &v1::VolumeCapability) {
    let data = data_at(target, capability);
    if capability.is_block() {
        let buffered = File::options().write(true).open(&data).and_then(|device| {
            device.write_all_at(&[0xAA; 4096], 0)?;
            device.sync_all()
        });
        assert!(buffered.is_err(), "a buffered write went through");
        let direct = write_direct(&data, 0, &[0xAA; 4096]);
        assert!(direct.is_err(), "a direct write went through");
        return;
    }
    let read_only = Some(Errno::ROFS.raw_os_error());
    let opened = File::options().write(true).open(&data).unwrap_err();
    assert_eq!(opened.raw_os_error(), read_only, "{opened}");
    let made = File::create(target.join("new")).unwrap_err();
    assert_eq!(made.raw_os_error(), read_only, "{made}");
    let removed = std::fs::remove_file(&data).unwrap_err();
    assert_eq!(removed.raw_os_error(), read_only, "{removed}");
}

/// A volume with data on it, not staged.
async fn written(client: &Client, name: &str, capability: &v1::VolumeCapability) -> OnNode {
    let writer = match capability.is_block() {
        true => block(),
        false => capability.clone().mode(Mode::SingleNodeWriter),
    };
    let volume = client
        .create(name)
        .size(VOLUME)
        .capabilities(vec![capability.clone(), writer.clone()])
        .done()
        .await;
    let node = client.on_node(&volume, writer);
    node.up().await;
    Pattern::new(1).write(&node.data_path(), DATA);
    node.down().await;
    node.with_capability(capability.clone())
}

/// NP-12
#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_publication_cannot_be_written() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in every_use() {
        let node = written(&client, "volume", &capability).await;
        node.stage().await.unwrap();
        node.publish_at(&node.target, true).await.unwrap();
        assert_cannot_be_written(&node.target, &capability);
        Pattern::new(1).check(&node.data_path(), DATA);
        node.unpublish().await.unwrap();

        // The stage is as writable as before.
        node.publish().await.unwrap();
        Pattern::new(2).write(&node.data_path(), DATA);
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
}

/// NP-35: whatever `readonly` says.
#[tokio::test(flavor = "multi_thread")]
async fn reader_only_modes_cannot_be_written() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for mode in [Mode::SingleNodeReaderOnly, Mode::MultiNodeReaderOnly] {
        for capability in every_use() {
            let node = written(&client, "volume", &capability.mode(mode)).await;
            node.up().await;
            assert_cannot_be_written(&node.target, &node.capability);
            Pattern::new(1).check(&node.data_path(), DATA);
            let stats = node.stats().await.unwrap();
            let condition = stats.volume_condition.unwrap();
            assert!(!condition.abnormal, "{mode:?}: {}", condition.message);
            node.down().await;

            // Staged for a writer, published to a reader.
            let writer = node.capability.clone().mode(Mode::SingleNodeWriter);
            node.with_capability(writer).stage().await.unwrap();
            node.publish().await.unwrap();
            assert_cannot_be_written(&node.target, &node.capability);
            node.down().await;
            client.delete(&node.id).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_attached_read_only_cannot_be_written() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in every_use() {
        let mut node = written(&client, "volume", &capability).await;
        let attach = client.controller_publish(&node.id, "test-node", capability.clone(), true);
        node.publish_context = attach.await.unwrap();
        node.up().await;
        assert_cannot_be_written(&node.target, &capability);
        Pattern::new(1).check(&node.data_path(), DATA);
        node.down().await;
        let detach = client.controller_unpublish(&node.id, "test-node");
        detach.await.unwrap();

        let attach = client.controller_publish(&node.id, "test-node", capability.clone(), false);
        node.publish_context = attach.await.unwrap();
        node.up().await;
        Pattern::new(2).write(&node.data_path(), DATA);
        node.down().await;
        let detach = client.controller_unpublish(&node.id, "test-node");
        detach.await.unwrap();
        client.delete(&node.id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writer_and_reader_targets_coexist() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in every_use().into_iter().filter(|capability| !capability.is_block()) {
        let capability = capability.mode(Mode::SingleNodeMultiWriter);
        let node = written(&client, "volume", &capability).await;
        let reader = client.new_target("reader");
        node.stage().await.unwrap();
        node.publish_at(&reader, true).await.unwrap();
        node.publish().await.unwrap();
        Pattern::new(3).write(&node.data_path(), DATA);
        Pattern::new(3).check(&data_at(&reader, &capability), DATA);
        assert_cannot_be_written(&reader, &capability);

        // NN-10, in both orders.
        node.unpublish_at(&reader).await.unwrap();
        Pattern::new(4).write(&node.data_path(), DATA);
        node.publish_at(&reader, true).await.unwrap();
        node.unpublish().await.unwrap();
        Pattern::new(4).check(&data_at(&reader, &capability), DATA);
        assert_cannot_be_written(&reader, &capability);
        node.unpublish_at(&reader).await.unwrap();
        node.unstage().await.unwrap();
        client.delete(&node.id).await.unwrap();
    }
}

/// Readers of a raw volume have a separate device, with a page cache that knows nothing of what
/// is written beside it.
#[tokio::test(flavor = "multi_thread")]
async fn raw_reader_never_sees_stale_data() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = written(&client, "volume", &block().mode(Mode::SingleNodeMultiWriter)).await;
    let other = client.new_target("other");
    node.stage().await.unwrap();
    node.publish_at(&other, true).await.unwrap();
    // Held open, so that what was read stays in the cache.
    let reader = File::open(&other).unwrap();
    Pattern::new(1).check(&other, DATA);
    let beside = node.publish().await;
    if beside.is_ok() {
        Pattern::new(2).write(&node.target, DATA);
        Pattern::new(2).check(&other, DATA);
    }
    expect_code(beside, Code::FailedPrecondition);
    assert!(!node.target.exists(), "NP-37");
    drop(reader);
    node.unpublish_at(&other).await.unwrap();

    node.publish().await.unwrap();
    // Buffered, and not synced.
    let writer = File::options().write(true).open(&node.target).unwrap();
    writer.write_all_at(&Pattern::new(3).bytes(0, 1 << 20), 0).unwrap();
    expect_code(node.publish_at(&other, true).await, Code::FailedPrecondition);
    drop(writer);
    node.unpublish().await.unwrap();
    node.publish_at(&other, true).await.unwrap();
    Pattern::new(3).check(&other, MIB);
    node.unpublish_at(&other).await.unwrap();
    node.unstage().await.unwrap();
}

/// AM-06
#[tokio::test(flavor = "multi_thread")]
async fn mount_flags_are_in_effect() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for fs in ["xfs", "ext4", "btrfs"] {
        let capability = mount(fs).flags(&["noexec", "noatime"]);
        let node = written(&client, "volume", &capability).await;
        node.up().await;
        let entry = mounts::mount_at(&node.target).unwrap().unwrap();
        for flag in ["noexec", "noatime"] {
            assert!(entry.options.iter().any(|option| option == flag), "{flag}");
        }
        let program = node.target.join("program");
        std::fs::copy("/bin/true", &program).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let script = program.to_str().unwrap();
        assert!(tool::run("sh", ["-c", script]).is_err(), "noexec is not");
        node.down().await;

        let reader = node.with_capability(mount(fs).flags(&["ro"]));
        reader.up().await;
        assert_cannot_be_written(&reader.target, &reader.capability);
        reader.down().await;
        client.delete(&node.id).await.unwrap();
    }
}

const GROUP: u32 = 23_456;

/// Runs a line of shell in a directory, as another user.
fn run_as(user: u32, group: u32, directory: &Path, line: &str) -> orlop_sys::Result<()> {
    // Entered by root: the way there may be closed to others.
    let script = r#"cd "$1" && exec setpriv --reuid "$2" --regid "$3" --clear-groups sh -c "$4""#;
    let words = [
        "-c",
        script,
        "sh",
        directory.to_str().unwrap(),
        &user.to_string(),
        &group.to_string(),
        line,
    ];
    tool::run("sh", words).map(drop)
}

/// AM-07, AM-08
#[tokio::test(flavor = "multi_thread")]
async fn group_may_write_under_any_umask() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for fs in ["xfs", "ext4", "btrfs"] {
        let volume = client.create("volume").size(VOLUME).fs(fs).done().await;
        let node = client.on_node(&volume, mount(fs).group(&GROUP.to_string()));
        node.up().await;
        let make = "umask 077; echo one > file; mkdir -p a/b; echo one > a/b/file";
        run_as(10_001, GROUP, &node.target, make).unwrap();
        for path in ["file", "a", "a/b", "a/b/file"] {
            let found = std::fs::metadata(node.target.join(path)).unwrap();
            assert_eq!(found.gid(), GROUP, "{fs}: {path}");
            assert_eq!(found.mode() & 0o060, 0o060, "{fs}: {path}");
        }
        let change = "echo two >> file; echo two >> a/b/file; rm a/b/file; echo three > a/b/new";
        run_as(10_002, GROUP, &node.target, change).unwrap();
        let stranger = run_as(10_002, GROUP + 1, &node.target, "echo two >> file");
        assert!(stranger.is_err(), "{fs}: others may write too");
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn group_owns_files_of_a_restored_volume() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for fs in ["xfs", "ext4", "btrfs"] {
        let volume = client.create("volume").size(VOLUME).fs(fs).done().await;
        let source = client.on_node(&volume, mount(fs));
        source.up().await;
        let make = "umask 077; mkdir -p a/b; echo one > a/b/file; echo one > file; ln -s /etc link";
        run_as(0, 0, &source.target, make).unwrap();
        let etc = std::fs::metadata("/etc").unwrap().gid();
        let snapshot = client.snapshot(fs, &source.id).await.unwrap();

        let restored = client.create("restored").fs(fs);
        let restored = restored.from_snapshot(&snapshot.snapshot_id).done().await;
        let restored = client.on_node(&restored, mount(fs).group(&GROUP.to_string()));
        restored.up().await;
        let change = "echo two >> a/b/file; echo two >> file; echo two > a/b/new";
        run_as(10_001, GROUP, &restored.target, change).unwrap();
        assert_eq!(std::fs::metadata("/etc").unwrap().gid(), etc, "a link led out");
        let untouched = run_as(10_001, GROUP, &source.target, "echo two >> file");
        assert!(untouched.is_err(), "{fs}: the source changed as well");

        for node in [&source, &restored] {
            node.down().await;
            client.delete(&node.id).await.unwrap();
        }
        client.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
    }
}

/// Two pods on one volume, as kubelet publishes it: the stage has the first one's fsGroup.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_group_is_applied_once_the_first_is_gone() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let several = |group: u32| {
        let capability = mount("ext4").mode(Mode::SingleNodeMultiWriter);
        capability.group(&group.to_string())
    };
    let create = client.create("volume").size(VOLUME).capability(several(GROUP));
    let first = client.on_node(&create.done().await, several(GROUP));
    first.up().await;
    run_as(10_001, GROUP, &first.target, "umask 077; mkdir a; echo one > a/file").unwrap();
    let mut second = first.with_capability(several(GROUP + 1));
    second.target = client.new_target("second");

    // What the first pod has is not taken from it while it runs.
    let status = expect_code(second.publish().await, Code::FailedPrecondition);
    for part in [GROUP.to_string(), (GROUP + 1).to_string()] {
        assert!(status.message().contains(&part), "{status}");
    }
    assert!(!second.target.exists());
    run_as(10_002, GROUP, &first.target, "echo two >> a/file").unwrap();
    let mut third = first.clone();
    third.target = client.new_target("third");
    third.publish().await.unwrap();
    third.unpublish().await.unwrap();

    first.unpublish().await.unwrap();
    second.publish().await.unwrap();
    run_as(10_003, GROUP + 1, &second.target, "echo three >> a/file; echo one > new").unwrap();
    // kubelet stages again after a restart, for the pod that runs: that takes nothing away.
    second.stage().await.unwrap();
    run_as(10_003, GROUP + 1, &second.target, "echo four >> a/file").unwrap();
    expect_code(first.publish().await, Code::FailedPrecondition);
    second.unpublish().await.unwrap();
    first.publish().await.unwrap();
    run_as(10_001, GROUP, &first.target, "echo five >> a/file; echo two >> new").unwrap();
    first.down().await;
}
