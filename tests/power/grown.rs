//! A managed pool in use grows at each start, and each time the power goes right after it.

use orlop_sys::filesystem::{FsKind, growth_is_written};
use orlop_sys::loopdev;
use orlop_tests::{GIB, Launch, MIB, Pattern, PoolFs, TestPool, block, needs_root};

const FIRST: u64 = 2 * GIB;
/// Less than an allocation group of XFS: growth upon growth of one and the same.
const GROWTH: u64 = 16 * MIB;
const STARTS: u64 = 5;
const DATA: Pattern = Pattern::new(5);

fn launch(disk: &TestPool, size: u64) -> Launch {
    let size = format!("{}MiB", size / MIB);
    Launch::on(disk).env("ORLOP_POOL_IMAGE_SIZE", size)
}

/// Whether a log with growth in it can be replayed depends on what else is in it, so a cut alone may
/// find nothing wrong.
fn assert_written(disk: &TestPool) {
    let device = loopdev::find(&disk.path.join("pool.xfs"), false).expect("look for the image");
    let device = device.expect("the image is attached").path();
    let written = growth_is_written(&disk.path.join("mnt"), &device, FsKind::Xfs);
    assert!(written.expect("look at the image"), "the growth is only in the log");
}

#[tokio::test(flavor = "multi_thread")]
async fn managed_pool_that_has_just_grown() {
    needs_root!();
    let outer_pool = TestPool::new(PoolFs::Xfs, 64 * GIB);
    let disk = TestPool::within(&outer_pool, PoolFs::Directory, 16 * GIB);
    let mut daemons = vec![launch(&disk, FIRST).start().await];
    let client = daemons[0].client();
    let volume = client.create("volume").size(32 * MIB).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    DATA.write(&node.target, MIB);
    let mut cuts = Vec::new();
    for start in 1..=STARTS {
        // The volume is in use, so the image stays mounted and its log as it is.
        daemons.last_mut().expect("a daemon").kill9();
        let size = FIRST + start * GROWTH;
        daemons.push(launch(&disk, size).start().await);
        cuts.push((disk.cut(), size));
        assert_written(&disk);
    }
    node.down().await;
    daemons.last_mut().expect("a daemon").terminate();
    drop(daemons);
    drop(disk);
    for (cut, size) in cuts {
        cut.power_on();
        let daemon = launch(&cut, size).env("ORLOP_POOL_CREATE", "false").start().await;
        let node = daemon.client().on_node(&volume, block());
        node.up().await;
        DATA.check(&node.target, MIB);
        node.down().await;
    }
}
