#![allow(clippy::unwrap_used)]

use std::sync::mpsc;
use std::thread;

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn key(name: &str) -> Key {
    Key::Volume(NameDigest::of_text(name))
}

fn impatient() -> Locks {
    Locks::new(Duration::ZERO)
}

/// Until so many wait for the key.
fn until_waiting(locks: &Locks, key: &Key, count: usize) {
    while locks.waiting_for(key) != count {
        thread::yield_now();
    }
}

/// Until one call waits for the key, or was refused.
fn until_waiting_or_done<T>(locks: &Locks, key: &Key, call: &thread::ScopedJoinHandle<'_, T>) {
    while locks.waiting_for(key) == 0 && !call.is_finished() {
        thread::yield_now();
    }
}

#[test]
fn an_exclusive_lock_is_held_by_one() {
    let locks = impatient();
    let held = locks.exclusive(key("a")).unwrap();
    assert!(matches!(locks.exclusive(key("a")), Err(Error::Busy { .. })));
    assert!(matches!(locks.shared(key("a")), Err(Error::Busy { .. })));
    assert!(locks.exclusive(key("b")).is_ok());
    drop(held);
    assert!(locks.exclusive(key("a")).is_ok());
}

#[test]
fn readers_share_and_the_last_one_releases() {
    let locks = impatient();
    let first = locks.shared(key("a")).unwrap();
    let second = locks.shared(key("a")).unwrap();
    drop(first);
    assert!(locks.exclusive(key("a")).is_err());
    drop(second);
    assert!(locks.exclusive(key("a")).is_ok());
    assert!(locks.is_forgotten());
}

#[test]
fn volume_and_snapshot_of_one_name_have_separate_locks() {
    let locks = impatient();
    let _volume = locks.exclusive(key("a")).unwrap();
    assert!(locks.exclusive(Key::Snapshot(NameDigest::of_text("a"))).is_ok());
}

#[test]
fn briefly_held_lock_is_waited_for() {
    let locks = Locks::new(LONG);
    let held = locks.exclusive(key("a")).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| locks.exclusive(key("a")).is_ok());
        until_waiting(&locks, &key("a"), 1);
        drop(held);
        assert!(waiting.join().unwrap());
    });
    assert!(locks.is_forgotten());
}

/// Else a volume that is copied all the time could never be deleted.
#[test]
fn waiters_are_served_in_order() {
    let locks = Locks::new(LONG);
    let reader = locks.shared(key("a")).unwrap();
    let (order, came) = mpsc::channel();
    thread::scope(|scope| {
        for (waiting, exclusive) in [true, false, false].into_iter().enumerate() {
            let (order, locks) = (order.clone(), &locks);
            scope.spawn(move || {
                let lock =
                    if exclusive { locks.exclusive(key("a")) } else { locks.shared(key("a")) };
                order.send(exclusive).unwrap();
                drop(lock.unwrap());
            });
            until_waiting(locks, &key("a"), waiting + 1);
        }
        drop(reader);
    });
    drop(order);
    assert_eq!(came.iter().collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn waiter_that_gives_up_blocks_no_other() {
    let locks = Locks::new(Duration::from_millis(10));
    let reader = locks.shared(key("a")).unwrap();
    assert!(matches!(locks.exclusive(key("a")), Err(Error::Busy { .. })));
    assert!(locks.shared(key("a")).is_ok());
    drop(reader);
    assert!(locks.is_forgotten());
}

/// Each of them takes a place that another operation could use.
#[test]
fn waiters_per_object_are_limited() {
    let locks = Locks::new(LONG);
    let hot = locks.exclusive(key("hot")).unwrap();
    let other = locks.exclusive(key("other")).unwrap();
    thread::scope(|scope| {
        for waiting in 0..MAX_WAITERS_OF_ONE {
            scope.spawn(|| drop(locks.exclusive(key("hot")).unwrap()));
            until_waiting(&locks, &key("hot"), waiting + 1);
        }
        assert!(matches!(locks.exclusive(key("hot")), Err(Error::Busy { .. })));
        let patient = scope.spawn(|| locks.exclusive(key("other")).is_ok());
        until_waiting_or_done(&locks, &key("other"), &patient);
        drop(other);
        assert!(patient.join().unwrap(), "it was refused for another object's callers");
        drop(hot);
    });
    assert!(locks.is_forgotten());
}

/// A pool that is slow has many locks that are waited for.
#[test]
fn full_waiting_room_of_one_pool_does_not_affect_another() {
    let locks = Locks::new(LONG);
    let (sick, well) = (WaiterLimit::default(), WaiterLimit::default());
    let (sick, well) = (locks.with_waiter_limit(&sick), locks.with_waiter_limit(&well));
    let keys: Vec<_> = (0..).map(|number| key(&number.to_string())).take(40).collect();
    let mut held: Vec<_> = keys.iter().map(|key| locks.exclusive(key.clone()).unwrap()).collect();
    let last = held.pop();
    let mut entered = 0;
    thread::scope(|scope| {
        for key in &keys[..keys.len() - 1] {
            let waiting = scope.spawn(|| sick.exclusive(key.clone()).is_ok());
            until_waiting_or_done(&locks, key, &waiting);
            entered += locks.waiting_for(key);
        }
        assert!(entered >= MAX_WAITERS_OF_ONE && entered < keys.len() - 1, "{entered} wait");
        let key = &keys[keys.len() - 1];
        assert!(matches!(sick.exclusive(key.clone()), Err(Error::Busy { .. })));
        let patient = scope.spawn(|| well.exclusive(key.clone()).is_ok());
        until_waiting_or_done(&locks, key, &patient);
        drop(last);
        assert!(patient.join().unwrap(), "it was refused for the callers of another waiters");
        drop(held);
    });
    assert!(locks.is_forgotten());
    assert!(sick.waiters.is_empty(), "a slot is still taken");
}

/// Else the first of a group's locks would be held for as long as all the others are waited for.
#[test]
fn all_locks_of_a_call_are_waited_for_together() {
    let locks = Locks::new(LONG).with_one_deadline();
    let late = Locks { deadline: Some(Instant::now()), ..locks.clone() };
    let held = locks.exclusive(key("a")).unwrap();
    // What is free is there at once; what is not has had its time.
    assert!(late.exclusive(key("b")).is_ok());
    assert!(matches!(late.exclusive(key("a")), Err(Error::Busy { .. })));
    drop(held);
    assert_eq!(locks.with_one_deadline().deadline, locks.deadline);
    let keys = || BTreeSet::from(["a", "b", "c"].map(key));
    let until = Mutex::new(BTreeSet::new());
    let take = |locks: &Locks, key: Key| {
        until.lock().unwrap().insert(locks.deadline);
        locks.exclusive(key)
    };
    assert_eq!(Locks::new(LONG).all(keys(), take).unwrap().len(), 3);
    let until = until.into_inner().unwrap();
    assert!(until.len() == 1 && until.iter().all(Option::is_some), "{until:?}");
    assert!(locks.is_forgotten());
}
