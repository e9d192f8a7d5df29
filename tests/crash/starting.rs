//! The first start, in which a pool is made, and the last stop, in which a managed one is put away.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use orlop_tests::{Daemon, GIB, Launch, LvmSize, MIB, Pattern, PoolFs, TestLvm, TestPool, block};
use rustix::process::Signal;

use crate::fixture::CrashControl;
use crate::pool::in_memory;
use crate::tally::{self, TalliedOperation};

const DATA: Pattern = Pattern::new(8);

/// Directories for one pool after the other.
struct Site {
    pool: TestPool,
    crash_control: CrashControl,
    managed: bool,
}

impl Site {
    fn new(fs: PoolFs, managed: bool) -> Self {
        let pool = TestPool::in_memory(fs, 16 << 30);
        let crash_control = CrashControl::new(pool.memory().join("crash"));
        Self { pool, crash_control, managed }
    }

    fn root(&self, number: usize) -> PathBuf {
        self.pool.path.join(format!("new-{number}"))
    }

    /// On a pool that is not there yet.
    fn launch(&self, number: usize) -> Launch {
        let launch =
            self.crash_control.configure(in_memory(Launch::on(&self.pool), &self.pool.memory()));
        let launch = launch
            .env("ORLOP_POOL", self.root(number))
            .env("ORLOP_RUN_DIR", self.pool.memory().join(format!("run-{number}")));
        if self.managed { launch.env("ORLOP_POOL_IMAGE_SIZE", "1GiB") } else { launch }
    }
}

/// It ends after each of its effects; then there is a pool, or there is going to be one.
pub(crate) async fn first_start_of_a_pool(fs: PoolFs, managed: bool) {
    let operations =
        TalliedOperation::begin(if managed { "first-start-managed" } else { "first-start" });
    let site = Site::new(fs, managed);
    let mut number = 0;
    loop {
        let (mut daemon, ended) =
            second_start(&site.crash_control, site.launch(number), number).await;
        assert_usable(&daemon).await;
        assert_private(&site.root(number));
        daemon.terminate();
        let beside = fs::read_dir(&site.pool.path).expect("list").flatten();
        let hidden = beside.filter(|entry| entry.file_name().to_string_lossy().starts_with('.'));
        assert_eq!(hidden.count(), 0, "something is left beside the pool");
        if !ended {
            break;
        }
        number += 1;
    }
    assert!(number > 10, "a pool is made in {number} effects");
    drop(operations);
}

/// A daemon that serves, after one that has ended after so many effects. `false`: it has fewer.
async fn second_start(
    crash_control: &CrashControl,
    launch: Launch,
    effects: usize,
) -> (Daemon, bool) {
    let mut daemon = launch.idle();
    crash_control.end_after(effects);
    let ended = daemon.try_restart().await.is_some();
    if ended {
        tally::ended_at(&crash_control.take_crash_place().expect("an end that was asked for"));
        assert_eq!(daemon.try_restart().await, None, "no start after {effects} effects");
    }
    crash_control.disarm();
    (daemon, ended)
}

/// As [`first_start_of_a_pool`], in a volume group: the thin pool is made, or is there and becomes a pool.
pub(crate) async fn first_start_in_a_volume_group(has_thin_pool: bool) {
    let name = if has_thin_pool { "first-start-thin-pool" } else { "first-start-volume-group" };
    let operations = TalliedOperation::begin(name);
    let group = TestLvm::in_memory(LvmSize { thin: GIB, free: 4 * GIB });
    let crash_control = CrashControl::new(group.memory().join("crash"));
    let step = if crate::sample().is_some() { 5 } else { 1 };
    let mut number = 0;
    loop {
        let thin_pool = format!("made-{number}");
        if has_thin_pool {
            let make = ["lvcreate", "--type", "thin-pool", "--size", "256m", "--name", &thin_pool];
            group.lvm(&[&make[..], &[&group.group]].concat());
        }
        let launch = crash_control.configure(in_memory(group.launch(), &group.memory()));
        let launch = launch
            .env("ORLOP_LVM_THIN_POOL", &thin_pool)
            .env("ORLOP_LVM_SIZE", "256MiB")
            .env("ORLOP_RUN_DIR", group.memory().join(format!("run-{number}")));
        let (mut daemon, ended) = second_start(&crash_control, launch, number).await;
        assert_usable(&daemon).await;
        daemon.terminate();
        group.lvm(&["lvremove", &format!("{}/{thin_pool}", group.group)]);
        if !ended {
            break;
        }
        number += step;
    }
    let least = if has_thin_pool { 2 } else { 4 };
    assert!(number >= least, "a pool is made in {number} effects");
    drop(operations);
}

async fn assert_usable(daemon: &Daemon) {
    let client = daemon.client();
    let volume = client.create("volume").size(32 * MIB).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    DATA.write(&node.target, MIB);
    DATA.check(&node.target, MIB);
    node.down().await;
    client.delete(&volume.volume_id).await.expect("delete");
}

fn assert_private(root: &Path) {
    let mode = fs::metadata(root).expect("the pool's directory").mode();
    assert_eq!(mode & 0o777, 0o700, "others may look into {}", root.display());
}

/// It ends after each of its effects; a volume is there again after the next start.
pub(crate) async fn last_stop() {
    let operations = TalliedOperation::begin("stop-managed");
    let site = Site::new(PoolFs::Directory, true);
    let mut daemon = site.launch(0).start().await;
    let client = daemon.client();
    let volume = client.create("volume").size(32 * MIB).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    DATA.write(&node.target, MIB);
    node.down().await;
    let mut effects = 0;
    loop {
        site.crash_control.end_after(effects);
        daemon.signal(Signal::TERM);
        daemon.wait_for_end();
        let ended = site.crash_control.take_crash_place();
        site.crash_control.disarm();
        daemon.restart().await;
        node.up().await;
        DATA.check(&node.target, MIB);
        node.down().await;
        let Some(place) = ended else { break };
        tally::ended_at(&place);
        effects += 1;
    }
    assert!(effects > 0, "a managed pool is put away without any effect");
    client.delete(&volume.volume_id).await.expect("delete");
    daemon.terminate();
    drop(operations);
}
