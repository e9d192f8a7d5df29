use orlop_model::{Pool, Provisioning};
use orlop_sys::file;

use super::super::ImagePool;
use super::super::testbed::*;
use super::*;

fn promisable(pool: &ImagePool) -> u64 {
    pool.capacity(Provisioning::Thin).unwrap().available_bytes
}

fn used(pool: &ImagePool) -> u128 {
    lock(&pool.store.ledger).used()
}

/// As if it were long ago.
fn let_age(pool: &ImagePool) {
    let seen = &mut lock(&pool.store.ledger).survey.last;
    let seen = seen.as_mut().unwrap();
    seen.at = seen.at.checked_sub(SERVES).unwrap();
}

#[test]
fn what_was_written_is_noticed_without_anyone_waiting() {
    let Some(bed) = Bed::xfs() else { return };
    let pool = bed.open();
    let record = create(&pool, &volume_of(&pool, "a", 128 * MIB));
    let before = promisable(&pool);
    scribble(&data_of(&pool, &record.id), 1, 48 * MIB);
    let unseen = promisable(&pool);
    assert!(unseen + 40 * MIB < before, "counted as a stranger's: {before} {unseen}");
    let_age(&pool);
    assert_eq!(promisable(&pool).abs_diff(unseen) / MIB, 0, "what was seen last serves once more");
    pool.store.surveyor.wait();
    assert!(promisable(&pool).abs_diff(before) <= 2 * MIB);
    assert!(!lock(&pool.store.ledger).survey.under_way);
}

#[test]
fn a_survey_that_panics_is_not_the_last() {
    let Some(bed) = Bed::xfs() else { return };
    let pool = bed.open();
    lock(&pool.store.ledger).survey.under_way = true;
    let store = Arc::clone(&pool.store);
    let survey = thread::spawn(move || {
        let under_way = UnderWay { store };
        let _ledger = lock(&under_way.store.ledger);
        panic!("in the middle of it");
    });
    survey.join().unwrap_err();
    let_age(&pool);
    promisable(&pool);
    assert!(lock(&pool.store.surveyor.0).is_some(), "nobody looks any more");
    pool.store.surveyor.wait();
    assert!(!lock(&pool.store.ledger).survey.under_way);
}

#[test]
fn books_stay_true_whatever_happens_during_a_survey() {
    let Some(bed) = Bed::xfs() else { return };
    let pool = bed.open();
    let kept = create(&pool, &thick_volume_of(&pool, "kept", 16 * MIB));
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..20 {
                    let name = format!("{worker} {round}");
                    let made = create(pool, &thick_volume_of(pool, &name, 4 * MIB));
                    pool.ensure_capacity(&made.id, 5 * MIB).unwrap();
                    pool.ensure_no_volume(&made.id).unwrap();
                }
            });
        }
        for _ in 0..100 {
            pool.store.survey().unwrap();
        }
    });
    let taken = file::allocated_bytes(&data_of(&pool, &kept.id)).unwrap();
    pool.store.survey().unwrap();
    assert_eq!(used(&pool), u128::from(taken));
    lock(&pool.store.ledger).survey.forget();
    promisable(&pool);
    assert_eq!(used(&pool), u128::from(taken));
}
