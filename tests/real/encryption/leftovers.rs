//! Mappings that no call will close, and what the doctor makes of them; volumes whose pool is gone.

use orlop_tests::*;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn doctor_closes_a_mapping_that_nothing_names() {
    needs_encryption!();
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let mut daemon = launch(&pool).start().await;
    let node = new_volume(&daemon.client(), "v", 64 * MIB, block()).await;
    node.stage().await.unwrap();
    let sound = daemon.launch().run(&["doctor"]);
    assert!(sound.status.success(), "{}", sound.stdout);
    daemon.kill9();
    let records = pool.scratch().join("run/csi.orlop.io/volumes");
    std::fs::remove_file(records.join(format!("{}.json", node.id))).unwrap();
    let found = daemon.launch().run(&["doctor"]);
    assert!(found.stdout.contains("stray-device"), "{}", found.stdout);
    daemon.launch().run(&["doctor", "--repair"]);
    assert_eq!(mappings(&node.id), [""; 0]);
    assert_eq!(daemon.devices_and_mounts(), [""; 0]);
    daemon.restart().await;
    node.up().await;
    node.down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volume_is_unstaged_without_its_pool() {
    needs_encryption!();
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let mut daemon = launch(&pool).start().await;
    let node = new_volume(&daemon.client(), "v", 64 * MIB, mount("ext4")).await;
    node.up().await;
    Pattern::new(1).write(&node.data_path(), MIB);
    daemon.terminate();
    let other = pool.scratch().ensure_dir("other");
    let mut without = launch(&pool).env("ORLOP_POOL", other.as_os_str()).start().await;
    let client = without.client();
    client.node_unpublish(&node.id, &node.target).await.unwrap();
    client.node_unstage(&node.id, &node.staging).await.unwrap();
    assert_eq!(mappings(&node.id), [""; 0]);
    without.terminate();
    daemon.restart().await;
    node.up().await;
    Pattern::new(1).check(&node.data_path(), MIB);
    node.down().await;
}
