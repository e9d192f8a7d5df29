//! The image of a managed pool is removed, replaced or renamed under the daemon. All volumes are then in a
//! file that lasts as long as the loop device is on it.

use std::fs;
use std::path::{Path, PathBuf};

use orlop_sys::{loopdev, mounts, tool};
use orlop_tests::*;

use super::{complaint, flush, follow};

const VOLUME: u64 = 64 * MIB;
const DATA: u64 = 4 * MIB;

const CLEAN_RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/clean-run");

struct Fixture {
    pool: TestPool,
    daemon: Daemon,
    node: OnNode,
    device: PathBuf,
}

impl Fixture {
    /// A volume that was written, and is not in use.
    async fn new() -> Self {
        let pool = TestPool::new(PoolFs::Directory, 0);
        let launch = Launch::on(&pool).env("ORLOP_POOL_IMAGE_SIZE", "1GiB");
        let daemon = launch.start().await;
        let client = daemon.client();
        let volume = client.create("volume").size(VOLUME).fs("ext4").done().await;
        let node = client.on_node(&volume, mount("ext4"));
        node.up().await;
        Pattern::new(1).write(&node.data_path(), DATA);
        node.down().await;
        let device = loopdev::find(&pool.path.join("pool.xfs"), false).unwrap().unwrap().path();
        Self { pool, daemon, node, device }
    }

    fn image(&self) -> PathBuf {
        self.pool.path.join("pool.xfs")
    }

    fn mounted(&self) -> bool {
        mounts::mount_at(&self.pool.path.join("mnt")).unwrap().is_some()
    }

    /// Nothing new is stored in it, and what is there can be used.
    async fn check_served(&self) {
        let client = self.daemon.client();
        let complaint = complaint(&client).await;
        assert!(complaint.contains(self.device.to_str().unwrap()), "{complaint}");
        let create = client.create("another").size(VOLUME).block();
        expect_code(create.send().await, Code::Unavailable);
        expect_code(client.snapshot("s", &self.node.id).await, Code::Unavailable);
        expect_code(client.expand(&self.node.id, 2 * VOLUME).await, Code::Unavailable);
        assert_eq!(client.capacity().await.unwrap().available_capacity, 0);
        let condition = client.condition(&self.node.id).await.unwrap();
        let device = self.device.to_str().unwrap();
        assert!(condition.abnormal && condition.message.contains(device), "{condition:?}");
        self.node.up().await;
        Pattern::new(1).check(&self.node.data_path(), DATA);
        let log = self.daemon.log();
        let said = log.lines().filter(|line| line.contains("takes no new volumes"));
        assert_eq!(said.count(), 1, "{log}");
    }

    /// The doctor and a start say how the data is saved, and change nothing.
    fn check_refused(&self) {
        let before = self.daemon.devices_and_mounts();
        let ended = self.daemon.launch().run_to_end();
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        self.check_found();
        let device = self.device.display();
        assert!(ended.output.contains(&format!("dd if={device} ")), "{ended:?}");
        // Nor does --check promise what a start refuses.
        let checked = self.daemon.launch().run(&["serve", "--check"]);
        assert_ne!(checked.status.code(), Some(0), "{checked:?}");
        assert!(checked.stderr.contains(&format!("dd if={device} ")), "{checked:?}");
        assert!(!ended.output.contains("unmount it"), "{ended:?}");
        assert_eq!(self.daemon.devices_and_mounts(), before);
    }

    fn check_found(&self) {
        let doctor = self.daemon.launch().run(&["doctor", "--repair"]);
        assert_eq!(doctor.status.code(), Some(1), "{doctor:?}");
        let device = self.device.to_str().unwrap();
        assert!(
            doctor.stdout.contains("image-lost") && doctor.stdout.contains(device),
            "{doctor:?}"
        );
    }

    fn save(&self, to: &Path) {
        let (from, to) = (format!("if={}", self.device.display()), format!("of={}", to.display()));
        flush(&self.pool.path.join("mnt"));
        tool::run("dd", [&*from, &to, "bs=1M", "iflag=direct", "conv=sparse"]).unwrap();
    }

    fn let_go(&self) {
        mounts::ensure_unmounted(&self.pool.path.join("mnt")).unwrap();
        detach_by_hand(&self.device);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_pool_image_outlives_a_stop() {
    needs_root!();
    let mut fixture = Fixture::new().await;
    fs::remove_file(fixture.image()).unwrap();
    fixture.check_served().await;
    fixture.node.down().await;
    fixture.check_found();
    fixture.daemon.terminate();
    assert!(fixture.mounted(), "the only copy is gone");
    let log = fixture.daemon.log();
    let kept = |line: &str| line.contains("stays mounted and attached");
    assert!(log.lines().any(|line| kept(line) && line.contains("ERROR")), "{log}");
    fixture.check_refused();

    let saved = fixture.pool.path.join("pool.xfs.saved");
    fixture.save(&saved);
    fs::rename(&saved, fixture.image()).unwrap();
    // The device may still be newer than what was restored.
    fixture.check_refused();
    fixture.let_go();
    fixture.daemon.restart().await;
    fixture.node.up().await;
    Pattern::new(1).check(&fixture.node.data_path(), DATA);
    fixture.node.down().await;
    fixture.daemon.terminate();
    assert_eq!(fixture.daemon.leaks(), [""; 0]);
}

/// With volumes in use: what their workloads wrote last is in no file but in memory.
#[tokio::test(flavor = "multi_thread")]
async fn removed_pool_image_is_saved_word_for_word() {
    needs_root!();
    for is_header_gone in [false, true] {
        let mut fixture = Fixture::new().await;
        fixture.node.up().await;
        let client = fixture.daemon.client();
        let raw = client.create("raw").size(VOLUME).block().done().await;
        let raw = client.on_node(&raw, block());
        raw.up().await;
        Pattern::new(2).write(&raw.data_path(), DATA);
        fs::remove_file(fixture.image()).unwrap();
        let late = Pattern::new(3).bytes(0, 1 << 20);
        fs::write(fixture.node.target.join("late"), &late).unwrap();
        fixture.daemon.terminate();
        if is_header_gone {
            // As 'rm -rf --one-file-system' leaves the pool: the mount point is busy.
            let pool = fixture.pool.path.to_str().unwrap();
            let only_mnt = [
                "find",
                pool,
                "-xdev",
                "-depth",
                "-mindepth",
                "1",
                "-not",
                "-name",
                "mnt",
                "-delete",
            ];
            super::run("env", &only_mnt);
        }
        fixture.check_refused();
        if is_header_gone {
            let home = format!("ORLOP_TEST_HOME={}", fixture.pool.scratch().path().display());
            let cleaned = tool::run("env", [home.as_str(), CLEAN_RUN]).unwrap_err();
            let give_up = format!("'losetup --detach {}'", fixture.device.display());
            assert!(cleaned.to_string().contains(&give_up), "{cleaned}");
        }
        let advice = async || {
            let doctor = fixture.daemon.launch().run(&["doctor"]);
            doctor.stdout.lines().find(|line| line.starts_with("image-lost")).unwrap().to_owned()
        };
        follow(advice).await;
        fixture.daemon.restart().await;
        for node in [&fixture.node, &raw] {
            node.unpublish().await.unwrap();
            node.unstage().await.unwrap();
            node.up().await;
        }
        Pattern::new(1).check(&fixture.node.data_path(), DATA);
        Pattern::new(2).check(&raw.data_path(), DATA);
        let found = fs::read(fixture.node.target.join("late")).unwrap();
        assert!(found == late, "what was written last is lost");
        for node in [&fixture.node, &raw] {
            node.down().await;
        }
        fixture.daemon.terminate();
        assert_eq!(fixture.daemon.leaks(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_pool_image_keeps_its_workloads() {
    needs_root!();
    let mut fixture = Fixture::new().await;
    let copy = fixture.pool.path.join("copy");
    tool::run("cp", ["--sparse=always", fixture.image().to_str().unwrap(), copy.to_str().unwrap()])
        .unwrap();
    fs::rename(&copy, fixture.image()).unwrap();
    fixture.check_served().await;
    Pattern::new(2).write(&fixture.node.data_path(), DATA);
    fixture.daemon.kill9();
    fixture.check_refused();
    Pattern::new(2).check(&fixture.node.data_path(), DATA);
    // By hand, as no daemon serves it.
    for path in [&fixture.node.target, &fixture.node.staging] {
        mounts::ensure_unmounted(path).unwrap();
    }
    let data = fixture.pool.path.join("mnt/volumes").join(&fixture.node.id).join("data");
    let device = loopdev::find(&data, false).unwrap().unwrap();
    loopdev::ensure_detached(&device, &fixture.node.id).unwrap();
    fixture.let_go();
}

/// Nothing has to be copied then.
#[tokio::test(flavor = "multi_thread")]
async fn pool_image_that_is_moved_back_is_served_again() {
    needs_root!();
    let mut fixture = Fixture::new().await;
    let away = fixture.pool.path.join("away");
    fs::rename(fixture.image(), &away).unwrap();
    fixture.check_served().await;
    let complaint = complaint(&fixture.daemon.client()).await;
    assert!(complaint.contains(&format!("move {} back", away.display())), "{complaint}");
    fixture.daemon.kill9();
    fixture.check_refused();
    fs::rename(&away, fixture.image()).unwrap();
    fixture.daemon.restart().await;
    assert!(fixture.daemon.client().probe().await.unwrap());
    fixture.daemon.client().snapshot("s", &fixture.node.id).await.unwrap();
    fixture.node.down().await;
    fixture.daemon.terminate();
    assert_eq!(fixture.daemon.leaks(), [""; 0]);
}
