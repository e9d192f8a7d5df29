//! NodePublishVolume, row by row.

mod paths;
mod unpublish;

use std::collections::BTreeMap;

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
