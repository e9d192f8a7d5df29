//! Snapshots of several volumes at one instant. They are offered where librbd can restore them; where
//! it cannot, the tests see that they are refused, unless `ORLOP_TEST_RESTORES_GROUPS=1` says that
//! it can.

use std::time::{Duration, Instant};

use orlop_sys::ceph::can_clone_by_number;
use orlop_tests::*;

use crate::ceph::killing::answered;
use crate::ceph::{VOLUME, delete, down_from, persist, up_on};

const MEMBERS: usize = 3;
/// A writer waits until the cluster has noticed that a controller is dead, which may be a minute.
const TIMEOUT: Duration = Duration::from_secs(300);

fn restores_groups() -> bool {
    let can = can_clone_by_number().unwrap();
    let must = std::env::var_os("ORLOP_TEST_RESTORES_GROUPS").is_some_and(|value| value == "1");
    assert!(can || !must, "librbd has no rbd_clone4");
    can
}

async fn is_offered(client: &Client) -> bool {
    use v1::plugin_capability::{Service, Type, service};
    let groups = Type::Service(Service { r#type: service::Type::GroupControllerService.into() });
    let request = v1::GetPluginCapabilitiesRequest {};
    let said = client.identity().get_plugin_capabilities(request).await.unwrap().into_inner();
    said.capabilities.iter().any(|each| each.r#type.as_ref() == Some(&groups))
}

#[tokio::test(flavor = "multi_thread")]
async fn group_snapshots_are_offered_iff_restorable() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("offering").await;
    let client = controller.client();
    assert_eq!(is_offered(&client).await, restores_groups());
    let volume = client.create("offered").size(VOLUME).block().done().await.volume_id;
    let alone = client.group_snapshot("offered", std::slice::from_ref(&volume)).await;
    match restores_groups() {
        true => {
            let group = alone.unwrap();
            let (id, members) = (&group.group_snapshot_id, group.member_ids());
            client.delete_group_snapshot(id, &members).await.unwrap();
        }
        false => drop(expect_code(alone, Code::Unimplemented)),
    }
    delete(&client, &volume).await;
}

/// Another pool of the same daemon has them in any case.
#[tokio::test(flavor = "multi_thread")]
async fn missing_group_support_is_reported_beside_another_pool() {
    needs_root!();
    let ceph = TestCeph::shared();
    let daemon = ceph.launch_beside_a_directory("beside", 60).start().await;
    let client = daemon.client();
    assert!(is_offered(&client).await);
    for pool in ["local", "ceph"] {
        let create = client.create(&format!("beside {pool}")).size(VOLUME).block();
        let volume = create.parameter("pool", pool).done().await.volume_id;
        let name = format!("group on {pool}");
        let made = client.group_snapshot(&name, std::slice::from_ref(&volume)).await;
        if pool == "local" || restores_groups() {
            let group = made.unwrap();
            let (id, members) = (&group.group_snapshot_id, group.member_ids());
            client.delete_group_snapshot(id, &members).await.unwrap();
        } else {
            let refused = expect_code(made, Code::FailedPrecondition);
            assert!(refused.message().contains("rbd_clone4"), "{refused}");
        }
        delete(&client, &volume).await;
    }
}

/// Volumes in use on a node, with a writer that writes to all of them in turn.
struct Written {
    controller: Daemon,
    node: Daemon,
    home: String,
    capability: v1::VolumeCapability,
    volumes: Vec<OnNode>,
    writer: SequenceWriter,
}

impl Written {
    /// `None` where they are not offered.
    async fn start(name: &str, capability: v1::VolumeCapability) -> Option<Self> {
        let ceph = TestCeph::shared();
        // Where no other test has snapshots.
        ceph.rbd(&["namespace", "create", &format!("rbd/{name}")]);
        let launch =
            |id: &str, mode| ceph.launch(id, mode).env("ORLOP_RBD_NAMESPACE", name).start();
        let controller = launch(&format!("{name}-c"), "controller").await;
        let client = controller.client();
        if !restores_groups() {
            assert!(!is_offered(&client).await);
            return None;
        }
        let home = format!("{name}-n");
        let node = launch(&home, "node").await;
        let mut volumes = Vec::new();
        for number in 0..MEMBERS {
            let create = client.create(&format!("{name} {number}")).size(VOLUME);
            let volume = create.capability(capability.clone()).done().await;
            volumes.push(up_on(&client, &node, &home, &volume, capability.clone()).await);
        }
        let writer = SequenceWriter::start(volumes.iter().map(OnNode::data_path).collect());
        Some(Self { controller, node, home, capability, volumes, writer })
    }

    fn ids(&self) -> Vec<String> {
        self.volumes.iter().map(|volume| volume.id.clone()).collect()
    }

    async fn goes_on(&self, when: &str) {
        let waited = tokio::time::timeout(TIMEOUT, self.writer.goes_on()).await;
        assert!(waited.is_ok(), "writers still wait {when}");
    }

    /// Was the call answered before the controller was killed in it?
    async fn killed<T: Send + 'static>(
        &mut self,
        call: impl Future<Output = Answer<T>> + Send + 'static,
        milliseconds: u64,
    ) -> bool {
        let begun = tokio::spawn(call);
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        self.controller.kill9();
        let killed = Instant::now();
        let acknowledged = begun.await.unwrap().is_ok();
        self.goes_on("after the controller was killed").await;
        report(&format!("ceph: three rounds of writing took {:?} after a kill", killed.elapsed()));
        self.controller.restart().await;
        acknowledged
    }

    async fn restored_stamps(&self, group: &v1::VolumeGroupSnapshot) -> Vec<u64> {
        let client = self.controller.client();
        let mut stamps = Vec::new();
        for volume in &self.volumes {
            let snapshot = &group.member_of(&volume.id).snapshot_id;
            let create = client.create(&format!("restored of {snapshot}"));
            let create = create.capability(self.capability.clone()).from_snapshot(snapshot);
            let restored = create.done().await;
            let capability = self.capability.clone();
            let used = up_on(&client, &self.node, &self.home, &restored, capability).await;
            stamps.push(read_sequence(&used.data_path()));
            down_from(&client, &self.home, &used).await;
            answered(|| client.delete(&used.id)).await;
        }
        stamps
    }

    async fn end(self) {
        self.writer.finish();
        let client = self.controller.client();
        for volume in &self.volumes {
            down_from(&client, &self.home, volume).await;
            answered(|| client.delete(&volume.id)).await;
        }
        assert_eq!(client.list_snapshots().await.unwrap(), []);
    }
}

async fn are_of_one_instant(name: &str, capability: v1::VolumeCapability) {
    let Some(written) = Written::start(name, capability).await else { return };
    let client = written.controller.client();
    let mut taken = Vec::new();
    for number in 0..3 {
        written.goes_on("between two cuts").await;
        let finished = written.writer.finished();
        let group = client.group_snapshot(&format!("{name} {number}"), &written.ids()).await;
        // The round that is being written has a number, but is not finished.
        taken.push((group.unwrap(), finished, written.writer.finished() + 1));
    }
    written.goes_on("after the last cut").await;
    for (group, finished, begun) in taken {
        let stamps = written.restored_stamps(&group).await;
        report(&format!("ceph, {name}: rounds {finished} to {begun}, stamps {stamps:?}"));
        assert_one_instant(&stamps, finished, begun);
        let (id, members) = (&group.group_snapshot_id, group.member_ids());
        persist(|| client.delete_group_snapshot(id, &members)).await;
    }
    written.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_members_in_use_are_of_one_instant() {
    needs_root!();
    are_of_one_instant("raw-group", block()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mounted_members_in_use_are_of_one_instant() {
    needs_root!();
    are_of_one_instant("mounted-group", mount("xfs")).await;
}

/// Writers wait for a while and meet no error, and each call can be repeated.
#[tokio::test(flavor = "multi_thread")]
async fn controller_killed_in_group_snapshot_or_delete_recovers() {
    needs_root!();
    let Some(mut written) = Written::start("killed-group", block()).await else { return };
    let mut rng = Rng::with_seed(3);
    for number in 0..4 {
        written.goes_on("before the controller is killed").await;
        let (client, ids) = (written.controller.client(), written.ids());
        let name = format!("group {number}");
        let making = {
            let (client, ids, name) = (client.clone(), ids.clone(), name.clone());
            async move { client.group_snapshot(&name, &ids).await }
        };
        let acknowledged = written.killed(making, rng.u64(..400)).await;
        let found = client.list_snapshots().await.unwrap().len();
        assert!(found == 0 || found == MEMBERS, "{found} of a group");
        assert!(!acknowledged || found > 0, "what was acknowledged is gone");

        let finished = if found > 0 { 0 } else { written.writer.finished() };
        let group = persist(|| client.group_snapshot(&name, &ids)).await;
        let begun = written.writer.finished() + 1;
        let stamps = written.restored_stamps(&group).await;
        assert_one_instant(&stamps, finished, begun);

        let (id, members) = (group.group_snapshot_id.clone(), group.member_ids());
        let deleting = {
            let (client, id, members) = (client.clone(), id.clone(), members.clone());
            async move { client.delete_group_snapshot(&id, &members).await }
        };
        written.killed(deleting, rng.u64(..100)).await;
        persist(|| client.delete_group_snapshot(&id, &members)).await;
        assert_eq!(client.list_snapshots().await.unwrap(), []);
    }
    until_no_group("rbd/killed-group").await;
    written.end().await;
}

async fn until_no_group(place: &str) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let left = TestCeph::shared().rbd(&["group", "ls", place]);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{left}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
