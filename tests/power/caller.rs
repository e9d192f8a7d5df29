//! A client that creates, uses, changes and deletes volumes, and records each answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use orlop_tests::{Answer, Client, Code, Rng, VolumeGroups};

use crate::expected_state::{ExpectedState, Snapshot, Volume};
use crate::history::Clock;

/// Few enough that every step is possible again soon.
const MAX_VOLUMES: usize = 3;
const MAX_SNAPSHOTS: usize = 2;

/// In an order in which all are possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Create,
    Up,
    Write,
    Snapshot,
    Restore,
    Expand,
    GroupSnapshot,
    Down,
    Clone,
    Attach,
    Modify,
    DeleteSnapshot,
    MakeGroup,
    ChangeGroup,
    EmptyGroup,
    DeleteGroup,
    Detach,
    DeleteGroupSnapshot,
    Delete,
}

impl Step {
    pub(crate) const ALL: [Self; 19] = [
        Self::Create,
        Self::Up,
        Self::Write,
        Self::Snapshot,
        Self::Restore,
        Self::Expand,
        Self::GroupSnapshot,
        Self::Down,
        Self::Clone,
        Self::Attach,
        Self::Modify,
        Self::DeleteSnapshot,
        Self::MakeGroup,
        Self::ChangeGroup,
        Self::EmptyGroup,
        Self::DeleteGroup,
        Self::Detach,
        Self::DeleteGroupSnapshot,
        Self::Delete,
    ];
}

pub(crate) struct Caller {
    pub(crate) client: Client,
    pub(crate) groups: VolumeGroups,
    pub(crate) clock: Arc<Clock>,
    pub(crate) rng: Rng,
    pub(crate) expected: ExpectedState,
    pub(crate) taken: BTreeMap<Step, u64>,
    /// Not in a sparse image.
    pub(crate) makes_thick: bool,
    name: String,
    names: u64,
}

impl Caller {
    pub(crate) fn new(client: Client, clock: Arc<Clock>, name: String, seed: u64) -> Self {
        let groups = VolumeGroups::of(&client);
        let (expected, taken) = Default::default();
        let rng = Rng::with_seed(seed);
        Self { client, groups, clock, rng, expected, taken, makes_thick: true, name, names: 0 }
    }

    pub(crate) fn new_name(&mut self, what: &str) -> String {
        self.names += 1;
        format!("{what} {} of caller {}", self.names, self.name)
    }

    pub(crate) async fn take_any_step(&mut self) {
        loop {
            let step = *self.rng.choice(&Step::ALL).expect("a non-empty list");
            if self.try_step(step).await {
                return;
            }
        }
    }

    /// False if nothing is there to do it with.
    pub(crate) async fn try_step(&mut self, step: Step) -> bool {
        let may_make = self.volumes_there() < MAX_VOLUMES;
        let may_cut = self.snapshots_there() < MAX_SNAPSHOTS;
        let done = match step {
            Step::Create => may_make && self.create().await,
            Step::Restore => may_make && self.restore().await,
            Step::Clone => may_make && self.copy().await,
            Step::Up => self.up().await,
            Step::Write => self.write().await,
            Step::Down => self.down().await,
            Step::Expand => self.expand().await,
            Step::Modify => self.modify().await,
            Step::Attach => self.attach().await,
            Step::Detach => self.detach().await,
            Step::Delete => self.delete().await,
            Step::Snapshot => may_cut && self.snapshot().await,
            Step::DeleteSnapshot => self.delete_snapshot().await,
            Step::GroupSnapshot => may_cut && self.group_snapshot().await,
            Step::DeleteGroupSnapshot => self.delete_group_snapshot().await,
            Step::MakeGroup => self.make_group().await,
            Step::ChangeGroup => self.change_group().await,
            Step::EmptyGroup => self.empty_group().await,
            Step::DeleteGroup => self.delete_group().await,
        };
        if done {
            *self.taken.entry(step).or_default() += 1;
        }
        done
    }

    /// Lets go of everything on the node.
    pub(crate) async fn rest(&mut self) {
        while self.down().await {}
    }

    pub(crate) fn any_volume(&mut self, fits: impl Fn(&Volume) -> bool) -> Option<usize> {
        let there = |volume: &Volume| volume.history.is_there() && fits(volume);
        let all = self.expected.volumes.iter().enumerate();
        let fitting: Vec<_> = all.filter(|(_, each)| there(each)).map(|(at, _)| at).collect();
        self.any(&fitting)
    }

    pub(crate) fn any_snapshot(&mut self, fits: impl Fn(&Snapshot) -> bool) -> Option<usize> {
        let there = |snapshot: &Snapshot| snapshot.history.is_there() && fits(snapshot);
        let all = self.expected.snapshots.iter().enumerate();
        let fitting: Vec<_> = all.filter(|(_, each)| there(each)).map(|(at, _)| at).collect();
        self.any(&fitting)
    }

    fn any(&mut self, fitting: &[usize]) -> Option<usize> {
        (!fitting.is_empty()).then(|| *self.rng.choice(fitting).expect("a non-empty list"))
    }

    fn volumes_there(&self) -> usize {
        self.expected.volumes.iter().filter(|volume| volume.history.is_there()).count()
    }

    fn snapshots_there(&self) -> usize {
        self.expected.snapshots.iter().filter(|snapshot| snapshot.history.is_there()).count()
    }
}

/// Asks again while another call is under way, as an orchestrator does. Nothing else may go wrong.
pub(crate) async fn answered<T, F>(what: &str, mut call: impl FnMut() -> F) -> T
where
    F: Future<Output = Answer<T>>,
{
    loop {
        match call().await {
            Ok(value) => return value,
            Err(status) if status.code() == Code::Aborted => {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Err(status) => panic!("{what}: {status}"),
        }
    }
}
