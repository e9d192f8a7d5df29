//! Target paths lie on a filesystem that hangs, while the pool answers: calls of the node wait there
//! in the kernel.

use std::time::Duration;

use orlop_tests::*;
use rustix::process::Signal;
use tokio::task::JoinHandle;

use super::hung::{Frozen, answered, until};
use super::hung_threads::until_served;

const VOLUME: u64 = 64 * MIB;
const DATA: u64 = 4 * MIB;

/// Volumes with data, all staged. The first is published, the others are not.
struct Volumes {
    published: OnNode,
    mounted: OnNode,
    raw: OnNode,
}

impl Volumes {
    async fn make(client: &Client) -> Self {
        let create = |name| client.create(name).size(VOLUME);
        let published = create("published").fs("ext4").done().await;
        let mounted = create("mounted").fs("ext4").done().await;
        let raw = create("raw").block().done().await;
        let volumes = Self {
            published: client.on_node(&published, mount("ext4")),
            mounted: client.on_node(&mounted, mount("ext4")),
            raw: client.on_node(&raw, block()),
        };
        for (seed, node) in (1..).zip(volumes.all()) {
            node.up().await;
            Pattern::new(seed).write(&node.data_path(), DATA);
        }
        volumes.mounted.unpublish().await.unwrap();
        volumes.raw.unpublish().await.unwrap();
        volumes
    }

    fn all(&self) -> [&OnNode; 3] {
        [&self.published, &self.mounted, &self.raw]
    }

    /// One call for each.
    fn call(&self) -> [JoinHandle<Answer<()>>; 3] {
        self.all().map(|node| tokio::spawn(self.turn(node)))
    }

    /// A call that has to make the target, or to remove it.
    fn turn(&self, node: &OnNode) -> impl Future<Output = Answer<()>> + use<> {
        let (node, unpublishes) = (node.clone(), node.id == self.published.id);
        async move { if unpublishes { node.unpublish().await } else { node.publish().await } }
    }

    /// Known to have begun once the same call waits for the volume's lock in vain.
    async fn until_called(&self, daemon: &Daemon) {
        until("all wait", || async { threads_in_the_kernel(daemon) >= 3 }).await;
        let called = async |node: &OnNode| {
            until("begun", || async {
                let again = tokio::time::timeout(Duration::from_secs(15), self.turn(node)).await;
                again.is_ok_and(|answer| answer.is_err_and(|status| status.code() == Code::Aborted))
            })
            .await;
        };
        tokio::join!(called(&self.published), called(&self.mounted), called(&self.raw));
    }

    async fn check_and_delete(&self, client: &Client) {
        for (seed, node) in (1..).zip(self.all()) {
            node.up().await;
            Pattern::new(seed).check(&node.data_path(), DATA);
            node.down().await;
            client.delete(&node.id).await.unwrap();
        }
    }
}

/// That no signal reaches.
fn threads_in_the_kernel(daemon: &Daemon) -> usize {
    let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let statuses = threads.filter_map(|thread| {
        let status = thread.unwrap().path().join("status");
        std::fs::read_to_string(status).ok()
    });
    statuses.filter(|status| status.contains("State:\tD")).count()
}

/// With paths on a filesystem that answers.
async fn assert_served_elsewhere(client: &Client) {
    let volume = answered(client.create("elsewhere").size(VOLUME).fs("ext4").send()).await.unwrap();
    let mut node = client.on_node(&volume, mount("ext4"));
    node.target = client.scratch().join("elsewhere");
    answered(node.up()).await;
    answered(node.stats()).await.unwrap();
    answered(node.down()).await;
    answered(client.delete(&volume.volume_id)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_a_hung_target_path() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let targets = pool.beside("targets", PoolFs::Directory, 64 * MIB);
    let mut daemon = Launch::on(&pool).with_fixtures(targets.fixtures()).start().await;
    let client = daemon.client();
    let volumes = Volumes::make(&client).await;

    let frozen = Frozen::new(&targets);
    let calls = volumes.call();
    volumes.until_called(&daemon).await;
    assert_served_elsewhere(&client).await;
    daemon.signal(Signal::TERM);
    until("stopped", || async { daemon.log().contains("stopped") }).await;
    assert!(
        daemon.log().contains("stopping without waiting for calls that are blocked in the kernel")
    );
    for call in calls {
        answered(call).await.unwrap().unwrap_err();
    }
    let mut former = daemon.start_beside();
    let client = until_served(&daemon).await;
    assert_served_elsewhere(&client).await;
    assert!(!former.has_ended(), "nothing of the former daemon was left, which proves nothing");

    drop(frozen);
    assert_eq!(former.wait_for_end().code(), Some(0));
    volumes.check_and_delete(&client).await;
    assert_eq!(pool.entries("volumes"), [""; 0]);
    let left = std::fs::read_dir(&targets.path).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["lost+found"]);
}
