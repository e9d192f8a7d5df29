//! A good plugin that is real: the daemon on a small XFS pool.

use std::path::Path;
use std::sync::Arc;

use csi_conformance::options::{Hooks, Options};
use orlop_tests::{Daemon, Launch, PoolFs, TestPool};

use crate::memory::pair;

const POOL_BYTES: u64 = 64 << 30;

pub(crate) struct RealPlugin {
    daemon: Daemon,
    pool: TestPool,
    socket: std::path::PathBuf,
    log: std::path::PathBuf,
}

impl RealPlugin {
    pub(crate) async fn start() -> Self {
        let pool = TestPool::new(PoolFs::Xfs, POOL_BYTES);
        let launch = Launch::on(&pool).env("ORLOP_MAX_VOLUMES_PER_NODE", "64");
        let (socket, log) = (launch.socket(), launch.log_path());
        Self { daemon: launch.start().await, pool, socket, log }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn options(&self, socket: &Path) -> Options {
        let mut options = Options::new(socket.to_owned());
        let scratch = self.pool.scratch();
        options.staging_dir = scratch.join("staging");
        options.target_dir = scratch.join("targets");
        options.mutable_parameters = pair("readIops", "1000");
        options.changed_parameters = pair("readIops", "2000");
        let log = self.log.clone();
        let read = move || std::fs::read_to_string(&log).map_err(|error| error.to_string());
        options.hooks = Hooks { logs: Some(Arc::new(read)), ..self.outage() };
        options
    }

    /// Another filesystem covers the pool, as when its disk was not mounted.
    fn outage(&self) -> Hooks {
        let (covered, bared) = (self.pool.path.clone(), self.pool.path.clone());
        let cover = move || TestPool::cover(&covered);
        let bare = move || TestPool::uncover(&bared);
        Hooks { breaks: Some(Arc::new(cover)), mends: Some(Arc::new(bare)), ..Hooks::default() }
    }

    pub(crate) fn stop(mut self) {
        self.daemon.terminate();
    }
}
