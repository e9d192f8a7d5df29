//! The daemon ends as by `kill -9` after every single effect of every operation. It is started
//! again, and then the call is repeated as an orchestrator would, or taken back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod scenarios;
mod walk;
mod world;

use orlop_tests::{PoolFs, needs_root, report};

use scenarios::{attaching, copying, creating, grouping, growing, publishing, staging};
use walk::Walk;

/// Each in a world of its own, so that they walk side by side.
macro_rules! walks {
    ($($name:ident: $scenarios:ident on $fs:ident;)+) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            needs_root!();
            let mut walk = Walk::on(PoolFs::$fs).await;
            $scenarios::all(&mut walk).await;
            report(&format!("{}: {}", stringify!($name), walk.finish().await));
        }
    )+};
}

walks! {
    creating_on_xfs: creating on Xfs;
    copying_on_xfs: copying on Xfs;
    grouping_on_xfs: grouping on Xfs;
    attaching_on_xfs: attaching on Xfs;
    staging_on_xfs: staging on Xfs;
    publishing_on_xfs: publishing on Xfs;
    growing_on_xfs: growing on Xfs;
    copying_on_btrfs: copying on Btrfs;
    grouping_on_btrfs: grouping on Btrfs;
    copying_on_a_plain_directory: copying on Directory;
}
