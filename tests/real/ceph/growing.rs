//! A volume grows while nodes have it, and one of them falls asleep over that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_sys::ceph::{Access, IoCtx, header_of};
use orlop_tests::*;
use rustix::process::Signal;

use crate::ceph::{TIMEOUT, delete, down_from, persist, up_on};

const AT_FIRST: u64 = 32 * MIB;
const GROWN: u64 = 48 * MIB;
const AGAIN: u64 = 64 * MIB;

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Is the lock held that protects changes of the size?
fn is_size_locked(io: &Arc<IoCtx>, volume: &str) -> bool {
    let image = io.image_id(volume).unwrap().expect("an image");
    io.lock_holder(&header_of(&image), "orlop.size").unwrap().is_some()
}

fn users(io: &Arc<IoCtx>, volume: &str) -> usize {
    io.open_image(volume, Access::ReadOnly).unwrap().watchers().unwrap().len()
}

/// Begins to let the node's device grow, and leaves it waiting for the export with the lock held.
async fn begin_to_grow(
    node: &Daemon,
    io: &Arc<IoCtx>,
    used: &OnNode,
) -> tokio::task::JoinHandle<Answer<i64>> {
    node.signal_exporters(Signal::STOP);
    let growing = {
        let used = used.clone();
        tokio::spawn(async move { used.expand(GROWN).await })
    };
    until("the node has locked the size", || is_size_locked(io, &used.id)).await;
    growing
}

/// When it wakes up, its export gets a size that is too small by then, and would cut off what
/// another node has written.
#[tokio::test(flavor = "multi_thread")]
async fn node_suspended_during_growth_truncates_nothing() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("sleep-c").await;
    let (sleeper, other) = (ceph.node("sleep-a").await, ceph.node("sleep-b").await);
    let (client, io) = (controller.client(), ceph.io(""));
    let writers = block().mode(Mode::MultiNodeMultiWriter);
    let create = client.create("slept over").size(AT_FIRST).capability(writers.clone());
    let volume = create.done().await;
    let a = up_on(&client, &sleeper, "sleep-a", &volume, writers.clone()).await;
    let b = up_on(&client, &other, "sleep-b", &volume, writers).await;
    client.expand(&a.id, GROWN).await.unwrap();
    let growing = begin_to_grow(&sleeper, &io, &a).await;
    sleeper.signal(Signal::STOP);
    until("the cluster misses the node", || users(&io, &a.id) == 1).await;

    persist(|| client.expand(&b.id, AGAIN)).await;
    b.expand(AGAIN).await.unwrap();
    let added = GROWN + MIB;
    write_direct(&b.target, added, &Pattern::new(1).bytes(added, 4096)).unwrap();
    sleeper.signal(Signal::CONT);
    sleeper.signal_exporters(Signal::CONT);
    let late = growing.await.unwrap();
    Pattern::new(1).check_at(&b.target, added, 4096);
    assert_eq!(io.image_size(&io.image_id(&b.id).unwrap().unwrap()).unwrap(), AGAIN);
    assert!(late.is_err(), "{late:?}");

    client.controller_unpublish(&a.id, "sleep-a").await.unwrap();
    a.down().await;
    down_from(&client, "sleep-b", &b).await;
    delete(&client, &volume.volume_id).await;
}

/// Its export lives, and might still be about to resize the image.
#[tokio::test(flavor = "multi_thread")]
async fn node_killed_during_growth_does_not_block_growth() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("grow-c").await;
    let mut node = ceph.node("grow-n").await;
    let (client, io) = (controller.client(), ceph.io(""));
    let volume = client.create("killed in growth").size(AT_FIRST).block().done().await;
    let used = up_on(&client, &node, "grow-n", &volume, block()).await;
    client.expand(&used.id, GROWN).await.unwrap();
    let growing = begin_to_grow(&node, &io, &used).await;
    node.kill9();
    let _ = growing.await.unwrap();
    assert!(is_size_locked(&io, &used.id));
    expect_code(client.expand(&used.id, AGAIN).await, Code::Aborted);
    node.signal_exporters(Signal::CONT);
    node.restart().await;
    // Asked of the controller alone: the node has to let go by itself.
    persist(|| client.expand(&used.id, AGAIN)).await;
    used.expand(AGAIN).await.unwrap();
    let end = AGAIN - 4096;
    write_direct(&used.data_path(), end, &Pattern::new(2).bytes(end, 4096)).unwrap();
    Pattern::new(2).check_at(&used.data_path(), end, 4096);
    down_from(&client, "grow-n", &used).await;
    delete(&client, &volume.volume_id).await;
}

/// Controllers make the image larger while the node shows its export what it has become.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_follow_repeated_growth() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controllers = [ceph.controller("race-grow-1").await, ceph.controller("race-grow-2").await];
    let nodes = [ceph.node("race-grow-a").await, ceph.node("race-grow-b").await];
    let client = controllers[0].client();
    let writers = block().mode(Mode::MultiNodeMultiWriter);
    let create = client.create("grown by many").size(AT_FIRST).capability(writers.clone());
    let volume = create.done().await;
    let a = up_on(&client, &nodes[0], "race-grow-a", &volume, writers.clone()).await;
    let b = up_on(&client, &nodes[1], "race-grow-b", &volume, writers).await;
    for round in 1..=6_u64 {
        let size = AT_FIRST + round * 16 * MIB;
        let growing: Vec<_> = [(0, size - 8 * MIB), (1, size)]
            .into_iter()
            .map(|(turn, bytes)| {
                let (client, id) = (controllers[turn].client(), a.id.clone());
                tokio::spawn(async move { persist(|| client.expand(&id, bytes)).await })
            })
            .chain([&a, &b].into_iter().map(|used| {
                let used = used.clone();
                // Of the size that it has at that moment.
                tokio::spawn(async move {
                    persist(|| used.expand(AT_FIRST)).await;
                    v1::ControllerExpandVolumeResponse::default()
                })
            }))
            .collect();
        for call in growing {
            call.await.unwrap();
        }
        for (used, seed) in [(&a, round), (&b, 100 + round)] {
            persist(|| used.expand(size)).await;
            let at = size - if seed == round { 4096 } else { 8192 };
            write_direct(&used.target, at, &Pattern::new(seed).bytes(at, 4096)).unwrap();
        }
    }
    for round in 1..=6_u64 {
        let size = AT_FIRST + round * 16 * MIB;
        Pattern::new(round).check_at(&b.target, size - 4096, 4096);
        Pattern::new(100 + round).check_at(&a.target, size - 8192, 4096);
    }
    for (name, used) in [("race-grow-a", &a), ("race-grow-b", &b)] {
        down_from(&client, name, used).await;
    }
    delete(&client, &volume.volume_id).await;
}
