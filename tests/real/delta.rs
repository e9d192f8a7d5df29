//! Never a missed block: a device is written, zeroed, punched, discarded and grown at random
//! between snapshots, and each snapshot is rebuilt from an earlier one and what is said to have
//! changed since.
//!
//! Each scenario takes some seeds, has its own volume and depends on nothing but its seeds,
//! so a failure is repeated by the scenario alone. `ORLOP_TEST_DELTA_SEEDS` says how many seeds there
//! are (2000), the first half for XFS and the second for btrfs, `ORLOP_TEST_DELTA_FROM` which is
//! the first (0): with a scenario's first seed and 40 seeds, XFS gets that scenario alone.

mod cancelled;
mod figures;
mod operations;
mod rebuild;
mod reported_blocks;
mod scenario;

use std::ops::Range;
use std::sync::{Arc, Mutex};

use orlop_tests::*;

use figures::Figures;
use scenario::{STEPS, Scenario};

/// Reading and comparing whole files takes its time, and leaves little to chance.
const SEEDS_ON_A_DIRECTORY: u64 = 60;

const AT_ONCE: usize = 4;

/// The first, and how many.
fn seeds() -> (u64, u64) {
    let from = variable("ORLOP_TEST_DELTA_FROM").unwrap_or(0);
    (from, variable("ORLOP_TEST_DELTA_SEEDS").unwrap_or(2000))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn no_change_is_missed_on_an_xfs_pool() {
    needs_root!();
    let (first, count) = seeds();
    check(PoolFs::Xfs, first..first + count / 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn no_change_is_missed_on_a_btrfs_pool() {
    needs_root!();
    let (first, count) = seeds();
    check(PoolFs::Btrfs, first + count / 2..first + count).await;
}

/// Whatever is below a plain directory is not asked where data lies: it is read and compared.
#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn changes_are_exact_in_a_plain_directory() {
    needs_root!();
    let figures = check(PoolFs::Directory, 0..SEEDS_ON_A_DIRECTORY).await;
    assert_eq!(figures.unchanged_bytes, 0, "blocks were reported that had not changed");
}

/// Several chapters at once: much of the time goes by while disks are waited for.
async fn check(fs: PoolFs, seeds: Range<u64>) -> Figures {
    let pool = Arc::new(TestPool::new(fs, 4 * GIB));
    let daemon = Launch::on(&pool).env("ORLOP_LOG", "warn").start().await;
    let chapters = seeds.clone().step_by(usize::try_from(STEPS).unwrap());
    let chapters = chapters.map(|first| first..seeds.end.min(first + STEPS));
    let chapters = Arc::new(Mutex::new(chapters.collect::<Vec<_>>().into_iter()));
    let narrators = (0..AT_ONCE).map(|_| {
        let (pool, client) = (Arc::clone(&pool), daemon.client());
        let chapters = Arc::clone(&chapters);
        tokio::spawn(async move {
            let mut figures = Figures::default();
            let next = || chapters.lock().unwrap().next();
            while let Some(seeds) = next() {
                Scenario::run(&pool, &client, seeds, &mut figures).await;
            }
            figures
        })
    });
    let mut figures = Figures::default();
    for narrator in narrators.collect::<Vec<_>>() {
        figures += narrator.await.expect("a chapter without failures");
    }
    report(&format!("{fs:?}, seeds {} to {}: {figures}", seeds.start, seeds.end - 1));
    if seeds.end - seeds.start > 2 * STEPS {
        figures.assert_varied();
    }
    figures
}
