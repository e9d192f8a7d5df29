#![allow(clippy::unwrap_used)]

use orlop_host::MemoryHost;
use orlop_model::Topology;
use orlop_pools::{MemoryPool, MemoryPoolConfig};

use super::*;
use crate::Settings;

const LONG: Duration = Duration::from_secs(60);

fn pool(name: &str) -> PoolRef {
    let config = MemoryPoolConfig {
        name: name.to_owned(),
        topology: Topology::default(),
        capacity_bytes: 1 << 30,
    };
    Arc::new(MemoryPool::new(config))
}

fn vitals() -> Arc<Vitals> {
    Arc::new(Vitals::of(pool("default")))
}

fn question(vitals: &Arc<Vitals>) -> Result<Place> {
    vitals.place(1, LONG, |state| &mut state.questions)
}

fn guest(vitals: &Arc<Vitals>) -> Result<Place> {
    vitals.place(1, LONG, |state| &mut state.guests)
}

/// Guests and questions wait side by side; a place that one kind cannot use must reach the other.
#[test]
fn a_place_that_is_free_again_reaches_who_waits_for_it() {
    let vitals = vitals();
    let (asking, visiting) = (question(&vitals).unwrap(), guest(&vitals).unwrap());
    thread::scope(|scope| {
        let second_guest = scope.spawn(|| guest(&vitals).is_ok());
        // So that it most likely waits already. If it does not, the test says less, and passes.
        thread::sleep(Duration::from_millis(300));
        let second_question = scope.spawn(|| question(&vitals).is_ok());
        thread::sleep(Duration::from_millis(300));
        drop(asking);
        assert!(second_question.join().unwrap());
        drop(visiting);
        assert!(second_guest.join().unwrap());
    });
}

/// Else an administrator looks for a broken disk where there is only much to do.
#[test]
fn too_many_calls_at_once_are_not_called_a_broken_disk() {
    let vitals = vitals();
    let _visiting = guest(&vitals).unwrap();
    let refusal = vitals.place(1, Duration::ZERO, |state| &mut state.guests).err().unwrap();
    assert!(matches!(refusal, Error::Unreachable { .. }), "{refusal:?}");
    let text = refusal.to_string();
    assert!(text.contains("1 call") && text.contains("pool default"), "{text}");
    assert!(!text.contains("disk") && text.ends_with("try again"), "{text}");
    assert!(vitals.place(1, Duration::ZERO, |state| &mut state.questions).is_ok());
}

#[test]
fn a_guest_of_a_pool_that_is_silent_is_lost_to_its_home() {
    let [home, other] = ["home", "other"].map(pool);
    let settings = Settings {
        node_id: "n1".parse().unwrap(),
        place: Topology::default(),
        attach: false,
        max_volumes: 1,
        default_capacity: 1 << 20,
        lock_patience: Duration::ZERO,
    };
    let pools = vec![Arc::clone(&home), Arc::clone(&other)];
    let engine = Engine::new(pools, Arc::new(MemoryHost::default()), settings).unwrap();
    let guest = engine.as_guest(&other, Some(home.id())).unwrap();
    let _of_no_pool = engine.as_guest(&other, None).unwrap();
    let lost = || (engine.calls_lost_elsewhere(home.id()), engine.calls_lost_elsewhere(other.id()));
    assert_eq!(lost(), (0, 0), "it answers");
    engine.vitals[other.id()].state().asked = Instant::now().checked_sub(PATIENCE);
    assert_eq!(lost(), (1, 0));
    drop(guest);
    assert_eq!(lost(), (0, 0));
}
