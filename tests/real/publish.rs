//! NodePublishVolume and NodeUnpublishVolume, row by row.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use orlop_sys::mounts;
use orlop_tests::*;

const VOLUME: u64 = 64 * MIB;

const MODES: [Mode; 7] = [
    Mode::SingleNodeWriter,
    Mode::SingleNodeReaderOnly,
    Mode::MultiNodeReaderOnly,
    Mode::MultiNodeSingleWriter,
    Mode::MultiNodeMultiWriter,
    Mode::SingleNodeSingleWriter,
    Mode::SingleNodeMultiWriter,
];

fn allows_second_target(mode: Mode) -> bool {
    match mode {
        Mode::MultiNodeReaderOnly
        | Mode::MultiNodeSingleWriter
        | Mode::MultiNodeMultiWriter
        | Mode::SingleNodeMultiWriter => true,
        Mode::SingleNodeWriter
        | Mode::SingleNodeReaderOnly
        | Mode::SingleNodeSingleWriter
        | Mode::Unknown => false,
    }
}

fn writes(mode: Mode) -> bool {
    !matches!(mode, Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly)
}

async fn staged(client: &Client, capability: v1::VolumeCapability) -> OnNode {
    let create = client.create("volume").size(VOLUME);
    let volume = create.capability(capability.clone()).done().await;
    let node = client.on_node(&volume, capability);
    node.stage().await.unwrap();
    node
}

async fn taken_down(client: &Client, node: OnNode) {
    node.down().await;
    client.delete(&node.id).await.unwrap();
}

fn mounts_at(path: &Path) -> usize {
    let all = mounts::all_mounts().unwrap();
    let here = all.iter().filter(|entry| entry.mount_point == path);
    here.count()
}

/// NP-22 to NP-33: what a second call answers, for every mode and both ways of access.
#[tokio::test(flavor = "multi_thread")]
async fn second_call_follows_the_access_mode_table() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [mount("ext4"), block()] {
        for mode in MODES {
            let node = staged(&client, capability.clone().mode(mode)).await;
            node.publish().await.unwrap();
            check_same_target(&node, mode).await;
            check_other_target(&client, &node, mode).await;
            taken_down(&client, node).await;
        }
    }
}

async fn check_same_target(node: &OnNode, mode: Mode) {
    node.publish().await.unwrap();
    assert_eq!(mounts_at(&node.target), 1, "{mode:?}: mounted twice");
    let read_only = node.publish_at(&node.target, true).await;
    expect_code(read_only, Code::AlreadyExists);
    let other_mode = if mode == Mode::SingleNodeReaderOnly {
        Mode::MultiNodeReaderOnly
    } else {
        Mode::SingleNodeReaderOnly
    };
    let other = node.with_capability(node.capability.clone().mode(other_mode));
    let answer = other.publish().await.unwrap_err();
    // A volume that was not made for the other mode at all is the harder fact (NP-17).
    let codes = [Code::AlreadyExists, Code::FailedPrecondition];
    assert!(codes.contains(&answer.code()), "{mode:?}: {answer}");
    assert_eq!(mounts_at(&node.target), 1, "{mode:?}");
}

async fn check_other_target(client: &Client, node: &OnNode, mode: Mode) {
    let other = client.new_target("other");
    for read_only in [false, true] {
        let answer = node.publish_at(&other, read_only).await;
        // Decision 0039: a raw reader would be shown stale data beside a writer.
        let is_stale = read_only && node.capability.is_block() && writes(mode);
        if allows_second_target(mode) && !is_stale {
            answer.unwrap_or_else(|status| panic!("{mode:?}: {status}"));
            assert_eq!(mounts_at(&other), 1, "{mode:?}");
            node.unpublish_at(&other).await.unwrap();
        } else {
            expect_code(answer, Code::FailedPrecondition);
        }
        // NP-37 in the one case, NN-03 in the other.
        assert!(!other.exists(), "{mode:?}: something is left");
        assert_eq!(mounts_at(&node.target), 1, "{mode:?}");
    }
}

/// NP-16 with NP-18: the same place for another way of access.
#[tokio::test(flavor = "multi_thread")]
async fn published_target_does_not_change_its_use() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let create = client.create("volume").size(VOLUME);
    let both = create.capabilities(vec![mount("ext4"), block()]);
    let node = client.on_node(&both.done().await, mount("ext4"));
    node.up().await;
    let device = node.with_capability(block());
    expect_code(device.publish().await, Code::AlreadyExists);
    let elsewhere = client.new_target("elsewhere");
    let answer = device.publish_at(&elsewhere, false).await;
    expect_code(answer, Code::FailedPrecondition);
    assert!(!elsewhere.exists());
    let flagged = node.with_capability(mount("ext4").flags(&["noatime"]));
    expect_code(flagged.publish().await, Code::AlreadyExists);
    taken_down(&client, node).await;
}

/// NP-34
#[tokio::test(flavor = "multi_thread")]
async fn secrets_do_not_affect_idempotency() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = staged(&client, mount("ext4")).await;
    for value in ["one", "two"] {
        let mut request = node.publish_request();
        request.secrets = BTreeMap::from([("password".to_owned(), value.to_owned())]);
        client.node_publish(request).await.unwrap();
    }
    assert_eq!(mounts_at(&node.target), 1);
    taken_down(&client, node).await;
}

/// NP-04 to NP-08, NP-15, NP-17, NP-19, AM-01, AM-02, AM-04, AM-05.
#[tokio::test(flavor = "multi_thread")]
async fn missing_and_wrong_fields_have_their_codes() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = staged(&client, mount("ext4")).await;
    type Change<'a> = &'a dyn Fn(&mut v1::NodePublishVolumeRequest);
    let foreign = |request: &mut v1::NodePublishVolumeRequest| {
        request.volume_context.insert("pool".into(), "other".into());
    };
    let long_flag = "x".repeat(5 << 10);
    let flags = mount("ext4").flags(&[&long_flag]);
    let mut without_access = mount("ext4");
    without_access.access_type = None;
    let mut without_mode = mount("ext4");
    without_mode.access_mode = None;
    let rows: [(&str, Code, Change); 15] = [
        ("NP-04", Code::InvalidArgument, &|r| r.volume_id.clear()),
        ("NP-05", Code::InvalidArgument, &|r| r.target_path.clear()),
        ("NP-06", Code::InvalidArgument, &|r| r.volume_capability = None),
        ("NP-07", Code::FailedPrecondition, &|r| r.staging_target_path.clear()),
        ("NP-08", Code::InvalidArgument, &|r| r.target_path = "rel/path".into()),
        ("NP-08", Code::InvalidArgument, &|r| r.staging_target_path = "rel/path".into()),
        ("NP-15", Code::NotFound, &|r| r.volume_id = "no-such-volume".into()),
        ("NP-17", Code::FailedPrecondition, &|r| r.volume_capability = Some(block())),
        ("NP-17", Code::FailedPrecondition, &|r| r.volume_capability = Some(mount("xfs"))),
        ("NP-19", Code::InvalidArgument, &foreign),
        ("AM-01", Code::InvalidArgument, &|r| r.volume_capability = Some(without_access.clone())),
        ("AM-02", Code::InvalidArgument, &|r| r.volume_capability = Some(without_mode.clone())),
        ("AM-02", Code::InvalidArgument, &|r| {
            r.volume_capability = Some(mount("ext4").mode(Mode::Unknown));
        }),
        ("AM-04", Code::FailedPrecondition, &|r| r.volume_capability = Some(mount("nosuchfs"))),
        ("AM-05", Code::InvalidArgument, &|r| r.volume_capability = Some(flags.clone())),
    ];
    for (row, code, change) in rows {
        let mut request = node.publish_request();
        change(&mut request);
        let status = client.node_publish(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{row}: {}", status.message());
        assert!(!node.target.exists(), "{row}: a target was left");
    }
    node.publish().await.unwrap();
    taken_down(&client, node).await;
}

/// NP-38: an empty directory is never published in a volume's place.
#[tokio::test(flavor = "multi_thread")]
async fn publish_requires_stage() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [mount("ext4"), block()] {
        let create = client.create("volume").size(VOLUME);
        let volume = create.capability(capability.clone()).done().await;
        let node = client.on_node(&volume, capability);
        expect_code(node.publish().await, Code::FailedPrecondition);
        node.stage().await.unwrap();
        let mut elsewhere = node.clone();
        elsewhere.staging = client.scratch().ensure_dir("elsewhere");
        expect_code(elsewhere.publish().await, Code::FailedPrecondition);
        node.unstage().await.unwrap();
        expect_code(node.publish().await, Code::FailedPrecondition);
        assert!(!node.target.exists());
        client.delete(&node.id).await.unwrap();
    }
}

/// NP-09 to NP-11, NP-39, NN-03: made if it is missing, used if it is there, gone afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_target_may_be_there_already() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [mount("ext4"), block()] {
        let node = staged(&client, capability.clone()).await;
        for made_before in [false, true] {
            if made_before && capability.is_block() {
                File::create(&node.target).unwrap();
            } else if made_before {
                std::fs::create_dir(&node.target).unwrap();
            }
            node.publish().await.unwrap();
            let found = std::fs::symlink_metadata(&node.target).unwrap();
            let is_device = found.file_type().is_block_device();
            assert_eq!(is_device, capability.is_block());
            assert_eq!(mounts_at(&node.target), 1);
            node.unpublish().await.unwrap();
            assert!(!node.target.exists(), "the target is left");
        }
        node.unstage().await.unwrap();
        client.delete(&node.id).await.unwrap();
    }
}

/// A path of exactly this many bytes, with all directories above it.
fn long_path(client: &Client, bytes: usize) -> PathBuf {
    const LONGEST_NAME: usize = 200;
    let mut path = client.scratch().ensure_dir("long");
    loop {
        let missing = bytes - path.as_os_str().len();
        if missing <= LONGEST_NAME + 1 {
            return path.join("t".repeat(missing - 1));
        }
        // What stays must be enough for a slash and a name.
        let name = LONGEST_NAME.min(missing - 3);
        path.push("d".repeat(name));
        std::fs::create_dir(&path).unwrap();
    }
}

/// NP-14, NS-09, NU-08, NN-09, ST-13, NE-19, GEN-06, GEN-07
#[tokio::test(flavor = "multi_thread")]
async fn long_paths_are_supported() {
    needs_root!();
    const PATH_MAX: usize = 4096;
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [mount("ext4"), block()] {
        for length in [200, PATH_MAX - 1] {
            let create = client.create("volume").size(VOLUME);
            let volume = create.capability(capability.clone()).done().await;
            let mut node = client.on_node(&volume, capability.clone());
            node.target = long_path(&client, length);
            let name = node.target.file_name().unwrap().len();
            node.staging = node.target.with_file_name("s".repeat(name));
            std::fs::create_dir(&node.staging).unwrap();
            node.up().await;
            assert_eq!(mounts_at(&node.target), 1, "{length}");
            node.stats().await.unwrap();
            client.node_stats(&node.id, &node.staging).await.unwrap();
            node.expand(VOLUME).await.unwrap();
            node.publish().await.unwrap();
            node.down().await;
            client.delete(&node.id).await.unwrap();
            orlop_sys::file::remove_tree(&client.scratch().join("long")).unwrap();
        }
    }
}

/// Links on the way are the operator's choice; a link in the target's place could lead anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn parent_symlinks_are_followed_final_ones_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let real = client.scratch().ensure_dir("real");
    let way = client.scratch().join("way");
    std::os::unix::fs::symlink(&real, &way).unwrap();
    for capability in [mount("ext4"), block()] {
        let node = staged(&client, capability).await;
        let through_link = way.join("target");
        node.publish_at(&through_link, false).await.unwrap();
        assert_eq!(mounts_at(&real.join("target")), 1);
        node.publish_at(&through_link, false).await.unwrap();
        client.node_stats(&node.id, &through_link).await.unwrap();
        node.unpublish_at(&through_link).await.unwrap();
        assert!(!real.join("target").exists());

        let link = client.new_target("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        node.publish_at(&link, false).await.unwrap_err();
        assert_eq!(mounts_at(&real), 0, "mounted where a link led");
        assert_eq!(std::fs::read_link(&link).unwrap(), real, "the link changed");
        std::fs::remove_file(&link).unwrap();
        node.unpublish_at(&link).await.unwrap();
        node.unstage().await.unwrap();
        client.delete(&node.id).await.unwrap();
    }
}

/// One record still names the path, as after an unmount by hand; another volume is there by now.
#[tokio::test(flavor = "multi_thread")]
async fn unpublish_leaves_a_target_of_another_volume() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [block(), mount("ext4")] {
        let mut nodes = Vec::new();
        for name in ["first", "second"] {
            let create = client.create(name).size(VOLUME).capability(capability.clone());
            nodes.push(client.on_node(&create.done().await, capability.clone()));
        }
        let [first, second] = nodes.as_slice() else { panic!("two volumes") };
        first.up().await;
        mounts::ensure_unmounted(&first.target).unwrap();
        second.stage().await.unwrap();
        second.publish_at(&first.target, false).await.unwrap();
        let taken = first.target.metadata().unwrap();
        daemon.restart().await;
        for _ in 0..2 {
            first.unpublish().await.unwrap();
            let now = first.target.metadata().unwrap();
            assert_eq!((now.dev(), now.rdev()), (taken.dev(), taken.rdev()), "it was taken away");
        }
        first.unstage().await.unwrap();
        second.unpublish_at(&first.target).await.unwrap();
        assert!(!first.target.exists());
        second.unstage().await.unwrap();
        for node in &nodes {
            client.delete(&node.id).await.unwrap();
        }
    }
}

/// A daemon that has given up its rights may not look at all processes, and says how to find them.
#[tokio::test(flavor = "multi_thread")]
async fn busy_mount_error_names_volume_and_process() {
    needs_root!();
    for keeps in ["true", "false"] {
        let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
        let daemon = Launch::on(&pool).env("ORLOP_KEEP_CAPABILITIES", keeps).start().await;
        let client = daemon.client();
        let node = staged(&client, mount("ext4")).await;
        node.publish().await.unwrap();
        let own = match keeps {
            "true" => format!("process {} (", std::process::id()),
            _ => format!("fuser -vm {}", node.target.display()),
        };
        let busy = File::create(node.target.join("busy")).unwrap();
        let status = expect_code(node.unpublish().await, Code::FailedPrecondition);
        assert!(status.message().contains(&format!("volume {}", node.id)), "{status}");
        assert!(status.message().contains(&own), "{status}");
        drop(busy);
        node.unpublish().await.unwrap();

        let busy = File::create(node.staging.join("busy")).unwrap();
        let status = expect_code(node.unstage().await, Code::FailedPrecondition);
        assert!(status.message().contains(&format!("volume {}", node.id)), "{status}");
        drop(busy);
        node.unstage().await.unwrap();
        client.delete(&node.id).await.unwrap();
    }
}

/// NN-02 to NN-07, NN-11.
#[tokio::test(flavor = "multi_thread")]
async fn unpublish_is_idempotent_and_leaves_foreign_mounts() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = staged(&client, mount("ext4")).await;
    node.unpublish().await.unwrap();
    node.publish().await.unwrap();

    let busy = File::create(node.target.join("busy")).unwrap();
    node.unpublish().await.unwrap_err();
    assert_eq!(mounts_at(&node.target), 1, "a busy mount is gone");
    drop(busy);
    assert!(node.target.join("busy").exists());
    node.unpublish().await.unwrap();
    node.unpublish().await.unwrap();
    assert!(!node.target.exists());

    let unpublish = async |volume: &str, path: &str| {
        let answer = client.node_unpublish(volume, Path::new(path)).await;
        answer.map_err(|status| status.code())
    };
    let path = node.target.to_str().unwrap();
    assert_eq!(unpublish("", path).await, Err(Code::InvalidArgument));
    assert_eq!(unpublish(&node.id, "").await, Err(Code::InvalidArgument));
    assert_eq!(unpublish(&node.id, "a/b").await, Err(Code::InvalidArgument));

    // A foreign mount must not be removed.
    let stranger = client.scratch().join("pool");
    unpublish(&node.id, stranger.to_str().unwrap()).await.unwrap_err();
    assert_eq!(mounts_at(&stranger), 1);
    node.unstage().await.unwrap();
}

/// Two volumes that come to one path at once: one of them gets it, and finds itself there.
#[tokio::test(flavor = "multi_thread")]
async fn second_volume_at_one_path_is_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let mut nodes = Vec::new();
    for name in ["first", "second"] {
        let volume = client.create(name).size(VOLUME).capability(mount("ext4")).done().await;
        nodes.push(client.on_node(&volume, mount("ext4")));
    }
    let (first, own) = (nodes[0].clone(), nodes[1].clone());
    let mut second = own.clone();
    second.staging.clone_from(&first.staging);
    let refused = |answer: &Answer<()>| {
        answer
            .as_ref()
            .is_err_and(|status| matches!(status.code(), Code::FailedPrecondition | Code::Aborted))
    };
    for round in 0..20 {
        let (one, other) = tokio::join!(first.stage(), second.stage());
        assert!(one.is_ok() != other.is_ok(), "{round}: {one:?}, {other:?}");
        assert!(refused(&one) || refused(&other), "{round}: {one:?}, {other:?}");
        assert_eq!(mounts_at(&first.staging), 1, "{round}");
        let (winner, loser) = if one.is_ok() { (&first, &second) } else { (&second, &first) };
        // The one goes as the other comes.
        let (gone, come) = tokio::join!(winner.unstage(), loser.stage());
        gone.unwrap();
        assert!(come.is_ok() || refused(&come), "{round}: {come:?}");
        assert_eq!(mounts_at(&first.staging), usize::from(come.is_ok()), "{round}");
        loser.unstage().await.unwrap();
        std::fs::create_dir_all(&first.staging).unwrap();
    }

    first.stage().await.unwrap();
    own.stage().await.unwrap();
    let mut second = own.clone();
    second.target.clone_from(&first.target);
    for round in 0..20 {
        let (one, other) = tokio::join!(first.publish(), second.publish());
        assert!(one.is_ok() != other.is_ok(), "{round}: {one:?}, {other:?}");
        let (winner, loser) = if one.is_ok() { (&first, &second) } else { (&second, &first) };
        let (gone, come) = tokio::join!(winner.unpublish(), loser.publish());
        gone.unwrap();
        assert!(come.is_ok() || refused(&come), "{round}: {come:?}");
        assert_eq!(mounts_at(&first.target), usize::from(come.is_ok()), "{round}");
        loser.unpublish().await.unwrap();
    }
    first.unstage().await.unwrap();
    own.unstage().await.unwrap();
}
