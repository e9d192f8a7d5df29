//! One filesystem for all drivers that are compared, new for each experiment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use orlop_sys::{file, filesystem};
use orlop_tests::{GIB, PoolFs, TestPool};

use crate::driver::{Driver, Files};
use crate::process::Process;

/// Sparse: more than all volumes of an experiment promise.
const SIZE: u64 = 320 * GIB;
/// Until all of a deleted GiB has been given back.
const DELETIONS: Duration = Duration::from_millis(10);

/// Whom Orlop is compared with.
#[derive(Debug, Clone)]
pub(crate) enum Drivers {
    /// The program of csi-driver-host-path.
    HostPath(PathBuf),
    /// The socket of a driver that the benchmark does not start, on whatever disk it uses.
    Running(PathBuf),
}

/// Drivers end before the filesystem below them goes.
pub(crate) struct Testbed {
    pub(crate) ours: Driver,
    pub(crate) peer: Driver,
    pool: TestPool,
}

impl Testbed {
    pub(crate) async fn new(drivers: &Drivers) -> Self {
        let pool = TestPool::new(PoolFs::Xfs, SIZE);
        let ours = Driver::started(orlop(&pool), pool.scratch()).await.called("Orlop");
        let ours = ours.keeping(Files {
            volume: |root, id| root.join("volumes").join(id).join("data"),
            snapshot: |root, id| root.join("snapshots").join(id).join("data"),
            root: pool.path.join("orlop"),
        });
        let peer = match drivers {
            Drivers::HostPath(program) => host_path(program, &pool).await,
            Drivers::Running(socket) => Driver::running(socket, pool.scratch()).await,
        };
        Self { ours, peer, pool }
    }

    /// A directory on the filesystem, for what is done without a driver.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let directory = self.pool.path.join(name);
        std::fs::create_dir_all(&directory).expect("make a directory");
        directory
    }

    /// Where Orlop keeps its volumes.
    pub(crate) fn volumes(&self) -> PathBuf {
        self.pool.path.join("orlop/volumes")
    }

    /// A path outside of the filesystem, whose parent is there.
    pub(crate) fn mount_point(&self, name: &str) -> PathBuf {
        self.pool.scratch().ensure_dir("bare").join(name)
    }

    /// No driver pays for what another one left to be written, or deleted: XFS gives
    /// extents back in the background, a little later, and a sync does not wait for that.
    pub(crate) fn settle(&self) {
        file::sync_filesystem(&self.pool.path).expect("sync the filesystem");
        std::thread::sleep(DELETIONS);
        file::sync_filesystem(&self.pool.path).expect("sync the filesystem");
    }

    /// Gives back to the disk what was deleted.
    pub(crate) fn trim(&self) {
        filesystem::trim(&self.pool.path).expect("trim the filesystem");
    }

    /// What the disk below can still take.
    pub(crate) fn room(&self) -> u64 {
        file::space(self.pool.scratch().path()).expect("look at the disk").free
    }
}

fn orlop(pool: &TestPool) -> Process {
    let this = std::env::current_exe().expect("the path of this program");
    let scratch = pool.scratch();
    let socket = scratch.join("orlop.sock");
    std::fs::create_dir_all(pool.path.join("orlop")).expect("make a directory");
    Process::new(&this.with_file_name("orlop"), &socket, scratch.join("orlop.log"))
        .arg("serve")
        .env("CSI_ENDPOINT", format!("unix://{}", socket.display()))
        .env("ORLOP_POOL", pool.path.join("orlop"))
        .env("ORLOP_RUN_DIR", scratch.join("run"))
        .env("ORLOP_NODE_ID", "bench-node")
        .env("ORLOP_LOG", "warn")
}

async fn host_path(program: &Path, pool: &TestPool) -> Driver {
    let scratch = pool.scratch();
    let (socket, state) = (scratch.join("peer.sock"), pool.path.join("host-path"));
    let process = Process::new(program, &socket, scratch.join("peer.log"))
        .arg(format!("--endpoint=unix://{}", socket.display()))
        .arg(format!("--statedir={}", state.display()))
        .arg("--nodeid=bench-node");
    Driver::started(process, scratch).await.called("host-path").keeping(Files {
        volume: |root, id| root.join(id),
        snapshot: |root, id| root.join(format!("{id}.snap")),
        root: state,
    })
}
