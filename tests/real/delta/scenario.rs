//! The life of one volume, with a snapshot at each step.

use std::ops::Range;
use std::path::PathBuf;

use orlop_tests::*;

use crate::delta::figures::Figures;
use crate::delta::operations::Device;
use crate::delta::rebuild::{check_allocated, check_delta};
use crate::delta::reported_blocks::{ReportedBlocks, open_allocated, open_delta};

/// Seeds in a chapter.
pub(crate) const STEPS: u64 = 20;
const MAX_LIVE: usize = 3;
const LARGEST: u64 = 10 * MIB;

/// A snapshot, and all that its image holds.
struct Taken {
    id: String,
    image: Vec<u8>,
}

pub(crate) struct Scenario<'a> {
    pool: &'a TestPool,
    client: Client,
    node: OnNode,
    size: u64,
    rng: Rng,
    /// The latest is the last.
    taken: Vec<Taken>,
    log: OperationLog,
}

/// Printed when a check fails.
struct OperationLog(Vec<String>);

impl Drop for OperationLog {
    fn drop(&mut self) {
        if std::thread::panicking() {
            report(&format!("what was done:\n{}", self.0.join("\n")));
        }
    }
}

impl<'a> Scenario<'a> {
    pub(crate) async fn run(
        pool: &'a TestPool,
        client: &Client,
        seeds: Range<u64>,
        figures: &mut Figures,
    ) {
        let mut scenario = Self::begin(pool, client, seeds.start).await;
        for seed in seeds {
            scenario.step(seed, figures).await;
        }
        scenario.end(figures).await;
    }

    async fn begin(pool: &'a TestPool, client: &Client, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let size = (2 + rng.u64(..5)) * MIB;
        let create = client.create(&format!("from {seed}")).size(size).block();
        let is_thick = rng.u64(..4) == 0;
        let volume = if is_thick { create.thick() } else { create }.done().await;
        let node = client.on_node(&volume, block());
        node.up().await;
        let log = OperationLog(vec![format!("{:?}, {size} bytes, thick: {is_thick}", pool.fs)]);
        let mut scenario =
            Self { pool, client: client.clone(), node, size, rng, taken: Vec::new(), log };
        scenario.change();
        scenario.snapshot(&format!("before {seed}")).await;
        scenario
    }

    async fn step(&mut self, seed: u64, figures: &mut Figures) {
        self.log.0.push(format!("seed {seed}"));
        self.rng = Rng::with_seed(seed);
        if self.rng.u64(..10) != 0 {
            self.change();
        }
        if self.size < LARGEST && self.rng.u64(..6) == 0 {
            self.grow().await;
        }
        self.snapshot(&format!("after {seed}")).await;
        let newest = self.taken.len() - 1;
        let base = self.rng.usize(..newest);
        self.compare(base, newest, figures).await;
        self.look(newest).await;
        if self.taken.len() > MAX_LIVE {
            let oldest = self.taken.remove(0);
            self.client.delete_snapshot(&oldest.id).await.unwrap();
        }
    }

    /// What snapshots hold does not depend on the volume they were taken of.
    async fn end(mut self, figures: &mut Figures) {
        self.node.down().await;
        self.client.delete(&self.node.id).await.unwrap();
        let newest = self.taken.len() - 1;
        self.compare(0, newest, figures).await;
        self.look(self.taken.len() - 1).await;
        figures.source_deleted += 1;
        for snapshot in self.taken.drain(..) {
            self.client.delete_snapshot(&snapshot.id).await.unwrap();
        }
    }

    fn change(&mut self) {
        let device = Device::open(&self.node.target);
        for _ in 0..=self.rng.u64(..10) {
            self.log.0.push(device.perform(&mut self.rng));
        }
    }

    async fn grow(&mut self) {
        self.size += (1 + self.rng.u64(..2)) * MIB;
        self.log.0.push(format!("grown to {}", self.size));
        self.client.expand(&self.node.id, self.size).await.unwrap();
        self.node.expand(self.size).await.unwrap();
        if self.rng.u64(..2) == 0 {
            self.change();
        }
    }

    async fn snapshot(&mut self, name: &str) {
        // Without shared extents a device must not be in use while it is copied.
        let in_use = self.pool.fs.shares_extents();
        if !in_use {
            self.node.unpublish().await.unwrap();
        }
        let id = self.client.snapshot(name, &self.node.id).await.unwrap().snapshot_id;
        if !in_use {
            self.node.publish().await.unwrap();
        }
        let image = std::fs::read(self.data_of(&id)).unwrap();
        assert_eq!(u64::try_from(image.len()).unwrap(), self.size);
        self.taken.push(Taken { id, image });
    }

    fn data_of(&self, id: &str) -> PathBuf {
        self.pool.snapshot_data(id)
    }

    /// Of any size, so that streams are of one message and of many.
    fn pick_max_results(&mut self) -> i32 {
        *self.rng.choice(&[0, 1, 1, 2, 3, 100]).expect("a non-empty list")
    }

    fn pick_start(&mut self, capacity: usize) -> usize {
        if self.rng.u64(..3) != 0 {
            return 0;
        }
        let start = self.rng.u64(..u64::try_from(capacity).unwrap() + 1);
        usize::try_from(start).unwrap()
    }

    async fn compare(&mut self, base: usize, target: usize, figures: &mut Figures) {
        let capacity = self.taken[target].image.len();
        let (start, most) = (self.pick_start(capacity), self.pick_max_results());
        let mut reported = ReportedBlocks::new(start, most, capacity);
        let ids = [base, target].map(|index| self.taken[index].id.clone());
        let mut stream = open_delta(&self.client, &ids[0], &ids[1], &reported).await;
        let mut ended = !reported.take(&mut stream).await;
        assert!(!ended, "type and capacity are sent even if nothing has changed");
        match self.rng.u64(..6) {
            0 => {
                ended = !reported.take(&mut stream).await;
                drop(stream);
                stream = open_delta(&self.client, &ids[0], &ids[1], &reported).await;
                figures.resumed += u64::from(!ended);
            }
            1 if base != target => {
                self.client.delete_snapshot(&ids[0]).await.unwrap();
                figures.base_deleted += 1;
            }
            _ => {}
        }
        reported.take_all(&mut stream).await;
        let (before, after) = (&self.taken[base].image, &self.taken[target].image);
        check_delta(before, after, &reported, figures);
        self.forget_deleted();
    }

    fn forget_deleted(&mut self) {
        let pool = self.pool;
        self.taken.retain(|taken| pool.snapshot_data(&taken.id).exists());
    }

    async fn look(&mut self, at: usize) {
        // One before it may be gone by now.
        let at = at.min(self.taken.len() - 1);
        let capacity = self.taken[at].image.len();
        let (start, most) = (self.pick_start(capacity), self.pick_max_results());
        let mut reported = ReportedBlocks::new(start, most, capacity);
        let mut stream = open_allocated(&self.client, &self.taken[at].id, &reported).await;
        reported.take_all(&mut stream).await;
        check_allocated(&self.taken[at].image, &reported);
    }
}
