//! The walk: one operation, again and again, ended one effect later each time.

use std::collections::BTreeSet;

use orlop_tests::{Answer, PoolFs};

use crate::tally::{self, Walked};
use crate::world::{World, answered, settled};

/// An operation, what it starts from, and how it is taken back.
pub(crate) trait Scenario {
    /// What there is before the call.
    type State;

    fn name(&self) -> &'static str;

    /// The call, as the protocol names it.
    fn rpc(&self) -> &'static str;

    async fn prepare(&self, world: &World, tag: &str) -> Self::State;

    /// Told what is the same in every repetition.
    async fn call(&self, world: &World, state: &Self::State) -> Answer<()>;

    /// The operation was answered OK: its effect is there, whole.
    async fn holds(&self, world: &World, state: &Self::State);

    /// Takes back the operation, whatever of it is there: all is as it was prepared.
    async fn take_back(&self, world: &World, state: &Self::State);

    /// Clears away what was prepared, once the operation was taken back.
    async fn clear(&self, world: &World, state: Self::State);
}

/// What is done with the scenarios of a list.
pub(crate) trait Stroll {
    async fn walk<S: Scenario>(&mut self, scenario: &S);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Afterwards {
    Repeat,
    TakeBack,
}

pub(crate) struct Walk {
    world: World,
    /// What ends left, of which starts were hindered as well.
    recovered: BTreeSet<Vec<String>>,
}

impl Walk {
    pub(crate) async fn on(fs: PoolFs) -> Self {
        Self { world: World::new(fs).await, recovered: BTreeSet::new() }
    }

    pub(crate) async fn finish(self) {
        self.world.finish().await;
        tally::show();
    }

    /// Where it ended; `None` once the operation is over before so many effects.
    async fn step<S: Scenario>(
        &mut self,
        scenario: &S,
        state: &S::State,
        before: &[String],
        effects: usize,
        afterwards: Afterwards,
    ) -> Option<String> {
        let name = scenario.name();
        self.world.orders().end_after(effects);
        let answer = answered(scenario.call(&self.world, state)).await;
        let ended = self.world.ended_after().await;
        self.world.orders().forget();
        let told = match &ended {
            Some(place) => {
                tally::ended_at(place);
                self.world.bystander_goes_on();
                self.recover(before).await;
                format!("{name}, ended after effect {effects}, {place}")
            }
            None => format!("{name}, not ended"),
        };
        eprintln!("{told}: {answer:?}");
        match (&ended, answer) {
            (_, Ok(())) => scenario.holds(&self.world, state).await,
            (None, Err(status)) => panic!("{told}: {status}"),
            (Some(_), Err(_)) if afterwards == Afterwards::Repeat => {
                settled(&told, || scenario.call(&self.world, state)).await;
                scenario.holds(&self.world, state).await;
            }
            (Some(_), Err(_)) => {}
        }
        scenario.take_back(&self.world, state).await;
        self.world.assert_as_before(before, &told).await;
        ended
    }

    /// Starts again. Where an end has left what none left before, or in the long version, that
    /// start is ended too, after each of its effects.
    async fn recover(&mut self, before: &[String]) {
        let left = self.world.inventory();
        let differs = |name: &&String| !before.contains(name);
        let new = self.recovered.insert(left.iter().filter(differs).map(|it| shape(it)).collect());
        if !new && !crate::torture() {
            self.world.start_again().await;
            return;
        }
        for place in self.world.start_again_and_again().await {
            tally::ended_at(&place);
        }
    }
}

impl Stroll for Walk {
    async fn walk<S: Scenario>(&mut self, scenario: &S) {
        let name = scenario.name();
        let walked = Walked::begin(name);
        let state = scenario.prepare(&self.world, name).await;
        let before = self.world.inventory();
        let mut places = Vec::new();
        while let Some(place) =
            self.step(scenario, &state, &before, places.len(), Afterwards::Repeat).await
        {
            places.push(place);
        }
        assert!(!places.is_empty(), "{name}: no effect at all");
        for (effects, place) in places.iter().enumerate() {
            // To a process that ends, a sync is as good as none: once is enough.
            if !place.starts_with("sync") || crate::torture() {
                self.step(scenario, &state, &before, effects, Afterwards::TakeBack).await;
            }
        }
        scenario.clear(&self.world, state).await;
        drop(walked);
    }
}

/// A name without ids and numbers.
fn shape(name: &str) -> String {
    let words = name.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric());
    words.filter(|word| !word.contains(|letter: char| letter.is_ascii_digit())).collect()
}
