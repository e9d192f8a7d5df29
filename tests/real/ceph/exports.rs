//! The process that shows an image to the kernel: it outlives the daemon, and the daemon outlives it.

use orlop_tests::*;

use crate::ceph::{VOLUME, delete, down_from, up_on};

const DATA: u64 = 8 * MIB;

#[tokio::test(flavor = "multi_thread")]
async fn workloads_survive_a_killed_daemon() {
    needs_root!();
    let ceph = TestCeph::shared();
    let mut daemon = ceph.launch("kept", "all").start().await;
    let client = daemon.client();
    let mut in_use = Vec::new();
    for (name, capability) in [("kept mount", mount("ext4")), ("kept block", block())] {
        let create = client.create(name).size(VOLUME).capability(capability.clone());
        let used = up_on(&client, &daemon, "kept", &create.done().await, capability).await;
        let workload = Workload::writing(&used.data_path());
        in_use.push((used, workload));
    }
    for _ in 0..3 {
        daemon.kill9();
        for (_, workload) in &in_use {
            workload.goes_on().await;
        }
        daemon.restart().await;
        for (used, workload) in &in_use {
            used.stage().await.expect("a repeated stage");
            used.publish().await.expect("a repeated publish");
            let stats = used.stats().await.unwrap();
            assert!(!stats.volume_condition.unwrap().abnormal);
            workload.goes_on().await;
        }
    }
    for (used, workload) in in_use {
        workload.finish();
        down_from(&client, "kept", &used).await;
        delete(&client, &used.id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_export_is_reported_and_replaced() {
    needs_root!();
    let ceph = TestCeph::shared();
    let mut daemon = ceph.launch("killed", "all").start().await;
    let client = daemon.client();
    for (name, capability) in [("killed mount", mount("xfs")), ("killed block", block())] {
        let create = client.create(name).size(VOLUME).capability(capability.clone());
        let volume = create.done().await;
        let used = up_on(&client, &daemon, "killed", &volume, capability.clone()).await;
        Pattern::new(1).write(&used.data_path(), DATA);
        daemon.kill_exporters();
        // By now nothing that the kernel remembers of the export's file counts any more.
        daemon.restart().await;

        let condition = used.stats().await.unwrap().volume_condition.unwrap();
        assert!(condition.abnormal, "{condition:?}");
        assert!(condition.message.contains("has ended"), "{condition:?}");
        let health = used.health().await.unwrap();
        assert_eq!(health.health_statuses[0].reason, "DeviceErrors");
        assert_eq!(health.health_statuses[0].message, condition.message, "one source for both");
        expect_code(used.stage().await, Code::FailedPrecondition);
        used.down().await;
        used.up().await;
        Pattern::new(1).check(&used.data_path(), DATA);
        Pattern::new(2).write(&used.data_path(), DATA);
        assert!(!used.stats().await.unwrap().volume_condition.unwrap().abnormal);
        down_from(&client, "killed", &used).await;
        delete(&client, &volume.volume_id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn export_in_use_is_no_finding_even_behind_a_symlink() {
    needs_root!();
    let ceph = TestCeph::shared();
    let launch = ceph.launch("linked", "all");
    let link = launch.scratch().join("link");
    std::os::unix::fs::symlink(launch.scratch().ensure_dir("run"), &link).unwrap();
    let daemon = launch.env("ORLOP_RUN_DIR", &link).start().await;
    let client = daemon.client();
    let volume = client.create("linked").size(VOLUME).block().done().await;
    let used = up_on(&client, &daemon, "linked", &volume, block()).await;
    // Other tests work on the same pool, which leaves findings of other kinds.
    let output = daemon.launch().run(&["doctor"]).stdout;
    assert!(
        output.contains("the Ceph pool rbd") && !output.contains("orphaned-export"),
        "{output}"
    );
    down_from(&client, "linked", &used).await;
    delete(&client, &volume.volume_id).await;
}

/// A write would wait for the lock, in the kernel at last.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_locked_by_hand_is_not_staged() {
    needs_root!();
    let ceph = TestCeph::shared();
    let daemon = ceph.launch("hand-locked", "all").start().await;
    let client = daemon.client();
    let volume = client.create("hand-locked").size(VOLUME).fs("ext4").done().await;
    let id = &volume.volume_id;
    ceph.rbd(&["lock", "add", id, "maintenance"]);
    let mut used = client.on_node(&volume, mount("ext4"));
    let published = client.controller_publish(id, "hand-locked", mount("ext4"), false).await;
    used.publish_context = published.unwrap();
    let refused = expect_code(used.stage().await, Code::FailedPrecondition);
    let (_, locker) = refused.message().split_once("maintenance client.").expect("the command");
    let locker = format!("client.{}", locker.split('`').next().unwrap());
    used.unstage().await.unwrap();
    ceph.rbd(&["lock", "rm", id, "maintenance", &locker]);
    used.up().await;
    down_from(&client, "hand-locked", &used).await;
    delete(&client, id).await;
}
