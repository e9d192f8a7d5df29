//! Nodes that end, or stop, while a group snapshot over both of them is taken.

use std::fs;
use std::path::Path;
use std::time::Duration;

use orlop_tests::*;
use rustix::process::Signal;

use crate::router::cluster::Cluster;
use crate::router::groups::{SIZE, write_number};

/// So many effects still happen, and after the next one the daemon ends (crates/sys/src/crash.rs).
fn end_after(crash: &Path, effects: usize) {
    fs::write(crash.join("new"), effects.to_string()).unwrap();
    fs::rename(crash.join("new"), crash.join("at")).unwrap();
}

fn disarm(crash: &Path) {
    for name in ["at", "armed"] {
        let _ = fs::remove_file(crash.join(name));
    }
}

/// All of it, or nothing, once the call is repeated; then it is deleted.
async fn whole_in_the_end(cluster: &Cluster, name: &str, sources: &[String]) {
    let client = cluster.client();
    let group = cluster.group_in_the_end(name, sources).await;
    assert_eq!(group.snapshots.len(), 2, "{name}");
    cluster.until_all_are_known().await;
    assert_eq!(client.list_snapshots().await.unwrap().len(), 2, "{name}: another part is left");
    client.delete_group_snapshot(&group.group_snapshot_id, &group.member_ids()).await.unwrap();
    assert_eq!(client.list_snapshots().await.unwrap().len(), 0, "{name}");
}

/// Before its part is committed, in the middle of that, and after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_whole_or_nowhere_wherever_a_node_ends() {
    needs_root!();
    let step = if variable("ORLOP_TEST_TORTURE").is_some() { 1 } else { 5 };
    let configure = |launch: Launch| {
        let crash = launch.scratch().ensure_dir("crash");
        launch.env("ORLOP_TEST_CRASH", crash)
    };
    let mut cluster = Cluster::start_with(PoolFs::Xfs, configure).await;
    let used = cluster.mounted_volumes(SIZE).await;
    let sources: Vec<String> = used.iter().map(|it| it.id.clone()).collect();
    let mut ended = [0; 2];
    for (victim, ends) in ended.iter_mut().enumerate() {
        for effects in (victim..).step_by(step) {
            let crash = cluster.nodes[victim].daemon.launch().scratch().join("crash");
            let name = format!("group-{victim}-{effects}");
            end_after(&crash, effects);
            let first = cluster.client().group_snapshot(&name, &sources).await;
            disarm(&crash);
            let was_reached = crash.join("crashed").exists();
            if was_reached {
                cluster.nodes[victim].daemon.wait_for_end();
                fs::remove_file(crash.join("crashed")).unwrap();
                *ends += 1;
            } else {
                first.unwrap();
            }
            // The kernel has the mounts; nothing thaws but what is left of the daemon, and the other one.
            used.iter().for_each(|it| write_number(&it.target.join("number"), 1));
            if was_reached {
                cluster.nodes[victim].daemon.restart().await;
            }
            whole_in_the_end(&cluster, &name, &sources).await;
            if !was_reached {
                break;
            }
        }
    }
    report(&format!("router: {ended:?} ends of node-a and node-b in the middle of a group"));
    assert!(ended.iter().all(|ends| *ends > 1), "{ended:?}");
    for on_node in &used {
        on_node.down().await;
    }
}

/// A stopped process keeps its connections. The filesystem of the other node must not wait for it, and its own part
/// must not appear once it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_does_not_wait_for_a_node_that_is_stopped() {
    needs_root!();
    let cluster = Cluster::start(PoolFs::Xfs).await;
    let used = cluster.mounted_volumes(SIZE).await;
    let sources: Vec<String> = used.iter().map(|it| it.id.clone()).collect();
    let mut random = Rng::with_seed(16);
    for round in 0..4 {
        let name = format!("group-{round}");
        let (client, first, members) = (cluster.client(), name.clone(), sources.clone());
        let calling = tokio::spawn(async move { client.group_snapshot(&first, &members).await });
        tokio::time::sleep(Duration::from_micros(random.u64(..20_000))).await;
        cluster.nodes[1].daemon.signal(Signal::STOP);
        let written = used[0].target.join("number");
        tokio::task::spawn_blocking(move || write_number(&written, round)).await.unwrap();
        let outcome = calling.await.unwrap();
        cluster.nodes[1].daemon.signal(Signal::CONT);
        write_number(&used[1].target.join("number"), round);
        if let Err(status) = outcome {
            assert_eq!(status.code(), Code::Unavailable, "{status}");
        }
        whole_in_the_end(&cluster, &name, &sources).await;
    }
    for on_node in &used {
        on_node.down().await;
    }
}
