//! Never a missed block: a device is written, zeroed, punched, discarded and grown at random
//! between snapshots, and each snapshot is rebuilt from an earlier one and what is said to have
//! changed since.
//!
//! Seeds are told in chapters. Each has a volume of its own and depends on nothing but its seeds,
//! so a failure is repeated by the chapter alone: `ORLOP_TEST_DELTA_FROM` names its first seed.
//! `ORLOP_TEST_DELTA_SEEDS` says how many there are (2000), half of them on XFS, half on btrfs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod chapter;
mod figures;
mod operations;
mod rebuild;
mod told;

use orlop_tests::*;

use chapter::{Chapter, STEPS};
use figures::Figures;

/// Reading and comparing whole files takes its time, and leaves little to chance.
const SEEDS_ON_A_DIRECTORY: u64 = 60;

fn variable(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_missed_on_an_xfs_pool() {
    needs_root!();
    check(PoolFs::Xfs, variable("ORLOP_TEST_DELTA_SEEDS", 2000) / 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_missed_on_a_btrfs_pool() {
    needs_root!();
    check(PoolFs::Btrfs, variable("ORLOP_TEST_DELTA_SEEDS", 2000) / 2).await;
}

/// Whatever is below a plain directory is not asked where data lies: it is read and compared.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_missed_and_nothing_is_made_up_in_a_plain_directory() {
    needs_root!();
    let figures = check(PoolFs::Directory, SEEDS_ON_A_DIRECTORY).await;
    assert_eq!(figures.unchanged_bytes, 0, "blocks were told that had not changed");
}

async fn check(fs: PoolFs, seeds: u64) -> Figures {
    let first = variable("ORLOP_TEST_DELTA_FROM", 0) / STEPS * STEPS;
    let pool = TestPool::new(fs, 2 * GIB);
    let daemon = Launch::on(&pool).env("ORLOP_LOG", "warn").start().await;
    let client = daemon.client();
    let mut figures = Figures::default();
    let mut seed = first;
    while seed < first + seeds {
        let mut chapter = Chapter::begin(&pool, &client, seed).await;
        let end = (seed + STEPS).min(first + seeds);
        while seed < end {
            chapter.step(seed, &mut figures).await;
            seed += 1;
        }
        chapter.end(&mut figures).await;
    }
    println!("{fs:?}: seeds {first} to {}: {figures}", seed - 1);
    figures.assert_varied();
    figures
}
