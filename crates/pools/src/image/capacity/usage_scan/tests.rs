use std::time::{Duration, Instant};

use orlop_model::{Error, Pool, Provisioning};
use orlop_sys::file;

use super::super::Freshness;
use super::super::ledger::{MAX_REFUSAL_AGE, MAX_SCAN_AGE};
use super::*;
use crate::image::ImagePool;
use crate::image::testbed::*;

fn promisable(pool: &ImagePool) -> u64 {
    pool.provisioner().capacity(Provisioning::Thin).unwrap().available_bytes
}

fn used(pool: &ImagePool) -> u128 {
    lock(&pool.capacity.ledger).used()
}

/// As if it were long ago.
fn let_age(pool: &ImagePool) {
    let mut ledger = lock(&pool.capacity.ledger);
    ledger.scan().change_time(|at| at.checked_sub(MAX_SCAN_AGE).unwrap());
}

#[test]
fn written_bytes_are_scanned_in_the_background() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 128 * MIB));
    let before = promisable(&pool);
    scribble(&data_of(&pool, &record.id), 1, 48 * MIB);
    let unseen = promisable(&pool);
    assert!(unseen + 40 * MIB < before, "counted as a stranger's: {before} {unseen}");
    let_age(&pool);
    pool.capacity.headroom(&mut lock(&pool.capacity.ledger), Freshness::Recent).unwrap();
    pool.capacity.scanner.wait();
    assert!(promisable(&pool).abs_diff(before) <= 2 * MIB);
    assert!(!lock(&pool.capacity.ledger).scan().is_under_way());
}

/// What a copy has given up it shares no more.
#[test]
fn shared_bytes_are_scanned_too() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let shared = || pool.provisioner().space().unwrap().shared.unwrap();
    let record = create(&pool, &volume_of(&pool, "a", 128 * MIB));
    scribble(&data_of(&pool, &record.id), 1, 48 * MIB);
    let before = shared();
    let copy = snapshot(&pool, "s", &record);
    assert!(shared() >= before + 48 * MIB, "{before} {}", shared());
    let data =
        std::fs::File::options().write(true).open(snapshot_data_of(&pool, &copy.id)).unwrap();
    data.set_len(0).unwrap();
    data.set_len(128 * MIB).unwrap();
    let_age(&pool);
    pool.capacity.headroom(&mut lock(&pool.capacity.ledger), Freshness::Recent).unwrap();
    pool.capacity.scanner.wait();
    assert_eq!(shared(), before);
}

/// An orchestrator asks every minute or so: what was seen last would then always be old.
#[test]
fn first_question_after_a_while_is_answered_by_a_scan() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 128 * MIB));
    let before = promisable(&pool);
    scribble(&data_of(&pool, &record.id), 1, 48 * MIB);
    let_age(&pool);
    let now = promisable(&pool);
    assert!(now.abs_diff(before) <= 2 * MIB, "{before} {now}");
}

fn scanned_at(pool: &ImagePool) -> Instant {
    lock(&pool.capacity.ledger).scan().refusal_time()
}

/// As if the last look for a refusal were this long ago.
fn let_refusal_age(pool: &ImagePool, by: Duration) {
    let mut ledger = lock(&pool.capacity.ledger);
    ledger.scan().change_refusal_time(|at| at.checked_sub(by).unwrap());
}

/// A look that stays the last one however slow the test is.
fn let_refusal_last(pool: &ImagePool) {
    let mut ledger = lock(&pool.capacity.ledger);
    ledger.scan().change_refusal_time(|at| at + Duration::from_secs(3600));
}

#[test]
fn many_refusals_cause_one_scan() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    create(&pool, &volume_of(&pool, "a", 64 * MIB));
    let too_much = promisable(&pool) + 64 * MIB;
    let refuse = |name| {
        let refused = try_create(&pool, &volume_of(&pool, name, too_much));
        assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
        scanned_at(&pool)
    };
    refuse("first");
    let_refusal_last(&pool);
    let scanned = scanned_at(&pool);
    assert_eq!(refuse("second"), scanned, "scanned again");
    let_refusal_age(&pool, Duration::from_secs(3600) + MAX_REFUSAL_AGE);
    let long_ago = scanned_at(&pool);
    assert!(refuse("third") > long_ago, "not scanned again");
}

/// GC-10: a volume as large as GetCapacity reported can be created, whatever was written or refused since.
#[test]
fn reported_capacity_can_be_created_after_a_refusal() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 128 * MIB));
    let largest = pool.provisioner().capacity(Provisioning::Thin).unwrap().largest_volume;
    let refused = try_create(&pool, &volume_of(&pool, "more", largest + 64 * MIB));
    assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
    let_refusal_last(&pool);
    scribble(&data_of(&pool, &record.id), 1, 48 * MIB);
    create(&pool, &volume_of(&pool, "largest", largest - 2 * MIB));
}

#[test]
fn space_freed_by_others_is_found_after_a_refusal() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let path = testbed.pool_path().with_extension("stranger");
    let stranger = std::fs::File::create_new(&path).unwrap();
    file::preallocate(&stranger, 0, 128 * MIB).unwrap();
    let wanted = volume_of(&pool, "a", promisable(&pool) / MIB * MIB + 64 * MIB);
    let refused = try_create(&pool, &wanted);
    assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
    let_refusal_last(&pool);
    file::set_length(&stranger, 0).unwrap();
    stranger.sync_all().unwrap();
    create(&pool, &wanted);
}

#[test]
fn scan_runs_again_after_a_panic() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    lock(&pool.capacity.ledger).scan().begin();
    let capacity = Arc::clone(&pool.capacity);
    let scan = thread::spawn(move || {
        let under_way = ScanUnderWay { capacity };
        let _ledger = lock(&under_way.capacity.ledger);
        panic!("in the middle of it");
    });
    scan.join().unwrap_err();
    let_age(&pool);
    promisable(&pool);
    assert!(lock(&pool.capacity.scanner.0).is_some(), "the scan has ended");
    pool.capacity.scanner.wait();
    assert!(!lock(&pool.capacity.ledger).scan().is_under_way());
}

#[test]
fn accounting_stays_correct_during_a_scan() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let kept = create(&pool, &thick_volume_of(&pool, "kept", 16 * MIB));
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..20 {
                    let name = format!("{worker} {round}");
                    let made = create(pool, &thick_volume_of(pool, &name, 4 * MIB));
                    pool.provisioner().ensure_capacity(&made.id, 5 * MIB).unwrap();
                    pool.provisioner().ensure_no_volume(&made.id).unwrap();
                }
            });
        }
        for _ in 0..100 {
            pool.capacity.scan().unwrap();
        }
    });
    let taken = file::allocated_bytes(&data_of(&pool, &kept.id)).unwrap();
    pool.capacity.scan().unwrap();
    assert_eq!(used(&pool), u128::from(taken));
    lock(&pool.capacity.ledger).scan().forget();
    promisable(&pool);
    assert_eq!(used(&pool), u128::from(taken));
}
