//! The daemon is killed while it holds writers still, and its thaw helper lets them go.

use std::time::Duration;

use orlop_tests::*;

use crate::group::{assert_no_snapshot, ids, members, take_down};

const VOLUME: u64 = 320 * MIB;
const ROUNDS: u64 = 24;
/// Far more than it takes; reached only by what stays frozen.
const TIMEOUT: Duration = Duration::from_secs(60);

/// btrfs is not among them: killed in the middle of a thaw, it turns read-only by itself (seen on
/// Linux 6.18).
fn uses() -> [v1::VolumeCapability; 4] {
    [mount("xfs"), mount("ext4"), mount("xfs"), mount("ext4")]
}

fn frozen_notes(pool: &TestPool) -> usize {
    let directory = pool.scratch().join("run/csi.orlop.io/frozen");
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    // Hidden files are what an interrupted write left behind.
    names.filter(|name| !name.as_encoded_bytes().starts_with(b".")).count()
}

async fn assert_all_go_on(writers: &[Workload], when: &str) {
    for writer in writers {
        let waited = tokio::time::timeout(TIMEOUT, writer.goes_on()).await;
        assert!(waited.is_ok(), "a filesystem is still frozen {when}");
    }
}

/// At random moments, and in every second round as soon as the first filesystem is to be frozen.
#[tokio::test(flavor = "multi_thread")]
async fn writers_continue_and_no_partial_group_is_left() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 16 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let nodes = members(&client, &uses(), VOLUME).await;
    let writers: Vec<_> = nodes.iter().map(|node| Workload::writing(&node.data_path())).collect();
    let mut rng = Rng::with_seed(1);
    let (mut while_frozen, mut finished) = (0, 0);
    for round in 0..ROUNDS {
        let name = format!("group {round}");
        let making = {
            let (client, name, sources) = (client.clone(), name.clone(), ids(&nodes));
            tokio::spawn(async move { client.group_snapshot(&name, &sources).await })
        };
        if round % 2 == 0 {
            tokio::time::sleep(Duration::from_millis(rng.u64(..600))).await;
        } else {
            while frozen_notes(&pool) == 0 && !making.is_finished() {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(Duration::from_micros(rng.u64(..20_000))).await;
        }
        daemon.kill9();
        while_frozen += usize::from(frozen_notes(&pool) > 0);
        let acknowledged = making.await.unwrap().is_ok();
        assert_all_go_on(&writers, "after the daemon was killed").await;

        daemon.restart().await;
        assert_all_go_on(&writers, "after a restart").await;
        assert_eq!(frozen_notes(&pool), 0);
        let found = client.list_snapshots().await.unwrap().len();
        assert!(found == 0 || found == nodes.len(), "round {round}: {found} of a group");
        assert_eq!(pool.entries("snapshots").len(), found);
        assert!(!acknowledged || found > 0, "round {round}: what was acknowledged is gone");
        finished += usize::from(found > 0);
        let group = client.group_snapshot(&name, &ids(&nodes)).await.expect("the repeated call");
        let own = group.member_ids();
        client.delete_group_snapshot(&group.group_snapshot_id, &own).await.unwrap();
        assert_no_snapshot(&pool, &client).await;
    }
    report(&format!(
        "killed {ROUNDS} times: {while_frozen} while frozen, {finished} after the group was made"
    ));
    assert!(while_frozen > 0, "never killed while something was frozen");
    writers.into_iter().for_each(Workload::finish);
    take_down(&client, &nodes).await;
}

/// Copying takes long in a plain directory, so it is sure that all members are frozen.
#[tokio::test(flavor = "multi_thread")]
async fn thaw_helper_thaws_all_members_without_a_restart() {
    needs_root!();
    const DATA: u64 = 160 * MIB;
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let nodes = members(&client, &uses(), VOLUME).await;
    for node in &nodes {
        Pattern::new(1).write(&node.target.join("ballast"), DATA);
    }
    let writers: Vec<_> = nodes.iter().map(|node| Workload::writing(&node.data_path())).collect();
    let making = {
        let (client, sources) = (client.clone(), ids(&nodes));
        tokio::spawn(async move { client.group_snapshot("group", &sources).await })
    };
    until_copying(&pool).await;
    daemon.kill9();
    assert_eq!(frozen_notes(&pool), nodes.len(), "killed too late");
    making.await.unwrap().expect_err("the daemon that made the group is gone");
    assert_all_go_on(&writers, "after the daemon was killed").await;

    daemon.restart().await;
    assert_eq!(frozen_notes(&pool), 0);
    assert_no_snapshot(&pool, &client).await;
    assert_all_go_on(&writers, "after a restart").await;
    writers.into_iter().for_each(Workload::finish);
    take_down(&client, &nodes).await;
}

async fn until_copying(pool: &TestPool) {
    let copied = |name: &String| {
        let data = pool.path.join("staging").join(name).join("data");
        orlop_sys::file::allocated_bytes(&data).is_ok_and(|bytes| bytes > 0)
    };
    for _ in 0..60_000 {
        if pool.entries("staging").iter().any(copied) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("no copy has begun");
}
