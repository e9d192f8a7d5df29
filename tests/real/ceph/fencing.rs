//! Clients that were on the blocklist before they were fenced.

use std::time::{Duration, Instant};

use orlop_tests::*;
use rustix::process::Signal;
use serde_json::Value;

use crate::ceph::{VOLUME, delete, down_from, up_on};

const DATA: u64 = 8 * MIB;
const TIMEOUT: Duration = Duration::from_secs(120);

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The address of the client that may write to the volume.
fn writer(ceph: &TestCeph, volume: &str) -> String {
    let metadata = ceph.rbd(&["image-meta", "list", volume, "--format", "json"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let mut all = metadata.as_object().unwrap().iter();
    let (_, address) = all.find(|(key, _)| key.starts_with("orlop.writer.")).expect("a writer");
    address.as_str().unwrap().to_owned()
}

/// Until when, as Ceph tells it.
fn blocked_until(ceph: &TestCeph, address: &str) -> Option<String> {
    let list = ceph.ceph(&["osd", "blocklist", "ls", "--format", "json"]);
    // Of clients; another of ranges follows.
    let mut lists = serde_json::Deserializer::from_str(&list).into_iter::<Vec<Value>>();
    let clients = lists.next().unwrap().unwrap();
    let entry = clients.into_iter().find(|entry| entry["addr"] == address)?;
    Some(entry["until"].as_str().unwrap().to_owned())
}

/// The node is cut off with a write on its way, is on the blocklist for a moment, and comes back
/// when that is over and another node has the volume.
#[tokio::test(flavor = "multi_thread")]
async fn temporarily_blocklisted_client_is_fenced_permanently() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("short-c").await;
    let (mut old, new) = (ceph.node("short-a").await, ceph.node("short-b").await);
    let client = controller.client();
    let volume = client.create("short").size(VOLUME).block().done().await;
    let before = up_on(&client, &old, "short-a", &volume, block()).await;
    let device = before.data_path();
    write_direct(&device, 0, &Pattern::new(1).bytes(0, 4096)).expect("a writer before the fence");
    let address = writer(ceph, &volume.volume_id);
    old.kill9();
    old.signal_exporters(Signal::STOP);
    let on_its_way = {
        let device = device.clone();
        std::thread::spawn(move || write_direct(&device, 0, &Pattern::new(2).bytes(0, 4096)))
    };

    // The address of no client, added after the writer's: when it is gone, so would the writer's be.
    let unused_address = "127.0.0.1:0/1";
    for blocked in [&address, unused_address] {
        ceph.ceph(&["osd", "blocklist", "add", blocked, "10"]);
    }
    let unpublished = || client.controller_unpublish(&before.id, "short-a");
    let deadline = Instant::now() + TIMEOUT;
    while let Err(status) = unpublished().await {
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(status.message().contains(&address), "{status}");
        let early = client.controller_publish(&before.id, "short-b", block(), false).await;
        expect_code(early, Code::FailedPrecondition);
        assert!(Instant::now() < deadline, "{status}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let after = up_on(&client, &new, "short-b", &volume, block()).await;
    Pattern::new(3).write(&after.data_path(), DATA);
    until("the first entry has run out", || blocked_until(ceph, unused_address).is_none()).await;

    old.signal_exporters(Signal::CONT);
    assert!(on_its_way.join().unwrap().is_err(), "what was on its way arrived");
    let late = write_direct(&device, MIB, &Pattern::new(4).bytes(MIB, 4096));
    assert!(late.is_err(), "the fenced node wrote");
    down_from(&client, "short-b", &after).await;
    let again = up_on(&client, &new, "short-b", &volume, block()).await;
    Pattern::new(3).check(&again.data_path(), DATA);

    old.restart().await;
    before.down().await;
    down_from(&client, "short-b", &again).await;
    delete(&client, &volume.volume_id).await;
}

/// librbd would blocklist such a client for an hour, and that cannot be prolonged.
#[tokio::test(flavor = "multi_thread")]
async fn snapshot_fences_a_hung_node_permanently() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("silent-c").await;
    let node = ceph.node("silent-a").await;
    let client = controller.client();
    let volume = client.create("silent").size(VOLUME).block().done().await;
    let used = up_on(&client, &node, "silent-a", &volume, block()).await;
    write_direct(&used.data_path(), 0, &Pattern::new(1).bytes(0, 4096)).unwrap();
    let address = writer(ceph, &volume.volume_id);
    node.signal_exporters(Signal::STOP);
    until("the cluster misses the node", || {
        !ceph.rbd(&["status", &volume.volume_id]).contains(&address)
    })
    .await;
    let snapshot = client.snapshot("of the silent", &volume.volume_id).await.unwrap();
    let stopped_until = blocked_until(ceph, &address).expect("an entry");
    let year = |text: &str| text.split('-').next().unwrap().parse::<u64>().unwrap();
    ceph.ceph(&["osd", "blocklist", "add", "127.0.0.1:0/2", "3600"]);
    let soon = blocked_until(ceph, "127.0.0.1:0/2").unwrap();
    assert!(year(&stopped_until) >= year(&soon) + 4, "only until {stopped_until}");

    client.controller_unpublish(&used.id, "silent-a").await.expect("fenced for good before");
    node.signal_exporters(Signal::CONT);
    used.down().await;
    client.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
    delete(&client, &volume.volume_id).await;
}

/// The whole node is dead: its daemon and the client that was to be stopped. No call waits until the
/// cluster has noticed.
#[tokio::test(flavor = "multi_thread")]
async fn client_that_died_before_fencing_causes_no_delay() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("dead-c").await;
    let (mut old, new) = (ceph.node("dead-a").await, ceph.node("dead-b").await);
    let client = controller.client();
    let volume = client.create("dead").size(VOLUME).fs("xfs").done().await;
    let before = up_on(&client, &old, "dead-a", &volume, mount("xfs")).await;
    Pattern::new(1).write(&before.data_path(), DATA);
    let address = writer(ceph, &volume.volume_id);
    old.kill9();
    old.kill_exporters();

    client.controller_unpublish(&before.id, "dead-a").await.unwrap();
    assert!(blocked_until(ceph, &address).is_some());
    let after = up_on(&client, &new, "dead-b", &volume, mount("xfs")).await;
    Pattern::new(1).check(&after.data_path(), DATA);
    old.restart().await;
    before.down().await;
    assert_eq!(old.leaks(), Vec::<String>::new());
    Pattern::new(1).check(&after.data_path(), DATA);
    down_from(&client, "dead-b", &after).await;
    delete(&client, &volume.volume_id).await;
}
