//! Routers and nodes that are killed at any moment.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use orlop_tests::*;

use crate::daemon::metrics::scrape;
use crate::router::cluster::Cluster;

const ROUNDS: usize = 30;

/// Without topology any node will do, so each repetition could choose another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_given_once_whatever_is_killed() {
    needs_root!();
    let mut cluster = Cluster::start(PoolFs::Xfs).await;
    let mut random = Rng::with_seed(14);
    let mut killed = [0; 3];
    for round in 0..ROUNDS {
        let name = format!("volume-{round}");
        // Through the router, or the router of a node.
        let entrance = random.usize(..3);
        let client = match entrance {
            0 => cluster.client(),
            node => cluster.nodes[node - 1].daemon.client(),
        };
        let first = client.create(&name).size(MIB).block();
        let calling = tokio::spawn(async move { first.send().await });
        tokio::time::sleep(Duration::from_micros(random.u64(..12_000))).await;
        let victim = random.usize(..3);
        killed[victim] += 1;
        let daemon = match victim {
            0 => &mut cluster.router,
            node => &mut cluster.nodes[node - 1].daemon,
        };
        daemon.kill9();
        let _ = calling.await.unwrap();
        daemon.restart().await;
        let client = cluster.nodes[random.usize(..2)].daemon.client();
        let mut made = None;
        for _ in 0..600 {
            match client.create(&name).size(MIB).block().send().await {
                Ok(volume) => {
                    made = Some(volume);
                    break;
                }
                Err(status) => {
                    let codes = [Code::Unavailable, Code::Aborted];
                    assert!(codes.contains(&status.code()), "{status}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        assert!(made.is_some(), "{name} was not made:\n{}", cluster.nodes[0].daemon.log_end());
    }
    report(&format!("router: {killed:?} kills of router, node-a and node-b"));
    cluster.until_all_are_known().await;
    let mut holders: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in cluster.client().list_volumes().await.unwrap() {
        let id = entry.volume.unwrap().volume_id;
        let digest = id.rsplit('-').next().unwrap().to_owned();
        holders.entry(digest).or_default().push(id);
    }
    assert_eq!(holders.len(), ROUNDS);
    let twice: Vec<_> = holders.values().filter(|ids| ids.len() != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_away_comes_back() {
    needs_root!();
    let mut cluster = Cluster::start(PoolFs::Directory).await;
    let client = cluster.client();
    let mut create = client.create("volume").size(MIB).block();
    create.request.accessibility_requirements = Some(crate::router::cluster::at("node-b"));
    let volume = create.done().await;
    let before = scrape(&cluster.metrics).await;
    for peer in ["node-a", "node-b"] {
        assert_eq!(before.value("orlop_peer_up", &[("peer", peer)]), 1.0);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    assert!(before.value("orlop_peer_certificate_expiry_timestamp_seconds", &[]) > now);
    cluster.nodes[1].daemon.kill9();
    // At once, and with the reason once the router has looked for it.
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let status = expect_code(client.delete(&volume.volume_id).await, Code::Unavailable);
        if status.message().contains("node node-b is unreachable") {
            break;
        }
        assert!(Instant::now() < deadline, "{status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let away = scrape(&cluster.metrics).await;
    assert_eq!(away.value("orlop_peer_up", &[("peer", "node-a")]), 1.0);
    assert_eq!(away.value("orlop_peer_up", &[("peer", "node-b")]), 0.0);
    expect_code(client.list_volumes().await, Code::Unavailable);
    let mut create = client.create("another").size(MIB).block();
    create.request.accessibility_requirements = Some(crate::router::cluster::at("node-a"));
    let another = create.done().await;
    cluster.nodes[1].daemon.restart().await;
    cluster.until_all_are_known().await;
    for id in [&volume.volume_id, &another.volume_id] {
        client.delete(id).await.unwrap();
    }
}

/// Its disk is gone with it, and the orchestrator wants to be rid of its volumes.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_gone_for_good_is_forgotten() {
    needs_root!();
    let mut cluster = Cluster::start(PoolFs::Directory).await;
    let client = cluster.client();
    let mut create = client.create("volume").size(MIB).block();
    create.request.accessibility_requirements = Some(crate::router::cluster::at("node-b"));
    let volume = create.done().await.volume_id;
    let refused = cluster.router.launch().run(&["node", "forget", "node-b"]);
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("it answers"), "{}", refused.stderr);
    cluster.nodes[1].daemon.kill9();
    expect_code(client.delete(&volume).await, Code::Unavailable);
    let listed = cluster.router.launch().run(&["node", "list"]);
    assert_eq!(listed.status.code(), Some(0), "{}", listed.stderr);
    let line = |node: &str| listed.stdout.lines().find(|line| line.starts_with(node)).unwrap();
    assert!(line("node-a").ends_with("ready"), "{}", listed.stdout);
    assert!(line("node-b").contains("unreachable: "), "{}", listed.stdout);
    let listed = cluster.router.launch().run(&["node", "list", "--output", "json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let state = |node: usize| (&listed["nodes"][node]["node_id"], &listed["nodes"][node]["ready"]);
    assert_eq!(state(0), (&"node-a".into(), &true.into()), "{listed}");
    assert_eq!(state(1), (&"node-b".into(), &false.into()), "{listed}");
    let unknown = cluster.router.launch().run(&["node", "forget", "node-c"]);
    assert!(unknown.stderr.contains("--pool"), "{}", unknown.stderr);
    // The other node takes a few seconds to see that it is away.
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let forgotten = cluster.router.launch().run(&["node", "forget", "node-b"]);
        if forgotten.status.success() {
            break;
        }
        assert!(forgotten.stderr.contains("it answers"), "{}", forgotten.stderr);
        assert!(Instant::now() < deadline, "{}", forgotten.stderr);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let deadline = Instant::now() + Duration::from_secs(120);
    while let Err(status) = client.delete(&volume).await {
        assert!(Instant::now() < deadline, "{status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(client.list_volumes().await.unwrap().is_empty());
    client.create("another").size(MIB).block().done().await;
    // A daemon that is restarted knows it still.
    cluster.nodes[0].daemon.restart().await;
    cluster.router.restart().await;
    let deadline = Instant::now() + Duration::from_secs(120);
    while let Err(status) = client.delete(&volume).await {
        assert!(Instant::now() < deadline, "{status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
