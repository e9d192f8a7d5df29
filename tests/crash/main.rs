//! The daemon ends as by `kill -9` after every single effect of every operation, and of its start.
//! It is started again, and then the call is repeated as an orchestrator would, or undone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod coverage;
mod each_crash_point;
mod fixture;
mod pool;
mod preexisting;
mod read_only_calls;
mod scenarios;
mod starting;
mod tally;
mod trace;

use std::collections::BTreeSet;

use orlop_tests::{PoolFs, needs_device_mapper, needs_root, variable};

use coverage::Coverage;
use each_crash_point::EachCrashPoint;
use pool::Kind;
use scenarios::{
    attaching, changed_blocks, copying, creating, encrypting, group_snapshots, growing, publishing,
    staging, volume_groups,
};

/// The long version: everything on every kind of pool, and every start hindered.
fn torture() -> bool {
    std::env::var_os("ORLOP_TEST_TORTURE").is_some_and(|value| value == "1")
}

/// The short version: so many ends of each operation, and none during starts.
fn sample() -> Option<usize> {
    let count = variable("ORLOP_TEST_CRASH_SAMPLE")?;
    Some(usize::try_from(count).expect("a small number"))
}

fn pools(usual: PoolFs) -> Vec<PoolFs> {
    if torture() { PoolFs::ALL.to_vec() } else { vec![usual] }
}

fn kinds(usual: Kind) -> Vec<Kind> {
    match usual {
        Kind::Image(fs) => pools(fs).into_iter().map(Kind::Image).collect(),
        Kind::Lvm | Kind::Encrypted(_) => vec![usual],
    }
}

/// Each test has its own fixture, so that they run in parallel.
macro_rules! crash_tests {
    ($needs:ident, $kind:expr; $($name:ident: $scenarios:ident::$list:ident;)+) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            $needs!();
            for kind in kinds($kind) {
                let mut run = EachCrashPoint::on(kind).await;
                $scenarios::$list(&mut run).await;
                run.finish().await;
            }
        }
    )+};
}

crash_tests! {
    needs_root, Kind::Image(PoolFs::Xfs);
    creating_and_deleting: creating::all;
    snapshots_and_copies: copying::all;
    group_snapshots: group_snapshots::all;
    volume_groups: volume_groups::all;
    attaching_and_limits: attaching::all;
    first_stages: staging::first;
    stages_of_copies: staging::copies;
    other_stages: staging::others;
    publishing_and_back: publishing::all;
    inline_volumes: publishing::inline;
    growing_and_reclaiming: growing::all;
}

crash_tests! {
    needs_root, Kind::Image(PoolFs::Directory);
    copies_that_share_nothing: copying::copies;
}

crash_tests! {
    needs_root, Kind::Image(PoolFs::Btrfs);
    atomic_group_snapshots: group_snapshots::one_instant;
}

/// The guest has what these need.
mod lvm {
    use super::*;

    crash_tests! {
        needs_device_mapper, Kind::Lvm;
        creating_and_deleting: creating::all;
        snapshots_and_copies: copying::on_lvm;
        changed_blocks: changed_blocks::all;
        group_snapshots: group_snapshots::all;
        volume_groups: volume_groups::all;
        attaching_and_limits: attaching::all;
        first_stages: staging::first;
        stages_of_copies: staging::copies;
        other_stages: staging::others;
        publishing_and_back: publishing::all;
        inline_volumes: publishing::inline;
        growing_and_reclaiming: growing::all;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn first_start_of_a_pool() {
        needs_device_mapper!();
        for has_thin_pool in [false, true] {
            starting::first_start_in_a_volume_group(has_thin_pool).await;
        }
        tally::show();
    }
}

/// As above.
mod encrypted {
    use super::*;

    crash_tests! {
        needs_device_mapper, Kind::Encrypted(PoolFs::Xfs);
        key_rotation: encrypting::rotation;
        creating_and_deleting: creating::all;
        snapshots_and_copies: copying::all;
        first_stages: staging::first;
        other_stages: staging::others;
        publishing_and_back: publishing::all;
        growing_and_reclaiming: growing::of_encrypted;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn first_start_of_a_pool() {
    needs_root!();
    for fs in pools(PoolFs::Btrfs) {
        starting::first_start_of_a_pool(fs, false).await;
    }
    tally::show();
}

#[tokio::test(flavor = "multi_thread")]
async fn first_start_and_last_stop_of_a_managed_pool() {
    needs_root!();
    starting::first_start_of_a_pool(PoolFs::Directory, true).await;
    starting::last_stop().await;
    tally::show();
}

/// Fails for an effect without a crash point, and for a call without a scenario.
#[tokio::test(flavor = "multi_thread")]
async fn every_effect_has_a_crash_point_and_every_call_a_scenario() {
    needs_root!();
    let mut coverage = Coverage::on(Kind::Image(PoolFs::Xfs)).await;
    creating::all(&mut coverage).await;
    copying::all(&mut coverage).await;
    group_snapshots::all(&mut coverage).await;
    volume_groups::all(&mut coverage).await;
    attaching::all(&mut coverage).await;
    staging::first(&mut coverage).await;
    staging::copies(&mut coverage).await;
    staging::others(&mut coverage).await;
    publishing::all(&mut coverage).await;
    publishing::inline(&mut coverage).await;
    growing::all(&mut coverage).await;
    let calls = coverage.make_read_only_calls().await;
    let operations = coverage.finish().await;
    let known: BTreeSet<_> = operations.union(&calls).map(ToString::to_string).collect();
    assert_eq!(known, coverage::all_calls());
}

/// What only other pools do.
#[tokio::test(flavor = "multi_thread")]
async fn every_effect_on_other_pools_has_a_crash_point() {
    needs_root!();
    for fs in [PoolFs::Btrfs, PoolFs::Directory] {
        let mut coverage = Coverage::on(Kind::Image(fs)).await;
        copying::all(&mut coverage).await;
        group_snapshots::all(&mut coverage).await;
        coverage.finish().await;
    }
}
