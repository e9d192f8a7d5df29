//! Calls that keep a place of one pool, or of none, and work on another one as its guests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use orlop_tests::*;
use rustix::process::Signal;
use tokio::task::JoinHandle;

use crate::daemon::hung::{Frozen, until};

/// Longer than any file of an ext4.
const HUGE: u64 = 17 << 40;
const GIVEN_UP: &str = "stopping without waiting for calls that are blocked in the kernel";

/// Two pools that have promised so much that a volume may be huge. The one with the most room is asked
/// first, cannot hold so long a file, and passes the volume on to the other one.
struct Pools {
    host: TestPool,
    daemon: Daemon,
}

impl Pools {
    async fn start() -> Self {
        let host = TestPool::new(PoolFs::Xfs, 24 * GIB);
        let home = host.beside("home", PoolFs::Directory, 48 * GIB);
        let pools =
            [("host", &host, "overcommit = 1000.0"), ("home", &home, "overcommit = 1000.0")];
        let daemon = Launch::on_several(&pools).start().await;
        Self { host, daemon }
    }

    fn create(&self) -> Create {
        self.daemon.client().create("guest").size(HUGE).block()
    }
}

async fn until_it_waits<T>(daemon: &Daemon, call: &JoinHandle<T>) {
    until("a thread waits for the frozen pool", || async {
        assert!(!call.is_finished(), "the call did not wait");
        waits_in_the_kernel(daemon.pid()).await
    })
    .await;
}

/// Does a thread of the process wait uninterruptibly, and for longer than for a disk?
async fn waits_in_the_kernel(process: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    for task in tasks {
        let Some(pauses) = pauses_if_uninterruptible(&task.path()) else { continue };
        let mut looks = 0;
        while looks < 20 && pauses_if_uninterruptible(&task.path()).as_ref() == Some(&pauses) {
            looks += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if looks == 20 {
            return true;
        }
    }
    false
}

/// How often it has paused before: as long as that stays the same, it waits for the same.
fn pauses_if_uninterruptible(task: &Path) -> Option<String> {
    let status = fs::read_to_string(task.join("status")).ok()?;
    status.lines().find(|line| line.starts_with("State:\tD"))?;
    let pauses = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    Some(pauses.to_owned())
}

async fn until_logged(daemon: &Daemon, what: &str) {
    until(what, || async { daemon.log().contains(what) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_waits_for_a_cross_pool_call_on_a_slow_pool() {
    needs_root!();
    let Pools { host, mut daemon } = Pools::start().await;
    let frozen = Frozen::new(&host);
    let call = daemon.client().create("guest").size(HUGE).block();
    let call = tokio::spawn(async move { call.send().await });
    until_it_waits(&daemon, &call).await;
    daemon.signal(Signal::TERM);
    until_logged(&daemon, "stopping: waiting for running calls to end").await;
    drop(frozen);
    let volume = call.await.unwrap().expect("the call that was running is answered");
    assert!(daemon.wait_for_end().success());
    assert!(!daemon.log().contains(GIVEN_UP), "a call was given up");
    assert_eq!(host.entries("volumes"), [volume.volume_id.as_str()], "it is no guest's");
    daemon.restart().await;
    daemon.client().delete(&volume.volume_id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_does_not_wait_for_a_cross_pool_call_on_a_hung_pool() {
    needs_root!();
    let mut pools = Pools::start().await;
    let frozen = Frozen::new(&pools.host);
    let call = pools.create();
    let call = tokio::spawn(async move { call.send().await });
    until_it_waits(&pools.daemon, &call).await;
    pools.daemon.signal(Signal::TERM);
    until_logged(&pools.daemon, "stopped").await;
    assert!(pools.daemon.has_logged(GIVEN_UP));
    drop(frozen);
    assert_eq!(pools.daemon.wait_for_end().code(), Some(0));
    call.await.unwrap().unwrap_err();
    // It may take up what was begun, or have swept it.
    pools.daemon.restart().await;
    let volume = pools.create().done().await;
    pools.daemon.client().delete(&volume.volume_id).await.unwrap();
}

/// The id of an inline volume names no pool.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_an_inline_volume_of_a_slow_pool() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let (id, target) = (format!("csi-{:064x}", 1), client.new_target("inline"));
    let context = [("csi.storage.k8s.io/ephemeral", "true"), ("size", "400Mi")];
    let request = v1::NodePublishVolumeRequest {
        volume_id: id.clone(),
        target_path: target.to_str().unwrap().to_owned(),
        volume_capability: Some(mount("ext4")),
        volume_context: BTreeMap::from(context.map(|(key, value)| (key.into(), value.into()))),
        ..v1::NodePublishVolumeRequest::default()
    };
    let frozen = Frozen::new(&pool);
    let publish = client.clone();
    let call = tokio::spawn(async move { publish.node_publish(request).await });
    until_it_waits(&daemon, &call).await;
    daemon.signal(Signal::TERM);
    until_logged(&daemon, "stopping: waiting for running calls to end").await;
    drop(frozen);
    call.await.unwrap().expect("the call that was running is answered");
    assert!(daemon.wait_for_end().success());
    assert!(!daemon.log().contains(GIVEN_UP), "a call was given up");
    Pattern::new(1).write(&target.join("file"), MIB);
    daemon.restart().await;
    Pattern::new(1).check(&target.join("file"), MIB);
    client.node_unpublish(&id, &target).await.unwrap();
    assert_eq!(pool.entries("volumes"), [""; 0]);
}
