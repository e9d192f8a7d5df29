//! The life of one volume, with a snapshot at each step.

use std::ops::Range;
use std::path::PathBuf;

use orlop_tests::*;

use crate::figures::Figures;
use crate::operations::Device;
use crate::rebuild::{check_allocated, check_delta};
use crate::told::{Told, open_allocated, open_delta};

/// Seeds in a chapter.
pub(crate) const STEPS: u64 = 20;
const MOST_LIVE: usize = 3;
const LARGEST: u64 = 10 * MIB;

/// A snapshot, and all that its image holds.
struct Taken {
    id: String,
    image: Vec<u8>,
}

pub(crate) struct Chapter<'a> {
    pool: &'a TestPool,
    client: Client,
    node: OnNode,
    size: u64,
    dice: Dice,
    /// The latest is the last.
    taken: Vec<Taken>,
    story: Story,
}

/// Printed when a check fails.
struct Story(Vec<String>);

impl Drop for Story {
    fn drop(&mut self) {
        if std::thread::panicking() {
            report(&format!("what was done:\n{}", self.0.join("\n")));
        }
    }
}

impl<'a> Chapter<'a> {
    pub(crate) async fn tell(
        pool: &'a TestPool,
        client: &Client,
        seeds: Range<u64>,
        figures: &mut Figures,
    ) {
        let mut chapter = Self::begin(pool, client, seeds.start).await;
        for seed in seeds {
            chapter.step(seed, figures).await;
        }
        chapter.end(figures).await;
    }

    async fn begin(pool: &'a TestPool, client: &Client, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let size = (2 + dice.roll(5)) * MIB;
        let create = client.create(&format!("from {seed}")).size(size).block();
        let is_thick = dice.once_in(4);
        let volume = if is_thick { create.thick() } else { create }.done().await;
        let node = client.on_node(&volume, block());
        node.up().await;
        let story = Story(vec![format!("{:?}, {size} bytes, thick: {is_thick}", pool.fs)]);
        let mut chapter =
            Self { pool, client: client.clone(), node, size, dice, taken: Vec::new(), story };
        chapter.change();
        chapter.snapshot(&format!("before {seed}")).await;
        chapter
    }

    async fn step(&mut self, seed: u64, figures: &mut Figures) {
        self.story.0.push(format!("seed {seed}"));
        self.dice = Dice::new(seed);
        if !self.dice.once_in(10) {
            self.change();
        }
        if self.size < LARGEST && self.dice.once_in(6) {
            self.grow().await;
        }
        self.snapshot(&format!("after {seed}")).await;
        let newest = self.taken.len() - 1;
        let base = usize::try_from(self.dice.roll(u64::try_from(newest).unwrap())).unwrap();
        self.compare(base, newest, figures).await;
        self.look(newest).await;
        if self.taken.len() > MOST_LIVE {
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
        for _ in 0..=self.dice.roll(10) {
            self.story.0.push(device.perform(&mut self.dice));
        }
    }

    async fn grow(&mut self) {
        self.size += (1 + self.dice.roll(2)) * MIB;
        self.story.0.push(format!("grown to {}", self.size));
        self.client.expand(&self.node.id, self.size).await.unwrap();
        self.node.expand(self.size).await.unwrap();
        if self.dice.once_in(2) {
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
        *self.dice.pick(&[0, 1, 1, 2, 3, 100])
    }

    fn pick_start(&mut self, capacity: usize) -> usize {
        if !self.dice.once_in(3) {
            return 0;
        }
        let start = self.dice.roll(u64::try_from(capacity).unwrap() + 1);
        usize::try_from(start).unwrap()
    }

    async fn compare(&mut self, base: usize, target: usize, figures: &mut Figures) {
        let capacity = self.taken[target].image.len();
        let (start, most) = (self.pick_start(capacity), self.pick_max_results());
        let mut told = Told::new(start, most, capacity);
        let ids = [base, target].map(|index| self.taken[index].id.clone());
        let mut stream = open_delta(&self.client, &ids[0], &ids[1], &told).await;
        let mut ended = !told.take(&mut stream).await;
        assert!(!ended, "type and capacity are told even if nothing has changed");
        match self.dice.roll(6) {
            0 => {
                ended = !told.take(&mut stream).await;
                drop(stream);
                stream = open_delta(&self.client, &ids[0], &ids[1], &told).await;
                figures.resumed += u64::from(!ended);
            }
            1 if base != target => {
                self.client.delete_snapshot(&ids[0]).await.unwrap();
                figures.base_deleted += 1;
            }
            _ => {}
        }
        told.take_all(&mut stream).await;
        let (before, after) = (&self.taken[base].image, &self.taken[target].image);
        check_delta(before, after, &told, figures);
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
        let mut told = Told::new(start, most, capacity);
        let mut stream = open_allocated(&self.client, &self.taken[at].id, &told).await;
        told.take_all(&mut stream).await;
        check_allocated(&self.taken[at].image, &told);
    }
}
