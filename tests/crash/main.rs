//! The daemon ends as by `kill -9` after every single effect of every operation, and of its own
//! start. It is started again, and then the call is repeated as an orchestrator would, or taken
//! back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod bystander;
mod looking;
mod scenarios;
mod starting;
mod tally;
mod tour;
mod trace;
mod walk;
mod world;

use std::collections::BTreeSet;

use orlop_tests::{PoolFs, needs_root};

use scenarios::{attaching, copying, creating, cutting, grouping, growing, publishing, staging};
use tour::Tour;
use walk::Walk;

/// The long version: everything on every kind of pool, and every start hindered.
fn torture() -> bool {
    std::env::var_os("ORLOP_TEST_TORTURE").is_some_and(|value| value == "1")
}

fn pools(usual: PoolFs) -> Vec<PoolFs> {
    if torture() { PoolFs::ALL.to_vec() } else { vec![usual] }
}

/// Each in a world of its own, so that they walk side by side.
macro_rules! walks {
    ($($name:ident: $scenarios:ident::$list:ident on $fs:ident;)+) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            needs_root!();
            for fs in pools(PoolFs::$fs) {
                let mut walk = Walk::on(fs).await;
                $scenarios::$list(&mut walk).await;
                walk.finish().await;
            }
        }
    )+};
}

walks! {
    creating_and_deleting: creating::all on Xfs;
    snapshots_and_copies: copying::all on Xfs;
    copies_that_share_nothing: copying::copies on Directory;
    group_snapshots: cutting::all on Xfs;
    group_snapshots_of_one_moment: cutting::all on Btrfs;
    volume_groups: grouping::all on Xfs;
    attaching_and_limits: attaching::all on Xfs;
    first_stages: staging::first on Xfs;
    stages_of_copies: staging::copies on Xfs;
    other_stages: staging::others on Xfs;
    publishing_and_back: publishing::all on Xfs;
    inline_volumes: publishing::inline on Xfs;
    growing_and_reclaiming: growing::all on Xfs;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_start() {
    needs_root!();
    for fs in pools(PoolFs::Btrfs) {
        starting::first_start(fs, false).await;
    }
    tally::show();
}

#[tokio::test(flavor = "multi_thread")]
async fn first_start_and_last_stop_of_a_managed_pool() {
    needs_root!();
    starting::first_start(PoolFs::Directory, true).await;
    starting::last_stop().await;
    tally::show();
}

/// A step without a crash point, a call without a walk: this is where they show.
#[tokio::test(flavor = "multi_thread")]
async fn every_effect_has_a_point_and_every_call_a_walk() {
    needs_root!();
    let mut tour = Tour::on(PoolFs::Xfs).await;
    creating::all(&mut tour).await;
    copying::all(&mut tour).await;
    cutting::all(&mut tour).await;
    grouping::all(&mut tour).await;
    attaching::all(&mut tour).await;
    staging::first(&mut tour).await;
    staging::copies(&mut tour).await;
    staging::others(&mut tour).await;
    publishing::all(&mut tour).await;
    publishing::inline(&mut tour).await;
    growing::all(&mut tour).await;
    let looks = tour.look().await;
    let walked = tour.finish().await;
    let known: BTreeSet<_> = walked.union(&looks).map(ToString::to_string).collect();
    assert_eq!(known, tour::all_calls());
}

/// What only other pools do.
#[tokio::test(flavor = "multi_thread")]
async fn every_effect_on_other_pools_has_a_point() {
    needs_root!();
    for fs in [PoolFs::Btrfs, PoolFs::Directory] {
        let mut tour = Tour::on(fs).await;
        copying::all(&mut tour).await;
        cutting::all(&mut tour).await;
        tour.finish().await;
    }
}
