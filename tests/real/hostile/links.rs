//! Links swapped in under the daemon's hands: a workload that can write to the directory of its
//! target must not choose what is mounted over.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use orlop_sys::mounts::all_mounts;
use orlop_tests::*;

const ROUNDS: usize = 30;

/// Lets a path be, in quick succession, nothing, a link to a victim, and a directory.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Swapper {
    fn start(path: &Path, victim: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (end, path, victim) = (Arc::clone(&stop), path.to_owned(), victim.to_owned());
        let thread = std::thread::spawn(move || {
            let mut linked = 0;
            while !end.load(Ordering::Acquire) {
                // Each may fail: the daemon works at the same path.
                if symlink(&victim, &path).is_ok() {
                    linked += 1;
                    let _ = std::fs::remove_file(&path);
                }
                if std::fs::create_dir(&path).is_ok() {
                    let _ = std::fs::remove_dir(&path);
                }
            }
            linked
        });
        Self { stop, thread: Some(thread) }
    }

    /// How often a link was there.
    fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

struct Victim(PathBuf);

impl Victim {
    fn new(pool: &TestPool) -> Self {
        let path = pool.scratch().ensure_dir("victim");
        std::fs::write(path.join("precious"), "untouched").unwrap();
        Self(path)
    }

    fn check(&self) {
        let mounted = all_mounts().unwrap().into_iter().any(|entry| entry.mount_point == self.0);
        assert!(!mounted, "a volume is mounted over the victim");
        assert_eq!(std::fs::read_to_string(self.0.join("precious")).unwrap(), "untouched");
        assert_eq!(std::fs::read_dir(&self.0).unwrap().count(), 1);
    }
}

/// What the swapper left: a link or an empty directory.
fn tidy(path: &Path) {
    let _ = std::fs::remove_file(path);
    let _ = std::fs::remove_dir(path);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_at_the_target_is_never_followed() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    node.stage().await.unwrap();
    let victim = Victim::new(&pool);

    // At rest first.
    symlink(&victim.0, &node.target).unwrap();
    assert!(node.publish().await.is_err());
    victim.check();
    tidy(&node.target);

    let swapper = Swapper::start(&node.target, &victim.0);
    let mut published = 0;
    for _ in 0..ROUNDS {
        published += u32::from(node.publish().await.is_ok());
        victim.check();
        let _ = node.unpublish().await;
        victim.check();
    }
    let linked = swapper.stop();
    report(&format!("links swapped in {linked} times, published {published} times of {ROUNDS}"));
    tidy(&node.target);
    node.unpublish().await.unwrap();
    victim.check();
    node.unstage().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_at_the_staging_path_is_never_followed() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    let victim = Victim::new(&pool);
    std::fs::remove_dir(&node.staging).unwrap();

    let swapper = Swapper::start(&node.staging, &victim.0);
    for _ in 0..ROUNDS {
        let _ = node.stage().await;
        victim.check();
        let _ = node.unstage().await;
        victim.check();
    }
    let linked = swapper.stop();
    report(&format!("links swapped in {linked} times while staging"));
    tidy(&node.staging);
    node.unstage().await.unwrap();
    tidy(&node.staging);
    victim.check();
}
