//! Nodes and controllers are killed while a volume comes or goes: the call is repeated, by the same
//! process or by another, and succeeds; the data is what it was, and nothing is left.

use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use orlop_tests::*;

use crate::ceph::{VOLUME, down_from, persist, up_on};

const DATA: u64 = 4 * MIB;
/// Milliseconds. A stage is about done by then, where nothing else is running.
const LATEST_MOMENT: u64 = 400;
/// The cluster takes a client that was killed for alive for half a minute.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Begins the call and kills its daemon at some moment of it. The call may have been answered.
async fn kill_during<T: Send + 'static>(
    daemon: &mut Daemon,
    rng: &mut Rng,
    call: impl Future<Output = Answer<T>> + Send + 'static,
) {
    let begun = tokio::spawn(call);
    tokio::time::sleep(Duration::from_millis(rng.u64(..LATEST_MOMENT))).await;
    daemon.kill9();
    let _ = begun.await;
}

fn staging(used: &OnNode) -> impl Future<Output = Answer<()>> + Send + 'static {
    let used = used.clone();
    async move { used.stage().await }
}

async fn published_to(
    controller: &Client,
    (name, node): (&str, &Daemon),
    volume: &v1::Volume,
    capability: v1::VolumeCapability,
) -> OnNode {
    let mut used = node.client().on_node(volume, capability.clone());
    let published = controller.controller_publish(&used.id, name, capability, false).await;
    used.publish_context = published.unwrap();
    used
}

/// For as long as the cluster has not noticed it, one that was killed counts as a user.
async fn delete_once_unused(controller: &Client, volume: &str) {
    let deadline = Instant::now() + TIMEOUT;
    while let Err(status) = controller.delete(volume).await {
        let passing = [Code::FailedPrecondition, Code::Aborted, Code::Unavailable];
        assert!(passing.contains(&status.code()), "{status}");
        assert!(Instant::now() < deadline, "{status}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stage_killed_at_any_moment_can_be_repeated() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("cut-c").await;
    let mut node = ceph.node("cut-n").await;
    let client = controller.client();
    let mut rng = Rng::with_seed(1);
    let mut volumes = Vec::new();
    for seed in 0..4 {
        let create = client.create(&format!("cut {seed}")).size(VOLUME).fs("xfs");
        let volume = create.done().await;
        // At first it is blank and gets its filesystem, then it has one with data.
        for is_blank in [true, false] {
            let used = published_to(&client, ("cut-n", &node), &volume, mount("xfs")).await;
            kill_during(&mut node, &mut rng, staging(&used)).await;
            node.restart().await;
            persist(|| used.stage()).await;
            used.publish().await.unwrap();
            if is_blank {
                Pattern::new(seed).write(&used.data_path(), DATA);
            }
            Pattern::new(seed).check(&used.data_path(), DATA);
            assert!(!used.stats().await.unwrap().volume_condition.unwrap().abnormal);
            down_from(&client, "cut-n", &used).await;
            assert_eq!(node.leaks(), Vec::<String>::new());
        }
        volumes.push(volume.volume_id);
    }
    for volume in &volumes {
        delete_once_unused(&client, volume).await;
    }
}

/// It replays the journal and gives the copy its identity, for all that read.
#[tokio::test(flavor = "multi_thread")]
async fn node_killed_during_mkfs_does_not_block_readers() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("prepare-c").await;
    let (mut first, second) = (ceph.node("prepare-a").await, ceph.node("prepare-b").await);
    let client = controller.client();
    let original = client.create("to be read").size(VOLUME).fs("xfs").done().await;
    let used = up_on(&client, &second, "prepare-b", &original, mount("xfs")).await;
    Pattern::new(1).write(&used.data_path(), DATA);
    let snapshot = client.snapshot("to be read", &used.id).await.unwrap().snapshot_id;
    down_from(&client, "prepare-b", &used).await;

    let reader = mount("xfs").mode(Mode::MultiNodeReaderOnly);
    let mut rng = Rng::with_seed(2);
    let mut volumes = vec![original.volume_id];
    for round in 0..4 {
        let create = client.create(&format!("read {round}")).capability(reader.clone());
        let volume = create.from_snapshot(&snapshot).done().await;
        let a = published_to(&client, ("prepare-a", &first), &volume, reader.clone()).await;
        let b = published_to(&client, ("prepare-b", &second), &volume, reader.clone()).await;
        kill_during(&mut first, &mut rng, staging(&a)).await;
        let comes_back = round % 2 == 0;
        if comes_back {
            first.restart().await;
            persist(|| a.stage()).await;
            a.publish().await.unwrap();
        } else {
            client.controller_unpublish(&a.id, "prepare-a").await.unwrap();
        }
        b.up().await;
        Pattern::new(1).check(&b.data_path(), DATA);
        if comes_back {
            Pattern::new(1).check(&a.data_path(), DATA);
        } else {
            first.restart().await;
        }
        a.down().await;
        assert_eq!(first.leaks(), Vec::<String>::new());
        Pattern::new(1).check(&b.data_path(), DATA);
        client.controller_unpublish(&a.id, "prepare-a").await.unwrap();
        down_from(&client, "prepare-b", &b).await;
        volumes.push(volume.volume_id);
    }
    client.delete_snapshot(&snapshot).await.unwrap();
    for volume in &volumes {
        delete_once_unused(&client, volume).await;
    }
}

/// Writes to the start of the device until that fails, as it must in the end.
fn write_until_refused(device: PathBuf) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let deadline = Instant::now() + TIMEOUT;
        while write_direct(&device, 0, &Pattern::new(1).bytes(0, 4096)).is_ok() {
            assert!(Instant::now() < deadline, "the node's workload noticed nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn other_controller_finishes_an_interrupted_unpublish() {
    needs_root!();
    let ceph = TestCeph::shared();
    let (mut killed, other) = (ceph.controller("took-1").await, ceph.controller("took-2").await);
    let (old, new) = (ceph.node("took-a").await, ceph.node("took-b").await);
    let client = other.client();
    let volume = client.create("taken").size(VOLUME).block().done().await;
    let mut rng = Rng::with_seed(3);
    for round in 0..6 {
        let before = up_on(&client, &old, "took-a", &volume, block()).await;
        let device = before.data_path();
        write_direct(&device, 0, &Pattern::new(1).bytes(0, 4096)).expect("published to write");
        let workload = write_until_refused(device.clone());
        let taking = {
            let (client, id) = (killed.client(), before.id.clone());
            async move { client.controller_unpublish(&id, "took-a").await }
        };
        kill_during(&mut killed, &mut rng, taking).await;

        persist(|| client.controller_unpublish(&before.id, "took-a")).await;
        let late = write_direct(&device, 0, &Pattern::new(2).bytes(0, 4096));
        assert!(late.is_err(), "the node wrote after it had lost the volume");
        workload.join().unwrap();
        let after = up_on(&client, &new, "took-b", &volume, block()).await;
        Pattern::new(1).check(&after.data_path(), 4096);
        let seed = 100 + round;
        Pattern::new(seed).write(&after.data_path(), DATA);
        let late = write_direct(&device, MIB, &Pattern::new(2).bytes(MIB, 4096));
        assert!(late.is_err(), "the node wrote while another has the volume");
        before.down().await;
        down_from(&client, "took-b", &after).await;
        let again = up_on(&client, &new, "took-b", &volume, block()).await;
        Pattern::new(seed).check(&again.data_path(), DATA);
        down_from(&client, "took-b", &again).await;
        assert_eq!([old.leaks(), new.leaks()].concat(), Vec::<String>::new());
        killed.restart().await;
    }
    delete_once_unused(&client, &volume.volume_id).await;
}

/// Other nodes were let in for what the node was published to do.
#[tokio::test(flavor = "multi_thread")]
async fn stage_cannot_exceed_the_publication() {
    needs_root!();
    let ceph = TestCeph::shared();
    let daemon = ceph.launch("more", "all").start().await;
    let client = daemon.client();
    let readers = mount("xfs").mode(Mode::MultiNodeReaderOnly);
    let alone = readers.clone().mode(Mode::SingleNodeReaderOnly);
    let flagged = mount("xfs").flags(&["ro"]);
    for (name, granted, readonly, refused) in [
        ("write", mount("xfs"), true, vec![mount("xfs")]),
        ("write raw", block(), true, vec![block()]),
        ("be alone", readers, false, vec![alone, flagged, mount("xfs")]),
    ] {
        let made_for = vec![granted.clone(), granted.clone().mode(Mode::SingleNodeWriter)];
        let volume = client.create(name).size(VOLUME).capabilities(made_for).done().await;
        let mut used = client.on_node(&volume, granted.clone());
        let published = client.controller_publish(&used.id, "more", granted, readonly).await;
        for contradiction in refused {
            let status = used.with_capability(contradiction).stage().await;
            let status = expect_code(status, Code::FailedPrecondition);
            assert!(status.message().contains("is published to node more"), "{status}");
            assert_eq!(daemon.leaks(), Vec::<String>::new());
        }
        used.publish_context = published.unwrap();
        used.up().await;
        down_from(&client, "more", &used).await;
        client.delete(&used.id).await.unwrap();
    }
}
