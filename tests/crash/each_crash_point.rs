//! One operation, repeated: in each repetition the daemon ends one effect later than in the one before. Or, of a sample,
//! after a few effects that chance chooses.

use std::collections::BTreeSet;

use orlop_tests::{Answer, Rng, random_seed, variable};

use crate::fixture::{Fixture, answered, settled};
use crate::pool::Kind;
use crate::tally::{self, TalliedOperation};

/// An operation, what it starts from, and how it is rolled back.
pub(crate) trait Scenario {
    /// What there is before the call.
    type State;

    fn name(&self) -> &'static str;

    /// The call, as the protocol names it.
    fn rpc(&self) -> &'static str;

    async fn prepare(&self, fixture: &Fixture, tag: &str) -> Self::State;

    /// Sends the same request in every repetition.
    async fn call(&self, fixture: &Fixture, state: &Self::State) -> Answer<()>;

    /// The operation was answered OK: its effect is there, whole.
    async fn holds(&self, fixture: &Fixture, state: &Self::State);

    /// Undoes the operation, however far it came: afterwards all is as `prepare` left it.
    async fn roll_back(&self, fixture: &Fixture, state: &Self::State);

    /// Removes what `prepare` made, once the operation was rolled back.
    async fn clear(&self, fixture: &Fixture, state: Self::State);
}

/// Runs the scenarios of a list.
pub(crate) trait ScenarioRunner {
    async fn run<S: Scenario>(&mut self, scenario: &S);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Afterwards {
    Repeat,
    TakeBack,
}

pub(crate) struct EachCrashPoint {
    fixture: Fixture,
    /// Inventories after a crash for which crashes during the next start were tested as well.
    recovered: BTreeSet<Vec<String>>,
    chance: Rng,
}

impl EachCrashPoint {
    pub(crate) async fn on(kind: Kind) -> Self {
        let seed = variable("ORLOP_TEST_SEED").unwrap_or_else(random_seed);
        eprintln!("ORLOP_TEST_SEED={seed}");
        let chance = Rng::with_seed(seed);
        Self { fixture: Fixture::new(kind).await, recovered: BTreeSet::new(), chance }
    }

    pub(crate) async fn finish(self) {
        self.fixture.finish().await;
        tally::show();
    }

    /// The crash point at which the daemon ended; `None` once the operation has fewer effects than that.
    async fn step<S: Scenario>(
        &mut self,
        scenario: &S,
        state: &S::State,
        before: &[String],
        effects: usize,
        afterwards: Afterwards,
    ) -> Option<String> {
        let name = scenario.name();
        self.fixture.crash_control().end_after(effects);
        let answer = answered(scenario.call(&self.fixture, state)).await;
        let ended = self.fixture.ended_after().await;
        self.fixture.crash_control().disarm();
        let context = match &ended {
            Some(place) => {
                tally::ended_at(place);
                self.fixture.check_preexisting();
                self.recover(before).await;
                format!("{name}, ended after effect {effects}, {place}")
            }
            None => format!("{name}, not ended"),
        };
        eprintln!("{context}: {answer:?}");
        match (&ended, answer) {
            (_, Ok(())) => scenario.holds(&self.fixture, state).await,
            (None, Err(status)) => panic!("{context}: {status}"),
            (Some(_), Err(_)) if afterwards == Afterwards::Repeat => {
                settled(&context, || scenario.call(&self.fixture, state)).await;
                scenario.holds(&self.fixture, state).await;
            }
            (Some(_), Err(_)) => {}
        }
        scenario.roll_back(&self.fixture, state).await;
        self.fixture.assert_inventory(before, &context).await;
        ended
    }

    /// Starts again. Where an end has left what none left before, or in the long version, that
    /// start is ended too, after each of its effects.
    async fn recover(&mut self, before: &[String]) {
        let left = self.fixture.inventory();
        let differs = |name: &&String| !before.contains(name);
        let new = self.recovered.insert(left.iter().filter(differs).map(|it| shape(it)).collect());
        if crate::sample().is_some() || !new && !crate::torture() {
            self.fixture.restart().await;
            return;
        }
        for place in self.fixture.crash_each_start_step().await {
            tally::ended_at(&place);
        }
    }
}

impl EachCrashPoint {
    async fn walk<S: Scenario>(&mut self, scenario: &S, state: &S::State, before: &[String]) {
        let mut places = Vec::new();
        while let Some(place) =
            self.step(scenario, state, before, places.len(), Afterwards::Repeat).await
        {
            places.push(place);
        }
        assert!(!places.is_empty(), "{}: no effect at all", scenario.name());
        for (effects, place) in places.iter().enumerate() {
            // To a process that ends, a sync is as good as none: once is enough.
            if !is_sync(place) || crate::torture() {
                self.step(scenario, state, before, effects, Afterwards::TakeBack).await;
            }
        }
    }

    /// An operation that is not ended, and so many that are.
    async fn sample<S: Scenario>(
        &mut self,
        scenario: &S,
        state: &S::State,
        before: &[String],
        count: usize,
    ) {
        let noted = self.fixture.crash_control().noted_effects();
        settled(scenario.name(), || scenario.call(&self.fixture, state)).await;
        let effects = self.fixture.crash_control().effects_since(noted);
        scenario.holds(&self.fixture, state).await;
        scenario.roll_back(&self.fixture, state).await;
        self.fixture.assert_inventory(before, scenario.name()).await;
        assert!(!effects.is_empty(), "{}: no effect at all", scenario.name());
        for (turn, effects) in self.choose(&effects, count).into_iter().enumerate() {
            let afterwards = [Afterwards::Repeat, Afterwards::TakeBack][turn % 2];
            self.step(scenario, state, before, effects, afterwards).await;
        }
    }

    /// Those that only some kinds of pools have come first: all others are walked on every pool.
    fn choose(&mut self, effects: &[String], count: usize) -> Vec<usize> {
        let mut chosen: Vec<_> =
            (0..effects.len()).filter(|index| !is_sync(&effects[*index])).collect();
        self.chance.shuffle(&mut chosen);
        chosen.sort_by_key(|index| !is_of_device_mapper(&effects[*index]));
        chosen.truncate(count);
        chosen
    }
}

fn is_sync(place: &str) -> bool {
    place.starts_with("sync")
}

fn is_of_device_mapper(place: &str) -> bool {
    ["lvm", "dmsetup", "mapper", "crypt"].iter().any(|word| place.contains(word))
}

impl ScenarioRunner for EachCrashPoint {
    async fn run<S: Scenario>(&mut self, scenario: &S) {
        let name = scenario.name();
        let tallied = TalliedOperation::begin(name);
        let state = scenario.prepare(&self.fixture, name).await;
        let before = self.fixture.inventory();
        match crate::sample() {
            Some(count) => self.sample(scenario, &state, &before, count).await,
            None => self.walk(scenario, &state, &before).await,
        }
        scenario.clear(&self.fixture, state).await;
        drop(tallied);
    }
}

/// A name without ids and numbers.
fn shape(name: &str) -> String {
    let words = name.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric());
    words.filter(|word| !word.contains(|letter: char| letter.is_ascii_digit())).collect()
}
