//! I/O limits slow a real workload by as much as was asked for, and nobody else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod kept;
mod rates;

use orlop_tests::*;

async fn daemon_for(pool: &TestPool, group: &Cgroup) -> Daemon {
    Launch::on(pool).env("ORLOP_WORKLOAD_CGROUP", &group.name).start().await
}
