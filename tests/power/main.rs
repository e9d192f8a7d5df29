//! The power goes while many calls are under way. Everything that was answered is there when it is
//! back, byte for byte; what was under way happened or did not; nothing is left half-made.
//!
//! The pool's disk is a loop device that writes past the page cache into an image on an XFS. A
//! reflink of the image is a power cut: it holds what had reached the disk at one instant, and
//! nothing of what was still in the memory of the machine. Two kinds of cuts are made. At random
//! moments of a busy time, which finds what is visible too early. And right after an answer while
//! no other call runs, which finds what was answered too early: among many callers, the flush of
//! one makes the changes of all others durable as well, and would hide that one is missing.
//!
//! The disk has no cache that it could lose: that filesystems flush such a cache is
//! the kernel's business, not tested here.
//!
//! `ORLOP_TEST_POWER_CUTS` says how many cuts there are in all (200), `ORLOP_TEST_POWER_SEED`
//! repeats the choice of calls; their order is the machine's.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod caller;
mod copies;
mod expected_state;
mod grown;
mod history;
mod round;
mod verdict;
mod volumes;

use orlop_tests::{needs_root, random_seed, report, variable};

use caller::Step;
use round::{Figures, PoolKind};

const CUTS: u64 = 200;
const POOL_KINDS: u64 = 4;
/// Bounds the space that copies take before they are checked.
const CUTS_OF_A_ROUND: u64 = 50;

async fn cut_power(kind: PoolKind) {
    let wanted = variable("ORLOP_TEST_POWER_CUTS").unwrap_or(CUTS).div_ceil(POOL_KINDS);
    let seed = variable("ORLOP_TEST_POWER_SEED").unwrap_or_else(random_seed);
    report(&format!("power cuts on {kind:?}: {wanted}, seed {seed}"));
    let mut figures = Figures::default();
    while figures.cuts() < wanted {
        let cuts = CUTS_OF_A_ROUND.min(wanted - figures.cuts());
        round::round(kind, cuts, seed.wrapping_add(figures.cuts()), &mut figures).await;
        report(&format!("power cuts on {kind:?}: {figures}"));
    }
    let missed: Vec<_> =
        Step::ALL.iter().filter(|step| !figures.steps.contains_key(step)).collect();
    // A few cuts by hand need not have everything.
    assert!(missed.is_empty() || wanted < CUTS / POOL_KINDS, "never tried: {missed:?}");
}

/// Side by side.
macro_rules! power_cut_tests {
    ($($name:ident: $kind:ident;)+) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            needs_root!();
            cut_power(PoolKind::$kind).await;
        }
    )+};
}

power_cut_tests! {
    on_xfs: Xfs;
    on_btrfs: Btrfs;
    on_ext4: Ext4;
    on_a_managed_pool: Managed;
}
