//! A daemon that can be told to end after a certain effect, and what has to survive it.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use orlop_tests::{
    Answer, Client, Code, Daemon, GIB, Launch, MIB, OnNode, Pattern, PoolFs, TestPool, Workload,
    block,
};

pub(crate) const NODE: &str = "test-node";
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) pool: TestPool,
    daemon: Daemon,
    client: Client,
    orders: PathBuf,
    bystander: Bystander,
}

/// A volume in use and a snapshot of another, which no crash may touch.
struct Bystander {
    node: OnNode,
    workload: Workload,
    snapshot: String,
    source: String,
}

const KEPT: Pattern = Pattern::new(77);

impl World {
    pub(crate) async fn new(fs: PoolFs) -> Self {
        let pool = TestPool::new(fs, 16 * GIB);
        let orders = pool.scratch().ensure_dir("crash");
        let launch = Launch::on(&pool).env("ORLOP_TEST_CRASH", &orders).env("ORLOP_LOG", "info");
        let daemon = launch.start().await;
        let client = daemon.client();
        let bystander = Bystander::new(&client).await;
        Self { pool, daemon, client, orders, bystander }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// So many effects still happen; after the next one the daemon ends.
    pub(crate) fn end_after(&self, effects: usize) {
        let order = self.orders.join("at");
        // In one step, so that it is never read half.
        fs::write(order.with_extension("new"), effects.to_string()).expect("write the order");
        fs::rename(order.with_extension("new"), order).expect("give the order");
    }

    /// After which effect the daemon ended; `None` if it lives.
    pub(crate) async fn ended_after(&mut self) -> Option<String> {
        if self.client.probe().await.is_ok() {
            return None;
        }
        self.daemon.wait_for_end();
        let place = fs::read_to_string(self.orders.join("crashed"));
        let place = place.unwrap_or_else(|_| panic!("it ended by itself:\n{}", self.daemon.log()));
        fs::remove_file(self.orders.join("crashed")).expect("take the note");
        Some(place.trim().to_owned())
    }

    pub(crate) async fn start_again(&mut self) {
        self.daemon.restart().await;
    }

    /// Forgets an order that was not carried out.
    pub(crate) async fn disarm(&mut self) {
        self.daemon.kill9();
        let _ = fs::remove_file(self.orders.join("at"));
        let _ = fs::remove_file(self.orders.join("crashed"));
        self.daemon.restart().await;
    }

    /// Only the bystander is there: in the pool, among devices and mounts, in the run directory.
    pub(crate) async fn assert_nothing_left(&self, told: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = self.left();
            if left.is_empty() {
                return;
            }
            // Space of what was deleted is freed in the background.
            assert!(
                Instant::now() < deadline,
                "{told}: left behind: {left:#?}\n{}",
                self.daemon.log()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for directory in ["volumes", "snapshots", "groups", "group-snapshots", "staging", "trash"] {
            let known = [&self.bystander.node.id, &self.bystander.source, &self.bystander.snapshot];
            let entries = self.pool.entries(directory).into_iter();
            let strange = entries.filter(|name| !known.contains(&name));
            left.extend(strange.map(|name| format!("{directory}/{name}")));
        }
        let of_bystander = format!("{}", self.bystander.node.id);
        let kernel = self.daemon.leaks().into_iter();
        left.extend(kernel.filter(|leak| !leak.contains(&of_bystander)));
        for directory in ["volumes", "frozen", "limited", "inline"] {
            left.extend(self.run_entries(directory).filter(|name| !name.contains(&of_bystander)));
        }
        left
    }

    fn run_entries(&self, directory: &str) -> impl Iterator<Item = String> {
        let path = self.pool.scratch().join("run/csi.orlop.io").join(directory);
        let entries = fs::read_dir(&path).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        // Half-written notes are used again.
        let names = names.filter(|name| !name.starts_with('.'));
        names.map(move |name| format!("{}/{name}", path.display())).collect::<Vec<_>>().into_iter()
    }

    pub(crate) async fn bystander_goes_on(&self) {
        self.bystander.workload.goes_on().await;
    }

    /// What was answered before all the crashes is still there, byte for byte.
    pub(crate) async fn finish(mut self) {
        let Bystander { node, workload, snapshot, source } = self.bystander;
        workload.finish();
        node.down().await;
        let copy = self.client.create("bystander-copy").size(64 * MIB).block();
        let copy = copy.from_snapshot(&snapshot).done().await;
        let on_node = self.client.on_node(&copy, block());
        on_node.up().await;
        KEPT.check(&on_node.target, 8 * MIB);
        on_node.down().await;
        for volume in [&copy.volume_id, &node.id, &source] {
            self.client.delete(volume).await.expect("delete a bystander");
        }
        self.client.delete_snapshot(&snapshot).await.expect("delete a bystander");
        self.daemon.terminate();
        assert_eq!(self.daemon.leaks(), Vec::<String>::new());
    }
}

impl Bystander {
    async fn new(client: &Client) -> Self {
        let source = client.create("bystander-source").size(64 * MIB).block().done().await;
        let on_node = client.on_node(&source, block());
        on_node.up().await;
        KEPT.write(&on_node.target, 8 * MIB);
        on_node.down().await;
        let snapshot = client.snapshot("bystander-snapshot", &source.volume_id).await;
        let volume = client.create("bystander").size(64 * MIB).block().done().await;
        let node = client.on_node(&volume, block());
        node.up().await;
        Workload::prepare(&node.target);
        let workload = Workload::writing(&node.target);
        let snapshot = snapshot.expect("a snapshot").snapshot_id;
        Self { node, workload, snapshot, source: source.volume_id }
    }
}

/// Asks again while something is still going on, as an orchestrator does.
pub(crate) async fn settled<T, F>(what: &str, mut call: impl FnMut() -> F) -> T
where
    F: Future<Output = Answer<T>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call().await {
            Ok(value) => return value,
            Err(status) if status.code() == Code::Aborted && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(status) => panic!("{what}: {status}"),
        }
    }
}
