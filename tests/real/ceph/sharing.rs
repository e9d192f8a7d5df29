//! Volumes that several nodes use at once.

use orlop_tests::*;

use crate::ceph::{VOLUME, delete, down_from, up_on};

const DATA: u64 = 8 * MIB;

#[tokio::test(flavor = "multi_thread")]
async fn several_nodes_read_a_filesystem() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("read-c").await;
    let nodes = [("read-a", ceph.node("read-a").await), ("read-b", ceph.node("read-b").await)];
    let client = controller.client();
    let original = client.create("written").size(VOLUME).fs("xfs").done().await;
    let used = up_on(&client, &nodes[0].1, "read-a", &original, mount("xfs")).await;
    Pattern::new(1).write(&used.data_path(), DATA);
    // Of a filesystem in use on another node, so the copy's journal is to be replayed.
    let snapshot = client.snapshot("written", &used.id).await.unwrap().snapshot_id;
    down_from(&client, "read-a", &used).await;

    let reader = mount("xfs").mode(Mode::MultiNodeReaderOnly);
    let create = client.create("read").capability(reader.clone()).from_snapshot(&snapshot);
    let volume = create.done().await;
    let mut reading = Vec::new();
    for (name, node) in &nodes {
        let used = up_on(&client, node, name, &volume, reader.clone()).await;
        Pattern::new(1).check(&used.data_path(), DATA);
        assert!(std::fs::write(used.target.join("new"), "x").is_err());
        reading.push((*name, used));
    }
    for (name, used) in &reading {
        Pattern::new(1).check(&used.data_path(), DATA);
        down_from(&client, name, used).await;
    }
    client.delete_snapshot(&snapshot).await.unwrap();
    for volume in [&volume, &original] {
        delete(&client, &volume.volume_id).await;
    }
}

/// One that has unstaged it, but is still published to, counts no more as having it mounted: the node that
/// comes next is alone, and makes the filesystem as large as the volume.
#[tokio::test(flavor = "multi_thread")]
async fn unstaged_reader_does_not_block_the_next_node() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("past-c").await;
    let (first, second) = (ceph.node("past-a").await, ceph.node("past-b").await);
    let client = controller.client();
    let reader = mount("xfs").mode(Mode::MultiNodeReaderOnly);
    let volume = client.create("read in turn").size(VOLUME).capability(reader.clone()).done().await;
    let a = up_on(&client, &first, "past-a", &volume, reader.clone()).await;
    a.down().await;
    client.expand(&a.id, 2 * VOLUME).await.unwrap();
    let b = up_on(&client, &second, "past-b", &volume, reader).await;
    assert_size(&b, 2 * VOLUME);
    down_from(&client, "past-b", &b).await;
    client.controller_unpublish(&a.id, "past-a").await.unwrap();
    delete(&client, &volume.volume_id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_raw_writers_can_be_fenced() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("write-c").await;
    let (mut first, second) = (ceph.node("write-a").await, ceph.node("write-b").await);
    let client = controller.client();
    let writers = block().mode(Mode::MultiNodeMultiWriter);
    for mode in [Mode::MultiNodeMultiWriter, Mode::MultiNodeSingleWriter] {
        let mounted =
            client.create("shared mount").size(VOLUME).capability(mount("xfs").mode(mode));
        expect_code(mounted.send().await, Code::InvalidArgument);
    }
    let create = client.create("shared").size(VOLUME).capability(writers.clone());
    let volume = create.done().await;
    let a = up_on(&client, &first, "write-a", &volume, writers.clone()).await;
    let b = up_on(&client, &second, "write-b", &volume, writers.clone()).await;
    for round in 0..3 {
        let at = |turn: u64| (2 * round + turn) * 4096;
        write_direct(&a.target, at(0), &Pattern::new(1).bytes(at(0), 4096)).unwrap();
        write_direct(&b.target, at(1), &Pattern::new(2).bytes(at(1), 4096)).unwrap();
    }
    for (device, own, seed) in [(&a.target, 1, 2), (&b.target, 0, 1)] {
        for round in 0..3 {
            Pattern::new(seed).check_at(device, (2 * round + own) * 4096, 4096);
        }
    }
    first.kill9();
    client.controller_unpublish(&a.id, "write-a").await.unwrap();
    assert!(write_direct(&a.target, 0, &Pattern::new(3).bytes(0, 4096)).is_err());
    write_direct(&b.target, MIB, &Pattern::new(4).bytes(MIB, 4096)).expect("the other goes on");
    first.restart().await;
    a.down().await;
    down_from(&client, "write-b", &b).await;
    delete(&client, &volume.volume_id).await;
}
