//! When all is quiet: do the answers, the pool, the machine and the daemon tell the same story?

use std::collections::BTreeSet;

use orlop_tests::*;

use crate::stress::history::{History, Switch};
use crate::stress::objects::{Subject, Subjects};

/// What the daemon says about a volume on this node.
struct OnThisNode {
    staged: bool,
    published: [bool; 2],
}

pub(crate) async fn check(
    pool: &TestPool,
    daemon: &Daemon,
    subjects: &Subjects,
    history: &History,
) {
    let client = daemon.client();
    check_pool(pool, &client, subjects, history).await;
    let mut expected = BTreeSet::new();
    for (number, subject) in subjects.volumes.iter().enumerate() {
        let now = look_at(&client, subject).await;
        let must = |switch, is: bool, what: &str| {
            let must = history.must_be(&switch);
            assert!(must.is_none_or(|must| must == is), "{}: {what}: {is}", subject.name);
        };
        must(Switch::Staged(number), now.staged, "staged");
        for target in [0, 1] {
            must(Switch::Published(number, target), now.published[target], "published");
        }
        check_machine(pool, daemon, subject, &now, &mut expected);
    }
    let strays: Vec<_> =
        daemon.leaks().into_iter().filter(|each| !expected.contains(each)).collect();
    assert_eq!(strays, [""; 0], "attached or mounted without a record");
    check_node_records(pool, &client, subjects).await;
}

async fn check_pool(pool: &TestPool, client: &Client, subjects: &Subjects, history: &History) {
    let listed = client.list_volumes().await.unwrap();
    let ids: Vec<_> = listed.iter().map(|entry| entry.volume.clone().unwrap().volume_id).collect();
    let snapshots = client.list_snapshots().await.unwrap();
    let snapshots: Vec<_> = snapshots.into_iter().map(|each| each.snapshot_id).collect();
    assert_eq!(pool.entries("volumes"), ids);
    assert_eq!(pool.entries("snapshots"), snapshots);
    assert_eq!(pool.entries("staging"), [""; 0]);
    assert_eq!(pool.entries("trash"), [""; 0]);

    for (number, snapshot) in subjects.snapshots.iter().enumerate() {
        let (is, must) =
            (snapshots.contains(&snapshot.id), history.must_be(&Switch::Snapshot(number)));
        assert!(must.is_none_or(|must| must == is), "{}: {is}", snapshot.name);
    }
    for (number, subject) in subjects.volumes.iter().enumerate() {
        let entry =
            listed.iter().find(|each| each.volume.as_ref().unwrap().volume_id == subject.id);
        let must = history.must_be(&Switch::Volume(number));
        assert!(must.is_none_or(|must| must == entry.is_some()), "{} exists?", subject.name);
        let Some(entry) = entry else { continue };
        let (volume, status) = (entry.volume.as_ref().unwrap(), entry.status.as_ref().unwrap());
        assert!(volume.capacity_bytes >= int(history.least_size(number)), "{}", subject.name);
        let data = pool.volume_data(&subject.id).metadata().unwrap().len();
        assert_eq!(int(data), volume.capacity_bytes, "{}", subject.name);
        assert!(!status.volume_condition.as_ref().unwrap().abnormal, "{}", subject.name);
        let attached = !status.published_node_ids.is_empty();
        let must = history.must_be(&Switch::Attached(number));
        assert!(must.is_none_or(|must| must == attached), "{} attached?", subject.name);
    }
}

async fn look_at(client: &Client, subject: &Subject) -> OnThisNode {
    let is_at = async |path| match client.node_stats(&subject.id, path).await {
        Ok(stats) => {
            let condition = stats.volume_condition.unwrap();
            assert!(!condition.abnormal, "{}: {}", subject.name, condition.message);
            true
        }
        Err(status) => {
            assert_eq!(status.code(), Code::NotFound, "{status}");
            false
        }
    };
    OnThisNode {
        staged: is_at(&subject.staging).await,
        published: [is_at(&subject.targets[0]).await, is_at(&subject.targets[1]).await],
    }
}

/// Adds to `expected` what the kernel may hold for the volume, and checks that it does.
fn check_machine(
    pool: &TestPool,
    daemon: &Daemon,
    subject: &Subject,
    now: &OnThisNode,
    expected: &mut BTreeSet<String>,
) {
    let held = daemon.leaks();
    let is_block = subject.capability.is_block();
    let data = format!(" on {}", pool.volume_data(&subject.id).display());
    let devices: Vec<_> = held.iter().filter(|each| each.ends_with(&data)).collect();
    let published = now.published.contains(&true);
    let most = match (now.staged, is_block && published) {
        (false, _) => 0,
        (true, false) => 1,
        // A reader of a raw volume has a separate device.
        (true, true) => 2,
    };
    let least = usize::from(now.staged);
    assert!((least..=most).contains(&devices.len()), "{}: {devices:?}", subject.name);
    expected.extend(devices.into_iter().cloned());

    let mounts = [
        (&subject.staging, now.staged && !is_block),
        (&subject.targets[0], now.published[0]),
        (&subject.targets[1], now.published[1]),
    ];
    for (path, is) in mounts {
        let mount = format!("mount at {}", path.display());
        assert_eq!(held.contains(&mount), is, "{}: {mount}", subject.name);
        if is {
            expected.insert(mount);
        }
    }
    for (target, is) in subject.targets.iter().zip(now.published) {
        assert_eq!(target.exists(), is, "NN-03: {}", target.display());
    }
}

async fn check_node_records(pool: &TestPool, client: &Client, subjects: &Subjects) {
    let mut expected = Vec::new();
    for subject in &subjects.volumes {
        if look_at(client, subject).await.staged {
            expected.push(format!("{}.json", subject.id));
        }
    }
    expected.sort();
    assert_eq!(node_records(pool), expected);
}

fn node_records(pool: &TestPool) -> Vec<String> {
    let directory = pool.scratch().join("run/csi.orlop.io/volumes");
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(crate) async fn take_down(pool: &TestPool, daemon: &Daemon, subjects: &Subjects) {
    let client = daemon.client();
    for subject in &subjects.volumes {
        for target in &subject.targets {
            client.node_unpublish(&subject.id, target).await.unwrap();
        }
        client.node_unstage(&subject.id, &subject.staging).await.unwrap();
        client.controller_unpublish(&subject.id, "").await.unwrap();
        client.delete(&subject.id).await.unwrap();
    }
    for snapshot in &subjects.snapshots {
        client.delete_snapshot(&snapshot.id).await.unwrap();
    }
    for directory in ["volumes", "snapshots", "staging", "trash"] {
        assert_eq!(pool.entries(directory), [""; 0], "{directory}");
    }
    assert_eq!(node_records(pool), [""; 0]);
    assert_eq!(daemon.leaks(), [""; 0]);
}
