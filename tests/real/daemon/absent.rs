//! One of several pools is on a disk that is missing or broken when the daemon starts: it is waited
//! for, and stops nothing but itself.

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use orlop_sys::tool;
use orlop_tests::*;

/// Far more than anything here takes; reached only by what never happens.
const TIMEOUT: Duration = Duration::from_secs(120);
const VOLUME: u64 = 32 * MIB;
const NO_NEW_POOL: &str = "create = false";

fn on_pool(client: &Client, name: &str, pool: &str) -> Create {
    client.create(name).size(VOLUME).block().parameter("pool", pool)
}

async fn capacity_of(client: &Client, pool: &str) -> i64 {
    let request = v1::GetCapacityRequest {
        parameters: [("pool".to_owned(), pool.to_owned())].into(),
        ..v1::GetCapacityRequest::default()
    };
    client.capacity_for(request).await.unwrap().available_capacity
}

async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds().await {
        assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Lists are whole, so they are an error as long as a pool is missing.
pub(super) async fn until_all_are_served(client: &Client) {
    until("all are served", || async { client.list_volumes().await.is_ok() }).await;
    assert!(client.probe().await.unwrap());
}

/// Started, with what can be reached in service. A daemon that ended instead fails the test.
pub(super) async fn start_without(daemon: &mut Daemon, client: &Client) {
    daemon.start_again();
    until("the other pool is served", || async {
        client.capacity().await.is_ok_and(|answer| answer.available_capacity > 0)
    })
    .await;
}

fn remount(pool: &TestPool, how: &str) {
    let options = format!("remount,{how}");
    tool::run("mount", ["-o", options.as_str(), pool.path.to_str().unwrap()]).unwrap();
}

/// A daemon on the pools `there` and `disk`, with a volume on each, stopped again.
async fn stopped_on(there: &TestPool, disk: &TestPool) -> (Daemon, v1::Volume) {
    let pools = [("there", there, ""), ("disk", disk, NO_NEW_POOL)];
    let first = [("there", there, ""), ("disk", disk, "")];
    let mut daemon = Launch::on_several(&first).start().await;
    let client = daemon.client();
    on_pool(&client, "here", "there").done().await;
    let volume = on_pool(&client, "there", "disk").done().await;
    daemon.terminate();
    drop(daemon);
    (Launch::on_several(&pools).idle(), volume)
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_disk_is_waited_for_while_others_are_served() {
    needs_root!();
    let there = TestPool::new(PoolFs::Directory, 0);
    let disk = there.beside("disk", PoolFs::Xfs, GIB);
    let (mut daemon, volume) = stopped_on(&there, &disk).await;
    let client = daemon.client();
    disk.unplug();

    start_without(&mut daemon, &client).await;
    // Sidecars wait for it, and liveness probes restart what is not ready.
    assert!(client.probe().await.unwrap(), "one missing disk holds up the other pool");
    let another = on_pool(&client, "another", "there").done().await;
    let copy = client.create("copy").size(VOLUME).block().from_volume(&another.volume_id);
    let copy = copy.done().await;
    for made in [&another, &copy] {
        client.delete(&made.volume_id).await.unwrap();
    }
    // What is missing from a list is taken for gone, and the name may be taken on the disk.
    expect_code(client.list_volumes().await, Code::Unavailable);
    let unnamed = client.create("there").size(VOLUME).block().send().await;
    expect_code(unnamed, Code::Unavailable);
    let absent = expect_code(client.delete(&volume.volume_id).await, Code::Unavailable);
    assert!(absent.message().contains("pool disk"), "{absent}");
    expect_code(on_pool(&client, "new", "disk").send().await, Code::Unavailable);
    assert_eq!(capacity_of(&client, "disk").await, 0);
    assert!(capacity_of(&client, "there").await > 0);
    assert!(daemon.has_logged("mount its filesystem"), "the log does not say why");
    assert_eq!(std::fs::read_dir(&disk.path).unwrap().count(), 0, "made on the disk below");

    assert_eq!(daemon.log().matches("ready, but a pool").count(), 1, "logged once");

    disk.power_on();
    until_all_are_served(&client).await;
    assert!(daemon.has_logged("all pools respond again"));
    assert_eq!(client.list_volumes().await.unwrap().len(), 2);
    assert!(capacity_of(&client, "disk").await > 0);
    let node = client.on_node(&volume, block());
    node.up().await;
    // Its devices are known to belong to this run directory: a successor takes none away.
    daemon.restart().await;
    Pattern::new(1).write(&node.target, MIB);
    node.down().await;
    client.delete(&volume.volume_id).await.unwrap();
}

/// A device that a killed predecessor attached for nothing is released, and the image is given back
/// at the end, as with a pool that was there from the start.
#[tokio::test(flavor = "multi_thread")]
async fn managed_pool_opened_late_is_closed_at_stop() {
    needs_root!();
    const MANAGED: &str = "image_size = \"400MiB\"";
    let there = TestPool::new(PoolFs::Directory, 0);
    let disk = there.beside("disk", PoolFs::Directory, 2 * GIB);
    let pools = [("there", &there, ""), ("disk", &disk, MANAGED)];
    let mut daemon = Launch::on_several(&pools).start().await;
    let client = daemon.client();
    on_pool(&client, "there", "disk").done().await;
    daemon.terminate();
    remount(&disk, "ro");

    start_without(&mut daemon, &client).await;
    assert_eq!(capacity_of(&client, "disk").await, 0);
    remount(&disk, "rw");
    until_all_are_served(&client).await;
    assert_eq!(client.list_volumes().await.unwrap().len(), 1);
    daemon.terminate();
    assert_eq!(daemon.leaks(), [""; 0], "the pool was not closed");
}

/// It can be read, so what is on it can be listed and let go; only nothing can be made there.
#[tokio::test(flavor = "multi_thread")]
async fn read_only_disk_is_exhausted_not_internal() {
    needs_root!();
    let there = TestPool::new(PoolFs::Directory, 0);
    let disk = there.beside("disk", PoolFs::Xfs, GIB);
    let (mut daemon, volume) = stopped_on(&there, &disk).await;
    let client = daemon.client();
    remount(&disk, "ro");
    daemon.start_again();
    // Read-only from the start, and once more later.
    for _ in 0..2 {
        until("listed", || async { client.list_volumes().await.is_ok_and(|all| all.len() == 2) })
            .await;
        assert!(client.probe().await.unwrap(), "one read-only disk fails the other pool");
        let reason = condition_of(&client, &volume.volume_id).await;
        assert!(reason.abnormal && reason.message.contains("read-only"), "{reason:?}");
        assert!(daemon.has_logged("cannot write to pool disk"), "the log does not name the pool");
        assert_eq!(capacity_of(&client, "disk").await, 0);
        assert!(client.capacity().await.unwrap().available_capacity > 0);
        expect_code(client.delete(&volume.volume_id).await, Code::Unavailable);
        expect_code(on_pool(&client, "new", "disk").send().await, Code::Unavailable);
        // Another pool will do.
        let elsewhere = client.create("anywhere").size(VOLUME).block().done().await;
        client.delete(&elsewhere.volume_id).await.unwrap();
        remount(&disk, "rw");
        assert!(!condition_of(&client, &volume.volume_id).await.abnormal);
        remount(&disk, "ro");
    }
    remount(&disk, "rw");
    client.delete(&volume.volume_id).await.unwrap();
}

/// The daemon alone has this fstab: it runs in a separate mount namespace.
#[tokio::test(flavor = "multi_thread")]
async fn no_pool_is_created_below_a_missing_fstab_mount() {
    needs_root!();
    let there = TestPool::new(PoolFs::Directory, 0);
    let disk = there.beside("disk", PoolFs::Xfs, 0);
    let fstab = there.scratch().join("fstab");
    let line = format!("LABEL=nowhere {} xfs nofail 0 2\n", disk.path.display());
    std::fs::write(&fstab, line).unwrap();
    let bind = format!("mount --bind {} /etc/fstab && exec \"$0\" \"$@\"", fstab.display());
    let words = ["/bin/sh", "-c", bind.as_str()];
    let pools = [("there", &there, ""), ("disk", &disk, "")];
    let mut daemon = Launch::on_several(&pools).run_by(&words).with_own_mounts().idle();
    let client = daemon.client();
    start_without(&mut daemon, &client).await;
    expect_code(on_pool(&client, "new", "disk").send().await, Code::Unavailable);
    assert!(daemon.has_logged("/etc/fstab"), "the log does not say why");
    assert!(is_empty(&disk.path), "a pool was made on the disk below");
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

/// A monitor that takes connections and never answers: each attempt to open the Ceph pool takes as long as
/// it may.
struct SilentMonitor {
    listener: TcpListener,
}

impl SilentMonitor {
    fn new() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").unwrap() }
    }

    /// TOML of a pool on its cluster.
    fn pool(&self, scratch: &Scratch) -> String {
        let keyring = scratch.join("keyring");
        let key = "[client.orlop]\n\tkey = AQBSdFhcGZFUDRAAcKhG9Cl2HPiDMMRv4DC43A==\n";
        std::fs::write(&keyring, key).unwrap();
        format!(
            "[[pool]]\nname = \"ceph\"\nkind = \"rbd\"\nmonitors = \"v2:{}\"\nkeyring = \"{}\"\n",
            self.listener.local_addr().unwrap(),
            keyring.display()
        )
    }
}

/// Neither is it served later because another absent pool is tried as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_served_when_the_log_says_so() {
    needs_root!();
    /// An attempt to reach the cluster takes several times as long.
    const AT_ONCE: Duration = Duration::from_secs(2);
    let monitor = SilentMonitor::new();
    let there = TestPool::new(PoolFs::Directory, 0);
    let disk = there.beside("disk", PoolFs::Xfs, GIB);
    let (daemon, _) = stopped_on(&there, &disk).await;
    drop(daemon);
    // The one that takes long stands between the others, to be tried before and after them.
    let ceph = format!("{NO_NEW_POOL}\n{}", monitor.pool(there.scratch()));
    let pools = [("disk", &disk, ceph.as_str()), ("there", &there, "")];
    let mut daemon = Launch::on_several(&pools).idle();
    let client = daemon.client();
    disk.unplug();
    daemon.start_again();
    until("started", || async { daemon.log().contains("absent=2") }).await;
    disk.power_on();
    until("in service", || async { daemon.log().contains("in service") }).await;
    let logged = Instant::now();
    until("served", || async { capacity_of(&client, "disk").await > 0 }).await;
    assert!(logged.elapsed() < AT_ONCE, "served {:?} after it was logged", logged.elapsed());
}

/// It is found only when the disk comes, and must not be waited for in silence. The pool that is well
/// does not suffer from it; without one, Probe fails.
#[tokio::test(flavor = "multi_thread")]
async fn late_configuration_error_is_logged_and_fails_probe() {
    needs_root!();
    let there = TestPool::new(PoolFs::Directory, 0);
    let disk = there.beside("disk", PoolFs::Xfs, GIB);
    let (mut daemon, _) = stopped_on(&there, &disk).await;
    let client = daemon.client();
    std::fs::write(disk.path.join("orlop.pool"), r#"{"format": 999}"#).unwrap();
    disk.unplug();
    start_without(&mut daemon, &client).await;
    disk.power_on();
    until("logged", || async { daemon.log().contains("retrying does not help") }).await;
    assert!(client.probe().await.unwrap());
    let log = daemon.log();
    let failure = log.lines().find(|line| line.contains("ready, but a pool has failed"));
    assert!(failure.is_some_and(|line| line.contains("format 999")), "{log}");

    let elsewhere = there.scratch().join("elsewhere");
    std::fs::rename(&there.path, &elsewhere).unwrap();
    assert_eq!(client.failed_probe().await.code(), Code::FailedPrecondition);
    std::fs::rename(&elsewhere, &there.path).unwrap();
    assert!(client.probe().await.unwrap());
    // From the start it ends the start.
    daemon.terminate();
    let ended = daemon.launch().run_to_end();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.output);
}

/// Nothing is served, and a restart would not change that.
#[tokio::test(flavor = "multi_thread")]
async fn probe_is_not_ready_without_a_pool() {
    needs_root!();
    let there = TestPool::new(PoolFs::Xfs, GIB);
    let disk = there.beside("disk", PoolFs::Xfs, GIB);
    let (daemon, _) = stopped_on(&there, &disk).await;
    drop(daemon);
    let pools = [("there", &there, NO_NEW_POOL), ("disk", &disk, NO_NEW_POOL)];
    let mut daemon = Launch::on_several(&pools).idle();
    let client = daemon.client();
    there.unplug();
    disk.unplug();
    daemon.start_again();
    until("read", || async { daemon.log().contains("absent=2") }).await;
    assert!(!client.probe().await.unwrap());
    disk.power_on();
    until("ready", || async { client.probe().await.unwrap() }).await;
    expect_code(client.list_volumes().await, Code::Unavailable);
    there.power_on();
    until_all_are_served(&client).await;
}

/// At a restart within one boot: the run directory remembers what was served, and fstab need not.
#[tokio::test(flavor = "multi_thread")]
async fn pool_served_in_this_boot_is_not_replaced_by_a_new_one() {
    needs_root!();
    let there = TestPool::new(PoolFs::Directory, 0);
    let disk = there.beside("disk", PoolFs::Xfs, GIB);
    let pools = [("there", &there, ""), ("disk", &disk, "")];
    let mut daemon = Launch::on_several(&pools).start().await;
    let client = daemon.client();
    let volume = on_pool(&client, "v", "disk").done().await;
    daemon.kill9();
    disk.unplug();

    let settings = there.scratch().join("orlop.toml");
    let settings = settings.to_str().unwrap();
    let served_before = "was served under this name or at this path since this machine started";
    for words in
        [&["serve", "--check", "--config", settings][..], &["doctor", "--config", settings]]
    {
        let ran = daemon.launch().run(words);
        assert!(ran.stdout.contains(served_before), "{words:?}: {}{}", ran.stdout, ran.stderr);
    }
    let listed = daemon.launch().run(&["pool", "list", "--config", settings]);
    assert_eq!(listed.status.code(), Some(2), "{}", listed.stderr);
    assert!(listed.stdout.contains("absent: pool "), "{}", listed.stdout);
    assert!(!listed.stdout.contains("no pool yet"), "{}", listed.stdout);
    start_without(&mut daemon, &client).await;
    expect_code(on_pool(&client, "v", "disk").send().await, Code::Unavailable);
    expect_code(client.create("v").size(VOLUME).block().send().await, Code::Unavailable);
    assert!(daemon.has_logged(served_before), "the log does not say why");
    assert!(is_empty(&disk.path), "a pool was made on the disk below");

    disk.power_on();
    until_all_are_served(&client).await;
    assert_eq!(on_pool(&client, "v", "disk").done().await.volume_id, volume.volume_id);

    // A new pool is really meant.
    daemon.terminate();
    disk.unplug();
    let id = volume.volume_id.split('-').nth(1).unwrap();
    let marker = there.scratch().join("run/csi.orlop.io/pools").join(id);
    let ran = daemon.launch().run(&["serve", "--check", "--config", settings]);
    assert!(ran.stdout.contains(marker.to_str().unwrap()), "{}", ran.stdout);
    std::fs::remove_file(marker).unwrap();
    daemon.restart().await;
    assert_ne!(on_pool(&client, "v", "disk").done().await.volume_id, volume.volume_id);
    daemon.terminate();
}

async fn condition_of(client: &Client, id: &str) -> v1::VolumeCondition {
    client.get_volume(id).await.unwrap().status.unwrap().volume_condition.unwrap()
}

/// Lists are whole, so there is none now. The client needs none for a whole id.
#[tokio::test(flavor = "multi_thread")]
async fn client_uses_volumes_of_other_pools_by_id() {
    needs_root!();
    let there = TestPool::new(PoolFs::Directory, 0);
    let disk = there.beside("disk", PoolFs::Directory, 0);
    let pools = [("there", &there, ""), ("disk", &disk, "")];
    let mut daemon = Launch::on_several(&pools).start().await;
    let client = daemon.client();
    let id = on_pool(&client, "v", "there").done().await.volume_id;
    daemon.terminate();
    let aside = there.scratch().join("aside");
    std::fs::rename(&disk.path, &aside).unwrap();
    start_without(&mut daemon, &client).await;
    let launch = daemon.launch().clone();
    let device = there.scratch().join("device");
    let device = device.to_str().unwrap();
    let unknown = launch.run(&["volume", "mount", "v", device, "--block"]);
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    for words in [
        &["volume", "mount", &id, device, "--block"][..],
        &["volume", "unmount", device],
        &["volume", "delete", &id, "--yes"],
    ] {
        let ran = launch.run(words);
        assert!(ran.status.success(), "{words:?}: {ran:?}");
    }
    assert!(there.entries("volumes").is_empty());
    std::fs::rename(&aside, &disk.path).unwrap();
    until_all_are_served(&client).await;
}
