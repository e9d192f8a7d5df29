//! Inline volumes: made for one pod, with an id of the orchestrator's making.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use orlop_tests::*;

const SIZE: u64 = 400 * MIB;
const DATA: u64 = 2 * MIB;

/// As kubelet names them.
fn inline_id(number: u64) -> String {
    format!("csi-{number:064x}")
}

fn context(more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let kubelet = [
        ("csi.storage.k8s.io/ephemeral", "true"),
        ("csi.storage.k8s.io/pod.name", "web-0"),
        ("csi.storage.k8s.io/pod.namespace", "default"),
        ("csi.storage.k8s.io/pod.uid", "9a3f5c3e-6f1b-4a9e-9a54-1d9b3f6f2f10"),
        ("csi.storage.k8s.io/serviceAccount.name", "default"),
    ];
    let pairs = kubelet.iter().chain(more);
    pairs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn request(id: &str, target: &Path, fs: &str) -> v1::NodePublishVolumeRequest {
    v1::NodePublishVolumeRequest {
        volume_id: id.to_owned(),
        target_path: target.to_str().unwrap().to_owned(),
        volume_capability: Some(mount(fs)),
        volume_context: context(&[("size", "400Mi")]),
        ..v1::NodePublishVolumeRequest::default()
    }
}

/// Nothing of it is left: not on the pool, not on the node.
fn assert_gone(pool: &TestPool, daemon: &Daemon, target: &Path) {
    for directory in ["volumes", "staging", "trash"] {
        assert_eq!(pool.entries(directory), [""; 0], "{directory}");
    }
    assert_eq!(daemon.leaks(), [""; 0]);
    assert!(!target.exists(), "the target is left");
    let run = pool.scratch().join("run/csi.orlop.io");
    // Of each device, what it did before it was attached last: replaced when it is attached again.
    let of_the_daemon = [run.join("daemon.lock"), run.join("pools"), run.join("io-before")];
    let mut left = files_below(&run);
    left.retain(|file| !of_the_daemon.iter().any(|own| file.starts_with(own)));
    assert_eq!(left, [""; 0].map(PathBuf::from), "the run directory");
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found
}

on_every_pool!(inline_volume_lives_as_long_as_its_publication);

async fn inline_volume_lives_as_long_as_its_publication(pool: PoolFs) {
    let pool = TestPool::new(pool, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for (number, fs) in [(1, "xfs"), (2, "ext4"), (3, "btrfs"), (4, "")] {
        let id = inline_id(number);
        let target = client.new_target("inline");
        let request = request(&id, &target, fs);
        for seed in [1, 2] {
            client.node_publish(request.clone()).await.unwrap();
            // A new one each time.
            assert!(!target.join("data").exists(), "{fs}: data of a former life");
            Pattern::new(seed).write(&target.join("data"), DATA);
            client.node_publish(request.clone()).await.unwrap();
            Pattern::new(seed).check(&target.join("data"), DATA);
            let space = orlop_sys::file::space(&target).unwrap().total;
            assert!(space <= SIZE && space > SIZE / 10 * 8, "{fs}: {space}");
            let stats = client.node_stats(&id, &target).await.unwrap();
            assert_eq!(stats.usage[0].total, int(space));
            assert!(!stats.volume_condition.unwrap().abnormal);

            client.node_unpublish(&id, &target).await.unwrap();
            assert_gone(&pool, &daemon, &target);
            client.node_unpublish(&id, &target).await.unwrap();
            let stats = client.node_stats(&id, &target).await;
            expect_code(stats, Code::NotFound);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inline_volumes_are_independent() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let targets = [1, 2].map(|number| client.new_target(&inline_id(number)));
    for (number, target) in (1..).zip(&targets) {
        let request = request(&inline_id(number), target, "ext4");
        client.node_publish(request).await.unwrap();
        Pattern::new(number).write(&target.join("data"), DATA);
    }
    client.node_unpublish(&inline_id(1), &targets[0]).await.unwrap();
    Pattern::new(2).check(&targets[1].join("data"), DATA);
    client.node_unpublish(&inline_id(2), &targets[1]).await.unwrap();
    assert_gone(&pool, &daemon, &targets[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn inline_volume_survives_a_daemon_restart() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let (id, target) = (inline_id(7), client.new_target("inline"));
    client.node_publish(request(&id, &target, "xfs")).await.unwrap();
    Pattern::new(1).write(&target.join("data"), DATA);
    daemon.kill9();
    Pattern::new(1).check(&target.join("data"), DATA);
    daemon.restart().await;
    client.node_publish(request(&id, &target, "xfs")).await.unwrap();
    Pattern::new(1).check(&target.join("data"), DATA);
    client.node_stats(&id, &target).await.unwrap();
    daemon.kill9();
    daemon.restart().await;
    client.node_unpublish(&id, &target).await.unwrap();
    assert_gone(&pool, &daemon, &target);
}

/// The record of it is in the run directory of the daemon that published it.
#[tokio::test(flavor = "multi_thread")]
async fn another_run_directory_unpublishes_an_inline_volume() {
    needs_root!();
    for (variable, republish) in
        [("ORLOP_RUN_DIR", false), ("ORLOP_DRIVER_NAME", false), ("ORLOP_RUN_DIR", true)]
    {
        let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
        let mut daemon = Daemon::start(&pool).await;
        let client = daemon.client();
        let (id, target) = (inline_id(7), client.new_target("inline"));
        let published = request(&id, &target, "ext4");
        client.node_publish(published.clone()).await.unwrap();
        Pattern::new(1).write(&target.join("data"), DATA);
        daemon.terminate();

        let value = match variable {
            "ORLOP_RUN_DIR" => pool.scratch().join("other-run").into_os_string(),
            _ => "csi.example.com".into(),
        };
        let other = daemon.launch().clone().env(variable, value).start().await;
        client.reconnect();
        let elsewhere = client.new_target("elsewhere");
        let refused = client.node_unpublish(&id, &elsewhere).await;
        let status = expect_code(refused, Code::FailedPrecondition);
        assert!(status.message().contains(target.to_str().unwrap()), "{status}");
        if republish {
            client.node_publish(published).await.unwrap();
        }
        Pattern::new(1).check(&target.join("data"), DATA);
        let busy = std::fs::File::open(target.join("data")).unwrap();
        expect_code(client.node_unpublish(&id, &target).await, Code::FailedPrecondition);
        drop(busy);
        assert!(target.join("data").exists(), "a busy volume was deleted");

        client.node_unpublish(&id, &target).await.unwrap();
        client.node_unpublish(&id, &target).await.unwrap();
        for directory in ["volumes", "staging", "trash"] {
            assert_eq!(pool.entries(directory), [""; 0], "{directory}");
        }
        assert_eq!(other.leaks(), [""; 0]);
        assert!(!target.exists(), "the target is left");
        let former = pool.scratch().join("run/csi.orlop.io/inline");
        assert_eq!(std::fs::read_dir(former).unwrap().count(), 0, "the former stage is left");
    }
}

/// One passing error, such as a file where the directory is to be, must not delete data.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_publish_keeps_an_inline_volume_it_found() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let (id, target) = (inline_id(8), client.new_target("inline"));
    client.node_publish(request(&id, &target, "ext4")).await.unwrap();
    Pattern::new(1).write(&target.join("data"), DATA);
    daemon.reboot_machine().await;

    std::fs::remove_dir(&target).unwrap();
    std::fs::write(&target, "in the way").unwrap();
    client.node_publish(request(&id, &target, "ext4")).await.unwrap_err();
    assert_eq!(daemon.leaks(), [""; 0]);
    std::fs::remove_file(&target).unwrap();
    client.node_publish(request(&id, &target, "ext4")).await.unwrap();
    Pattern::new(1).check(&target.join("data"), DATA);
    client.node_unpublish(&id, &target).await.unwrap();
    assert_gone(&pool, &daemon, &target);
}

/// NP-16, NP-37, and what no inline volume can be.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_inline_volume_leaves_nothing() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let (id, target) = (inline_id(9), client.new_target("inline"));
    let good = request(&id, &target, "ext4");
    type Change<'a> = &'a dyn Fn(&mut v1::NodePublishVolumeRequest);
    let rows: [(&str, Code, Change); 6] = [
        ("a bad size", Code::InvalidArgument, &|r| {
            r.volume_context = context(&[("size", "many")]);
        }),
        ("an unknown parameter", Code::InvalidArgument, &|r| {
            r.volume_context = context(&[("colour", "red")]);
        }),
        ("more than the pool has", Code::OutOfRange, &|r| {
            r.volume_context = context(&[("size", "1Ei")]);
        }),
        ("no such filesystem", Code::FailedPrecondition, &|r| {
            r.volume_capability = Some(mount("nosuchfs"));
        }),
        ("a relative target", Code::InvalidArgument, &|r| r.target_path = "a/b".into()),
        ("a flag that does not fit", Code::InvalidArgument, &|r| {
            r.volume_capability = Some(mount("ext4").flags(&["no-such-flag"]));
        }),
    ];
    for (row, code, change) in rows {
        let mut request = good.clone();
        change(&mut request);
        let status = client.node_publish(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{row}: {}", status.message());
        assert_gone(&pool, &daemon, &target);
    }
    let mut ordinary = good.clone();
    ordinary.volume_context.clear();
    ordinary.staging_target_path = format!("{}-staging", ordinary.target_path);
    expect_code(client.node_publish(ordinary).await, Code::NotFound);

    client.node_publish(good.clone()).await.unwrap();
    let mut read_only = good.clone();
    read_only.readonly = true;
    expect_code(client.node_publish(read_only).await, Code::AlreadyExists);
    let busy = std::fs::File::create(target.join("busy")).unwrap();
    client.node_unpublish(&id, &target).await.unwrap_err();
    drop(busy);
    assert!(target.join("busy").exists(), "a busy volume was deleted");
    client.node_unpublish(&id, &target).await.unwrap();
    assert_gone(&pool, &daemon, &target);
}
