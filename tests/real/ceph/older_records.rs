//! Records that were restored from older copies, by `rbd image-meta set` or a tool for backups.

use orlop_tests::*;

use crate::ceph::{VOLUME, delete, down_from, up_on};

const DATA: u64 = 8 * MIB;

/// The metadata key of a volume's record, and its value now.
fn record(ceph: &TestCeph, volume: &str) -> (String, String) {
    let listed = ceph.rbd(&["image-meta", "list", volume, "--format", "json"]);
    let all: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&listed).unwrap();
    let mut records = all.into_iter().filter(|(key, _)| key.starts_with("orlop.record."));
    let (key, value) = records.next().unwrap();
    (key, value.as_str().unwrap().to_owned())
}

/// The record is from before the volume was published to the node that writes to it; and from when
/// another node had it.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_of_before_the_record_is_fenced_first() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("older-c").await;
    let (old, new) = (ceph.node("older-a").await, ceph.node("older-b").await);
    let client = controller.client();
    let volume = client.create("older").size(VOLUME).block().done().await;
    let id = &volume.volume_id;
    let (key, unpublished) = record(ceph, id);
    client.controller_publish(id, "older-b", block(), false).await.unwrap();
    let (_, elsewhere) = record(ceph, id);
    client.controller_unpublish(id, "older-b").await.unwrap();
    let before = up_on(&client, &old, "older-a", &volume, block()).await;
    Pattern::new(1).write(&before.target, DATA);

    let after = new.client().on_node(&volume, block());
    for restored in [&unpublished, &elsewhere] {
        ceph.rbd(&["image-meta", "set", id, &key, restored]);
        let refused = client.controller_publish(id, "older-b", block(), false).await;
        let status = expect_code(refused, Code::FailedPrecondition);
        assert!(status.message().contains("older-a"), "{status}");
        expect_code(after.stage().await, Code::FailedPrecondition);
        expect_code(client.delete(id).await, Code::FailedPrecondition);
        Pattern::new(2).write(&before.target, DATA);
    }
    let doctor = controller.launch().run(&["doctor"]);
    assert!(doctor.stdout.contains("unknown-writer"), "{doctor:?}");

    // What the doctor says.
    client.controller_unpublish(id, "older-a").await.unwrap();
    client.controller_publish(id, "older-b", block(), false).await.unwrap();
    after.up().await;
    Pattern::new(2).check(&after.target, DATA);
    Pattern::new(3).write(&after.target, DATA);
    write_direct(&before.target, 0, &Pattern::new(4).bytes(0, 4096)).unwrap_err();
    before.unpublish().await.unwrap();
    before.unstage().await.unwrap();
    Pattern::new(3).check(&after.target, DATA);
    down_from(&client, "older-b", &after).await;
    delete(&client, id).await;
}

/// It is from before an expansion, and the workload uses all of the volume.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_before_an_expansion_cuts_no_device() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("short-c").await;
    let node = ceph.node("short-n").await;
    let client = controller.client();
    let volume = client.create("short").size(VOLUME).block().done().await;
    let (key, before) = record(ceph, &volume.volume_id);
    let used = up_on(&client, &node, "short-n", &volume, block()).await;
    let on_node = node.client();
    client.expand(&used.id, 2 * VOLUME).await.unwrap();
    on_node.node_expand(&used.id, &used.target, 2 * VOLUME).await.unwrap();
    let last = 2 * VOLUME - MIB;
    Pattern::new(1).write_at(&used.target, last, MIB);

    let before: serde_json::Value = serde_json::from_str(&before).unwrap();
    let (_, now) = record(ceph, &used.id);
    let mut restored: serde_json::Value = serde_json::from_str(&now).unwrap();
    restored["capacity_bytes"] = before["capacity_bytes"].clone();
    ceph.rbd(&["image-meta", "set", &used.id, &key, &restored.to_string()]);
    client.expand(&used.id, VOLUME + 64 * MIB).await.unwrap();
    let refused = on_node.node_expand(&used.id, &used.target, VOLUME + 64 * MIB).await;
    let status = expect_code(refused, Code::FailedPrecondition);
    assert!(status.message().contains(&format!("to {} bytes", 2 * VOLUME)), "{status}");
    Pattern::new(1).check_at(&used.target, last, MIB);
    // What the message says.
    client.expand(&used.id, 2 * VOLUME).await.unwrap();
    on_node.node_expand(&used.id, &used.target, 2 * VOLUME).await.unwrap();
    Pattern::new(1).check_at(&used.target, last, MIB);
    down_from(&client, "short-n", &used).await;
    delete(&client, &used.id).await;
}

/// It says that the volume was never formatted.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_before_the_filesystem_formats_nothing() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("blank-c").await;
    let node = ceph.node("blank-n").await;
    let client = controller.client();
    for fs in ["ext4", "xfs"] {
        let volume = client.create(fs).size(VOLUME).fs(fs).done().await;
        let (key, blank) = record(ceph, &volume.volume_id);
        let used = up_on(&client, &node, "blank-n", &volume, mount(fs)).await;
        Pattern::new(1).write(&used.data_path(), DATA);
        down_from(&client, "blank-n", &used).await;
        let (_, formatted) = record(ceph, &used.id);
        ceph.rbd(&["image-meta", "set", &used.id, &key, &blank]);
        client.controller_publish(&used.id, "blank-n", mount(fs), false).await.unwrap();
        used.stage().await.unwrap_err();
        client.controller_unpublish(&used.id, "blank-n").await.unwrap();
        ceph.rbd(&["image-meta", "set", &used.id, &key, &formatted]);
        let again = up_on(&client, &node, "blank-n", &volume, mount(fs)).await;
        Pattern::new(1).check(&again.data_path(), DATA);
        down_from(&client, "blank-n", &again).await;
        delete(&client, &used.id).await;
    }
}
