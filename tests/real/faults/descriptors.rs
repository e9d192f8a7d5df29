//! The daemon may open no further file.

use std::path::Path;
use std::time::{Duration, Instant};

use orlop_tests::*;

use crate::faults::{TIMEOUT, run};

const VOLUME: u64 = 32 * MIB;

fn limit(daemon: &Daemon, descriptors: usize) {
    let (pid, limit) = (daemon.pid().to_string(), format!("--nofile={descriptors}:"));
    run("prlimit", &["--pid", &pid, &limit]);
}

fn open_files(daemon: &Daemon) -> usize {
    let directory = format!("/proc/{}/fd", daemon.pid());
    std::fs::read_dir(Path::new(&directory)).unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_recovers_from_descriptor_exhaustion() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let create = |name| client.create(name).size(VOLUME).fs("ext4");
    let volume = create("volume").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    node.up().await;
    Pattern::new(1).write(&node.data_path(), MIB);

    // Some below the limit may be free, but none is given out that is higher.
    limit(&daemon, 0);
    expect_code(create("another").send().await, Code::ResourceExhausted);
    expect_code(client.snapshot("snapshot", &node.id).await, Code::ResourceExhausted);
    assert_eq!(client.failed_probe().await.code(), Code::FailedPrecondition);
    let waiting = tokio::spawn({
        let newcomer = daemon.client();
        async move { newcomer.probe().await }
    });
    // Who is connected already is answered as long as nothing has to be opened.
    assert_eq!(client.list_volumes().await.unwrap().len(), 1);
    Pattern::new(1).check(&node.data_path(), MIB);

    limit(&daemon, 1024);
    assert!(waiting.await.unwrap().unwrap(), "who could not connect is let in");
    assert!(client.probe().await.unwrap());
    let another = create("another").done().await;
    client.snapshot("snapshot", &node.id).await.unwrap();
    node.down().await;
    client.delete(&another.volume_id).await.unwrap();

    // Nothing leaked in all that failed.
    let before = open_files(&daemon);
    limit(&daemon, 0);
    for _ in 0..20 {
        create("third").send().await.unwrap_err();
    }
    limit(&daemon, 1024);
    let deadline = Instant::now() + TIMEOUT;
    while open_files(&daemon) > before {
        assert!(Instant::now() < deadline, "{before} files were open before, now more");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What could not be finished on one pool may be there all the same, and must not be created on another as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_shortage_of_descriptors_creates_no_second_volume() {
    const ROUNDS: usize = 120;
    const AT_ONCE: usize = 12;
    needs_root!();
    let one = TestPool::new(PoolFs::Directory, 0);
    let two = one.beside("two", PoolFs::Directory, 0);
    let overcommit = "overcommit = 1000.0";
    let pools = [("one", &one, overcommit), ("two", &two, overcommit)];
    let mut daemon = Launch::on_several(&pools).start().await;
    let client = daemon.client();
    for round in 0..ROUNDS {
        // So few above what is open now that some of the calls fail, each time at other steps.
        limit(&daemon, open_files(&daemon) + 2 + round % 20);
        let creations = (0..AT_ONCE).map(|number| {
            let client = client.clone();
            async move {
                let name = format!("volume-{round}-{number}");
                // Most of them are refused.
                let _ = client.create(&name).size(MIB).block().send().await;
            }
        });
        let creations: Vec<_> = creations.map(tokio::spawn).collect();
        for creation in creations {
            creation.await.unwrap();
        }
        limit(&daemon, 1024);
    }
    daemon.restart().await;
    let volumes = daemon.client().list_volumes().await.unwrap();
    assert!(!volumes.is_empty());
    let digest = |id: &str| id.rsplit('-').next().unwrap().to_owned();
    let mut digests = std::collections::BTreeSet::new();
    for volume in &volumes {
        let id = &volume.volume.as_ref().unwrap().volume_id;
        assert!(digests.insert(digest(id)), "two volumes of one name, one of them is {id}");
    }
}
