//! From one node to another, in good order and not.

use std::path::Path;

use orlop_tests::*;

use crate::ceph::{VOLUME, delete, down_from, up_on};

const DATA: u64 = 8 * MIB;

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_moves_with_its_data() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("move-c").await;
    let nodes = [("move-a", ceph.node("move-a").await), ("move-b", ceph.node("move-b").await)];
    let client = controller.client();
    let volume = client.create("moved").size(VOLUME).fs("xfs").done().await;
    for round in 0..4_usize {
        let (name, node) = &nodes[round % 2];
        let used = up_on(&client, node, name, &volume, mount("xfs")).await;
        let seed = u64::try_from(round).unwrap();
        if round > 0 {
            Pattern::new(seed - 1).check(&used.data_path(), DATA);
        }
        Pattern::new(seed).write(&used.data_path(), DATA);
        let (other, _) = &nodes[(round + 1) % 2];
        let refused = client.controller_publish(&used.id, other, mount("xfs"), false).await;
        let status = expect_code(refused, Code::FailedPrecondition);
        assert!(status.message().contains(name), "{status}");
        down_from(&client, name, &used).await;
    }
    delete(&client, &volume.volume_id).await;
}

/// The node is out of reach, but lives: its daemon is gone, its workload goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lost_a_raw_volume_cannot_write_to_it() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controllers = [ceph.controller("lost-1").await, ceph.controller("lost-2").await];
    let (mut old, new) = (ceph.node("lost-a").await, ceph.node("lost-b").await);
    let client = controllers[0].client();
    let volume = client.create("lost").size(VOLUME).block().done().await;
    let before = up_on(&client, &old, "lost-a", &volume, block()).await;
    Pattern::new(1).write(&before.data_path(), DATA);
    let device = before.data_path();
    write_direct(&device, 0, &Pattern::new(2).bytes(0, 4096)).expect("a writer before the fence");
    old.kill9();

    let other = controllers[1].client();
    expect_code(
        other.controller_publish(&before.id, "lost-b", block(), false).await,
        Code::FailedPrecondition,
    );
    other.controller_unpublish(&before.id, "lost-a").await.unwrap();
    let after = up_on(&other, &new, "lost-b", &volume, block()).await;
    Pattern::new(2).check(&after.data_path(), 4096);
    Pattern::new(3).write(&after.data_path(), DATA);

    for offset in [0, MIB, DATA - 4096] {
        let refused = write_direct(&device, offset, &Pattern::new(4).bytes(offset, 4096));
        assert!(refused.is_err(), "the fenced node wrote at {offset}");
    }
    check_directly(&after.data_path(), Pattern::new(3));

    old.restart().await;
    assert_unwell(&before).await;
    before.down().await;
    down_from(&other, "lost-b", &after).await;
    delete(&other, &before.id).await;
}

/// Past the cache of the device, which only this node fills.
fn check_directly(device: &Path, expected: Pattern) {
    orlop_sys::file::sync_device(device).unwrap();
    drop_cache(device);
    expected.check(device, DATA);
}

fn drop_cache(device: &Path) {
    use rustix::fs::{Advice, fadvise};
    let file = std::fs::File::open(device).unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

async fn assert_unwell(used: &OnNode) {
    let condition = used.stats().await.unwrap().volume_condition.unwrap();
    assert!(condition.abnormal, "{condition:?}");
    assert!(condition.message.contains("this node was fenced"), "{condition:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lost_a_mounted_volume_cannot_change_it() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("gone-c").await;
    let (mut old, new) = (ceph.node("gone-a").await, ceph.node("gone-b").await);
    let client = controller.client();
    let volume = client.create("gone").size(VOLUME).fs("xfs").done().await;
    let before = up_on(&client, &old, "gone-a", &volume, mount("xfs")).await;
    Pattern::new(1).write(&before.data_path(), DATA);
    old.kill9();

    client.controller_unpublish(&before.id, "gone-a").await.unwrap();
    let after = up_on(&client, &new, "gone-b", &volume, mount("xfs")).await;
    Pattern::new(1).check(&after.data_path(), DATA);
    Pattern::new(2).write(&after.target.join("new"), DATA);
    let late = std::fs::File::create(before.target.join("late")).and_then(|file| file.sync_all());
    assert!(late.is_err(), "the fenced node changed the filesystem");
    down_from(&client, "gone-b", &after).await;

    old.restart().await;
    assert_unwell(&before).await;
    before.down().await;
    // What is there now is what the node wrote that had the volume last.
    let again = up_on(&client, &old, "gone-a", &volume, mount("xfs")).await;
    Pattern::new(1).check(&again.data_path(), DATA);
    Pattern::new(2).check(&again.target.join("new"), DATA);
    assert!(!again.target.join("late").exists());
    down_from(&client, "gone-a", &again).await;
    delete(&client, &volume.volume_id).await;
}
