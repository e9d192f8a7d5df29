//! NodeStageVolume and NodeUnstageVolume, row by row.

mod stats;

use std::fs::File;
use std::path::Path;

use orlop_sys::filesystem::{Format, FsKind, Signature, format, probe};
use orlop_tests::*;

const VOLUME: u64 = 64 * MIB;

async fn created(client: &Client, capability: v1::VolumeCapability) -> OnNode {
    let create = client.create("volume").size(VOLUME);
    let volume = create.capability(capability.clone()).done().await;
    client.on_node(&volume, capability)
}

/// NS-03, NU-02, NU-03, NU-09
#[tokio::test(flavor = "multi_thread")]
async fn staging_and_unstaging_may_be_repeated() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [mount("ext4"), block()] {
        let node = created(&client, capability.clone()).await;
        node.unstage().await.unwrap();
        node.stage().await.unwrap();
        let held = daemon.leaks();
        node.stage().await.unwrap();
        assert_eq!(daemon.leaks(), held, "the second call did something");
        let expected = usize::from(!capability.is_block());
        assert_eq!(mounts_at(&node.staging), expected);

        node.unstage().await.unwrap();
        node.unstage().await.unwrap();
        assert_eq!(daemon.leaks(), [""; 0]);
        assert!(node.staging.is_dir(), "the orchestrator's directory is gone");
        let inside = std::fs::read_dir(&node.staging).unwrap().count();
        assert_eq!(inside, 0, "something is left in the staging directory");
        client.delete(&node.id).await.unwrap();
        // Open point 3: what is gone is not staged.
        node.unstage().await.unwrap();
    }
}

/// From one template, each with another UUID; a volume that may be used raw begins blank.
#[tokio::test(flavor = "multi_thread")]
async fn new_volumes_have_a_filesystem_unless_raw_use_is_allowed() {
    needs_root!();
    for fs in [PoolFs::Xfs, PoolFs::Directory] {
        let pool = TestPool::new(fs, 4 * GIB);
        let daemon = Daemon::start(&pool).await;
        let client = daemon.client();
        let mut found = Vec::new();
        let mut nodes = Vec::new();
        for name in ["one", "two"] {
            let create = client.create(name).size(VOLUME).capability(mount("ext4"));
            let node = client.on_node(&create.done().await, mount("ext4"));
            found.push(probe(&pool.volume_data(&node.id)).unwrap());
            node.up().await;
            std::fs::write(node.target.join("name"), name).unwrap();
            nodes.push(node);
        }
        assert!(found.iter().all(|it| matches!(it, Signature::Filesystem { .. })), "{found:?}");
        assert_ne!(found[0], found[1]);
        for (node, name) in nodes.iter().zip(["one", "two"]) {
            assert_eq!(std::fs::read_to_string(node.target.join("name")).unwrap(), name);
            node.down().await;
        }

        let either = vec![mount("ext4"), block()];
        let blank = [client.create("either").capabilities(either), client.create("raw").block()];
        for create in blank {
            let volume = create.size(VOLUME).done().await;
            let found = probe(&pool.volume_data(&volume.volume_id)).unwrap();
            assert_eq!(found, Signature::Blank);
        }
    }
}

/// Decision 0013: a workload with a raw device may write anything to it.
#[tokio::test(flavor = "multi_thread")]
async fn filesystem_remade_through_the_raw_device_is_mounted() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let kinds = [("ext4", FsKind::Ext4), ("xfs", FsKind::Xfs), ("btrfs", FsKind::Btrfs)];
    for (fs, kind) in kinds {
        let create = client.create(fs).size(320 * MIB).capabilities(vec![mount(fs), block()]);
        let mounted = client.on_node(&create.done().await, mount(fs));
        let raw = mounted.with_capability(block());
        mounted.up().await;
        std::fs::write(mounted.target.join("before"), "").unwrap();
        mounted.down().await;
        raw.up().await;
        raw.down().await;
        mounted.up().await;
        assert!(mounted.target.join("before").exists(), "{fs}: what was not touched is there");
        mounted.down().await;

        raw.up().await;
        remake(&raw.target, kind);
        raw.down().await;
        mounted.up().await;
        assert!(!mounted.target.join("before").exists(), "{fs}: what the workload made is there");
        mounted.down().await;
        let other = if fs == "ext4" { FsKind::Xfs } else { FsKind::Ext4 };
        raw.up().await;
        remake(&raw.target, other);
        raw.down().await;
        expect_code(mounted.stage().await, Code::FailedPrecondition);
    }
}

fn remake(device: &Path, kind: FsKind) {
    orlop_sys::tool::run("wipefs", ["--all".as_ref(), device.as_os_str()]).unwrap();
    let uuid = orlop_sys::rand::random_bytes().unwrap();
    let wanted = Format { kind, uuid, extra_options: &[] };
    format(device, &wanted).unwrap();
}

/// NS-12, and a volume is staged once on a node.
#[tokio::test(flavor = "multi_thread")]
async fn staged_volume_does_not_change_its_use() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let create = client.create("volume").size(VOLUME);
    let both = create.capabilities(vec![mount("ext4"), block()]);
    let node = client.on_node(&both.done().await, mount("ext4"));
    node.stage().await.unwrap();
    for other in [
        block(),
        mount("ext4").flags(&["noatime"]),
        mount("ext4").group("1234"),
        mount("ext4").mode(Mode::SingleNodeReaderOnly),
    ] {
        let answer = node.with_capability(other).stage().await;
        expect_code(answer, Code::AlreadyExists);
    }
    // The filesystem may be named or left to the volume.
    node.with_capability(mount("")).stage().await.unwrap();
    let mut elsewhere = node.clone();
    elsewhere.staging = client.scratch().ensure_dir("elsewhere");
    expect_code(elsewhere.stage().await, Code::FailedPrecondition);
    elsewhere.unstage().await.unwrap();
    assert_eq!(mounts_at(&node.staging), 1);
    assert_eq!(mounts_at(&elsewhere.staging), 0);
    node.unstage().await.unwrap();
}

/// NS-04 to NS-07, NS-11, NS-13 to NS-15, AM-01, AM-02, AM-04, AM-05.
#[tokio::test(flavor = "multi_thread")]
async fn missing_and_wrong_fields_have_their_codes() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = created(&client, mount("ext4")).await;
    type Change<'a> = &'a dyn Fn(&mut v1::NodeStageVolumeRequest);
    let long_flag = "x".repeat(5 << 10);
    let flags = mount("ext4").flags(&[&long_flag]);
    let mut without_access = mount("ext4");
    without_access.access_type = None;
    let mut without_mode = mount("ext4");
    without_mode.access_mode = None;
    let rows: [(&str, Code, Change); 13] = [
        ("NS-04", Code::InvalidArgument, &|r| r.volume_id.clear()),
        ("NS-05", Code::InvalidArgument, &|r| r.staging_target_path.clear()),
        ("NS-06", Code::InvalidArgument, &|r| r.volume_capability = None),
        ("NS-07", Code::InvalidArgument, &|r| r.staging_target_path = "rel/path".into()),
        ("NS-11", Code::NotFound, &|r| r.volume_id = "no-such-volume".into()),
        ("NS-13", Code::FailedPrecondition, &|r| r.volume_capability = Some(block())),
        ("NS-13", Code::FailedPrecondition, &|r| {
            r.volume_capability = Some(mount("ext4").mode(Mode::MultiNodeMultiWriter));
        }),
        ("NS-14", Code::InvalidArgument, &|r| {
            r.volume_context.insert("pool".into(), "other".into());
        }),
        ("NS-15", Code::InvalidArgument, &|r| {
            r.publish_context.insert("stranger".into(), "1".into());
        }),
        ("AM-01", Code::InvalidArgument, &|r| r.volume_capability = Some(without_access.clone())),
        ("AM-02", Code::InvalidArgument, &|r| r.volume_capability = Some(without_mode.clone())),
        ("AM-04", Code::FailedPrecondition, &|r| r.volume_capability = Some(mount("nosuchfs"))),
        ("AM-05", Code::InvalidArgument, &|r| r.volume_capability = Some(flags.clone())),
    ];
    for (row, code, change) in rows {
        let mut request = node.stage_request();
        change(&mut request);
        let status = client.node_stage(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{row}: {}", status.message());
        assert_eq!(daemon.leaks(), [""; 0], "{row}");
    }
    // VO-09: requests need not carry the context.
    let mut bare = node.stage_request();
    bare.volume_context.clear();
    client.node_stage(bare).await.unwrap();
    node.unstage().await.unwrap();
}

/// A mount flag that the filesystem refuses fails the call and leaves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_stage_leaves_nothing() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for flag in ["no-such-flag", "subvol=missing"] {
        let create = client.create(flag).size(320 * MIB).fs("btrfs");
        let node = client.on_node(&create.done().await, mount("btrfs").flags(&[flag]));
        node.stage().await.unwrap_err();
        assert_eq!(daemon.leaks(), [""; 0], "{flag}");
        let plain = node.with_capability(mount("btrfs"));
        plain.up().await;
        plain.down().await;
    }
    // Neither a file nor a foreign mount can be a staging path.
    let mut node = created(&client, mount("ext4")).await;
    node.staging = client.scratch().join("file");
    File::create(&node.staging).unwrap();
    node.stage().await.unwrap_err();
    node.staging = pool.path.clone();
    node.stage().await.unwrap_err();
    assert_eq!(daemon.leaks(), [""; 0]);
    assert_eq!(mounts_at(&pool.path), 1);
}

/// NS-18
#[tokio::test(flavor = "multi_thread")]
async fn missing_staging_directory_is_created_or_reported() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = created(&client, mount("ext4")).await;
    std::fs::remove_dir(&node.staging).unwrap();
    match node.stage().await {
        Ok(()) => {
            assert_eq!(mounts_at(&node.staging), 1);
            node.unstage().await.unwrap();
        }
        Err(status) => assert_eq!(status.code(), Code::FailedPrecondition, "{status}"),
    }
}

/// NU-04, NU-05, NU-10, and what is published stays staged.
#[tokio::test(flavor = "multi_thread")]
async fn volume_in_use_is_not_unstaged() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [mount("ext4"), block()] {
        let node = created(&client, capability.clone()).await;
        node.up().await;
        Pattern::new(1).write(&node.data_path(), MIB);
        expect_code(node.unstage().await, Code::FailedPrecondition);
        expect_code(client.delete(&node.id).await, Code::FailedPrecondition);
        Pattern::new(1).check(&node.data_path(), MIB);
        let busy = File::open(node.data_path()).unwrap();
        expect_code(node.unpublish().await, Code::FailedPrecondition);
        drop(busy);
        let device = capability.is_block().then(|| node.device());
        node.unpublish().await.unwrap();
        if let Some(device) = device {
            let busy = File::open(device).unwrap();
            expect_code(node.unstage().await, Code::FailedPrecondition);
            // Who has it open may stay for long; and when it closes it, the device stays.
            node.stage().await.unwrap();
            drop(busy);
            node.publish().await.unwrap();
            node.unpublish().await.unwrap();
        } else {
            let busy = File::open(node.staging.join("data")).unwrap();
            expect_code(node.unstage().await, Code::FailedPrecondition);
            assert_eq!(mounts_at(&node.staging), 1);
            drop(busy);
        }
        expect_code(client.delete(&node.id).await, Code::FailedPrecondition);
        node.unstage().await.unwrap();
        client.delete(&node.id).await.unwrap();
    }
    let unstage = async |volume: &str, path: &str| {
        let answer = client.node_unstage(volume, Path::new(path)).await;
        answer.map_err(|status| status.code())
    };
    assert_eq!(unstage("", "/a").await, Err(Code::InvalidArgument));
    assert_eq!(unstage("volume", "").await, Err(Code::InvalidArgument));
    assert_eq!(unstage("volume", "a/b").await, Err(Code::InvalidArgument));
}

/// What a StorageClass got wrong, in the words of mkfs and not in those of its manual.
#[tokio::test(flavor = "multi_thread")]
async fn refused_mkfs_options_are_explained() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for (fs, options, reason) in [
        ("xfs", "-n size=3", "Invalid value 3 for -n size option"),
        ("xfs", "-i nosuch=1", "unknown option -i nosuch=1"),
        ("ext4", "-O nosuch", "Invalid filesystem option set: nosuch"),
        ("ext4", "-i 12", "invalid inode ratio 12"),
        ("btrfs", "-n 17", "illegal nodesize 17"),
        ("btrfs", "-O nosuch", "unrecognized filesystem feature 'nosuch'"),
    ] {
        let create = client.create("v").size(320 * MIB).fs(fs);
        let volume = create.parameter("mkfsOptions", options).done().await;
        let node = client.on_node(&volume, mount(fs));
        // Again in the same way when it is repeated.
        for _ in 0..2 {
            let status = node.stage().await.unwrap_err();
            assert_eq!(status.code(), Code::FailedPrecondition, "{fs} {options}: {status}");
            let text = status.message();
            assert!(
                text.contains(reason) && text.contains("mkfsOptions"),
                "{fs} {options}: {text}"
            );
            assert!(!text.to_lowercase().contains("usage"), "{fs} {options}: {text}");
        }
        node.unstage().await.unwrap();
        client.delete(&volume.volume_id).await.unwrap();
    }
}
