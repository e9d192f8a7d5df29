//! Ceph daemons are killed while the cluster is used: acknowledged data and volumes are not lost, and calls succeed
//! again as soon as Ceph does.

use orlop_tests::*;

use crate::ceph::{VOLUME, delete, down_from, persist, up_on};

const DATA: u64 = 8 * MIB;

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_data_survives_ceph_daemon_kills() {
    needs_root!();
    let ceph = TestCeph::durable();
    let (mut controller, other) = (ceph.controller("out-1").await, ceph.controller("out-2").await);
    let mut node = ceph.node("out-n").await;
    let client = controller.client();
    let volume = client.create("busy").size(VOLUME).fs("xfs").done().await;
    let used = up_on(&client, &node, "out-n", &volume, mount("xfs")).await;
    Pattern::new(1).write(&used.target.join("kept"), DATA);
    let workload = Workload::writing(&used.data_path());
    workload.goes_on().await;
    let mut answered = Vec::new();

    for victims in [&["mon.a", "osd.0"][..], &["mon.a", "osd.0", "osd.1", "osd.2"]] {
        let name = format!("made while {victims:?} were killed");
        let creation = {
            let (client, name) = (client.clone(), name.clone());
            tokio::spawn(async move { client.create(&name).size(VOLUME).block().send().await })
        };
        victims.iter().for_each(|victim| ceph.kill(victim));
        controller.kill9();
        node.kill9();
        ceph.revive();
        controller.restart().await;
        node.restart().await;
        if let Ok(made) = creation.await.unwrap() {
            answered.push(made.volume_id);
        }
        let made = persist(|| other.client().create(&name).size(VOLUME).block().send()).await;
        answered.push(made.volume_id);
        workload.goes_on().await;
        Pattern::new(1).check(&used.target.join("kept"), DATA);
    }

    let listed = client.list_volumes().await.unwrap();
    let listed: Vec<_> = listed.into_iter().map(|e| e.volume.unwrap().volume_id).collect();
    assert!(answered.iter().all(|volume| listed.contains(volume)), "{answered:?}: {listed:?}");
    workload.finish();
    down_from(&client, "out-n", &used).await;
    answered.sort();
    answered.dedup();
    for volume in answered.iter().chain([&used.id]) {
        delete(&client, volume).await;
    }
}
