//! The walk: one operation, again and again, ended one effect later each time.

use std::collections::BTreeMap;

use orlop_tests::{Answer, PoolFs};

use crate::world::{World, settled};

/// An operation, what it starts from, and how it is taken back.
pub(crate) trait Scenario {
    /// What there is before the call.
    type State;

    fn name(&self) -> &'static str;

    async fn prepare(&self, world: &World, tag: &str) -> Self::State;

    /// Told what is the same in every repetition.
    async fn call(&self, world: &World, state: &Self::State) -> Answer<()>;

    /// The operation was answered OK: its effect is there, whole.
    async fn holds(&self, world: &World, state: &Self::State);

    /// All calls that take back the operation and what was prepared, whatever of it is there.
    async fn undo(&self, world: &World, state: &Self::State);
}

pub(crate) struct Walk {
    world: World,
    points: BTreeMap<String, usize>,
    operations: usize,
    restarts: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Afterwards {
    Repeat,
    TakeBack,
}

impl Walk {
    pub(crate) async fn on(fs: PoolFs) -> Self {
        Self { world: World::new(fs).await, points: BTreeMap::new(), operations: 0, restarts: 0 }
    }

    pub(crate) async fn walk<S: Scenario>(&mut self, scenario: &S) {
        self.operations += 1;
        for afterwards in [Afterwards::Repeat, Afterwards::TakeBack] {
            let mut effects = 0;
            while self.step(scenario, effects, afterwards).await {
                effects += 1;
            }
            assert!(effects > 0, "{}: no effect at all", scenario.name());
        }
    }

    /// False once the operation is over before so many effects.
    async fn step<S: Scenario>(
        &mut self,
        scenario: &S,
        effects: usize,
        afterwards: Afterwards,
    ) -> bool {
        let name = scenario.name();
        let way = if afterwards == Afterwards::Repeat { "again" } else { "back" };
        let state = scenario.prepare(&self.world, &format!("{name}-{way}-{effects}")).await;
        self.world.end_after(effects);
        let answer = scenario.call(&self.world, &state).await;
        let ended = self.world.ended_after().await;
        let told = match &ended {
            Some(place) => {
                *self.points.entry(place.clone()).or_default() += 1;
                self.restarts += 1;
                self.world.bystander_goes_on().await;
                self.world.start_again().await;
                format!("{name}, ended after effect {effects}, {place}")
            }
            None => {
                answer.unwrap_or_else(|status| panic!("{name} without a crash: {status}"));
                self.world.disarm().await;
                format!("{name}, not ended")
            }
        };
        if afterwards == Afterwards::Repeat {
            settled(&told, || scenario.call(&self.world, &state)).await;
            scenario.holds(&self.world, &state).await;
        }
        scenario.undo(&self.world, &state).await;
        self.world.assert_nothing_left(&told).await;
        ended.is_some()
    }

    pub(crate) async fn finish(self) -> String {
        self.world.finish().await;
        format!(
            "{} operations, ended at {} different places, {} times in all; 0 lost, 0 leaked",
            self.operations,
            self.points.len(),
            self.restarts,
        )
    }
}
