//! I/O limits slow a real workload by as much as was asked for, and no other process.

mod kernel_limits;
mod made_again;
mod rates;

use orlop_tests::*;

async fn daemon_for(pool: &TestPool, group: &Cgroup) -> Daemon {
    Launch::on(pool).env("ORLOP_WORKLOAD_CGROUP", &group.name).start().await
}
