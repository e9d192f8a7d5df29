//! One disk: a busy time on it, copies of it from that time, and what each of them holds.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orlop_sys::file;
use orlop_tests::{Cgroup, Client, Daemon, GIB, Launch, PoolFs, Rng, TestPool};
use tokio::task::JoinHandle;

use crate::caller::{Caller, Step};
use crate::expected_state::ExpectedState;
use crate::history::{Clock, CutWindow};
use crate::verdict::{Depth, Verdict};

pub(crate) const NODE: &str = "test-node";
const CALLERS: u64 = 6;
/// Answers between two cuts, at most.
const PAUSE: u64 = 24;
/// One in so many copies is looked at as a whole, and emptied.
const WHOLE: usize = 12;

/// Where the pool lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolKind {
    Xfs,
    Btrfs,
    Ext4,
    /// In an XFS image, on ext4.
    Managed,
}

impl PoolKind {
    fn disk(self) -> PoolFs {
        match self {
            Self::Xfs => PoolFs::Xfs,
            Self::Btrfs => PoolFs::Btrfs,
            Self::Ext4 | Self::Managed => PoolFs::Directory,
        }
    }

    /// Where the volumes are.
    pub(crate) fn root(self, disk: &TestPool) -> PathBuf {
        match self {
            Self::Xfs | Self::Btrfs | Self::Ext4 => disk.path.clone(),
            Self::Managed => disk.path.join("mnt"),
        }
    }

    fn launch(self, disk: &TestPool) -> Launch {
        // Thin volumes may be promised more than the disk has.
        let launch = Launch::on(disk).env("ORLOP_POOL_OVERCOMMIT", "100");
        let launch = launch.env("ORLOP_NODE_ID", NODE).env("ORLOP_LOG", "info");
        match self {
            Self::Managed => launch.env("ORLOP_POOL_IMAGE_SIZE", "12GiB"),
            Self::Xfs | Self::Btrfs | Self::Ext4 => launch,
        }
    }
}

/// What the disk held at some moment.
pub(crate) struct Cut {
    pub(crate) disk: TestPool,
    pub(crate) window: CutWindow,
}

#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) at_random: u64,
    pub(crate) after_an_answer: u64,
    pub(crate) steps: BTreeMap<Step, u64>,
    /// Volumes and snapshots that were compared with what was answered.
    pub(crate) compared: u64,
    /// Of these, those that were staged, published and read.
    pub(crate) used: u64,
    pub(crate) emptied: u64,
}

impl Figures {
    pub(crate) fn cuts(&self) -> u64 {
        self.at_random + self.after_an_answer
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: u64 = self.steps.values().sum();
        write!(
            f,
            "{} at random moments and {} right after an answer, in {steps} steps; {} volumes and \
             snapshots compared, {} of them used, {} pools emptied",
            self.at_random, self.after_an_answer, self.compared, self.used, self.emptied,
        )
    }
}

/// A disk lives through some cuts at any time, and then some right after an answer.
pub(crate) async fn round(kind: PoolKind, cuts: u64, seed: u64, figures: &mut Figures) {
    let shelf = TestPool::new(PoolFs::Xfs, 128 * GIB);
    let disk = TestPool::within(&shelf, kind.disk(), 16 * GIB);
    let group = Cgroup::new();
    let launch = kind.launch(&disk).env("ORLOP_WORKLOAD_CGROUP", &group.name);
    let daemon = launch.start().await;
    let free_when_empty = file::space(&kind.root(&disk)).expect("statfs").free;
    let round_fixture =
        Round { kind, disk: &disk, client: daemon.client(), clock: Arc::default(), seed };
    let after_an_answer = cuts * 2 / 5;
    let (mut all, mut callers) = round_fixture.busy(cuts - after_an_answer).await;
    let (more, caller) = round_fixture.lone(after_an_answer).await;
    all.extend(more);
    callers.push(caller);
    figures.at_random += cuts - after_an_answer;
    figures.after_an_answer += after_an_answer;

    let mut expected = Vec::new();
    for mut caller in callers {
        caller.rest().await;
        for (step, count) in &caller.taken {
            *figures.steps.entry(*step).or_default() += count;
        }
        expected.push(caller.expected);
    }
    put_away(daemon, disk);
    let restored = PowerRestored { kind, expected: &expected, group: &group, free_when_empty };
    restored.check(all, figures).await;
}

/// Two disks with one identity are not mounted at the same time.
fn put_away(daemon: Daemon, disk: TestPool) {
    drop(daemon);
    drop(disk);
}

/// What there is to know when the power is back.
pub(crate) struct PowerRestored<'a> {
    pub(crate) kind: PoolKind,
    pub(crate) expected: &'a [ExpectedState],
    pub(crate) free_when_empty: u64,
    group: &'a Cgroup,
}

impl PowerRestored<'_> {
    async fn check(&self, cuts: Vec<Cut>, figures: &mut Figures) {
        for (number, cut) in cuts.into_iter().enumerate() {
            let depth = if number % WHOLE == 0 { Depth::Whole } else { Depth::Freshest };
            cut.disk.power_on();
            let launch = self.kind.launch(&cut.disk);
            // A cut that lost the pool must not be answered with a new one.
            let launch = launch.env("ORLOP_POOL_CREATE", "false");
            let launch = launch.env("ORLOP_WORKLOAD_CGROUP", &self.group.name);
            let daemon = launch.start().await;
            Verdict::new(&daemon, &cut, self, figures).check(depth).await;
        }
    }
}

struct Round<'a> {
    kind: PoolKind,
    disk: &'a TestPool,
    client: Client,
    clock: Arc<Clock>,
    seed: u64,
}

impl Round<'_> {
    fn caller(&self, number: u64) -> Caller {
        let clock = Arc::clone(&self.clock);
        let seed = self.seed.wrapping_mul(CALLERS + 2).wrapping_add(number);
        let mut caller = Caller::new(self.client.clone(), clock, number.to_string(), seed);
        caller.makes_thick = self.kind != PoolKind::Managed;
        caller
    }

    fn cut(&self) -> Cut {
        let begun = self.clock.now();
        let disk = tokio::task::block_in_place(|| self.disk.cut());
        Cut { disk, window: CutWindow { begun, ended: self.clock.now() } }
    }

    async fn busy(&self, wanted: u64) -> (Vec<Cut>, Vec<Caller>) {
        let over = Arc::new(AtomicBool::new(false));
        let at_work: Vec<_> = (0..CALLERS)
            .map(|number| tokio::spawn(work(self.caller(number), Arc::clone(&over))))
            .collect();
        let mut rng = Rng::with_seed(self.seed);
        let mut cuts = Vec::new();
        for _ in 0..wanted {
            self.some_answers(1 + rng.u64(..PAUSE), &at_work).await;
            // Anywhere in a call, not only where one ends.
            tokio::time::sleep(Duration::from_micros(rng.u64(..3000))).await;
            cuts.push(self.cut());
        }
        over.store(true, Ordering::Release);
        let mut callers = Vec::new();
        for caller in at_work {
            callers.push(caller.await.expect("a caller that got honest answers"));
        }
        (cuts, callers)
    }

    /// Or until a caller gave up, which is reported later.
    async fn some_answers(&self, count: u64, at_work: &[JoinHandle<Caller>]) {
        let wanted = self.clock.peek() + count;
        while self.clock.peek() < wanted && !at_work.iter().any(JoinHandle::is_finished) {
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
    }

    /// No other caller causes a flush, so what was answered without being durable is missed.
    async fn lone(&self, wanted: u64) -> (Vec<Cut>, Caller) {
        let mut caller = self.caller(CALLERS);
        let mut cuts = Vec::new();
        let mut steps = Step::ALL.iter().cycle();
        for _ in 0..wanted {
            while !caller.try_step(*steps.next().expect("an endless circle")).await {}
            cuts.push(self.cut());
        }
        (cuts, caller)
    }
}

async fn work(mut caller: Caller, over: Arc<AtomicBool>) -> Caller {
    while !over.load(Ordering::Acquire) {
        caller.take_any_step().await;
    }
    caller
}
