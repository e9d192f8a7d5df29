//! Links swapped in under the daemon's hands: a workload that can write to the directory of its
//! target must not choose what is mounted over.

use std::fmt::{self, Display, Formatter};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use orlop_sys::mounts::{all_mounts, ensure_unmounted};
use orlop_tests::*;

const ROUNDS: usize = 30;
/// Reached only if the daemon or the swapper never gets its turn.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Without a rest. After that there is one of 1 ms, next time of 2 ms, and so on up to half a second,
/// then of 1 ms again: however slow it is, the daemon comes through now and then.
const SWAPS: usize = 300;
const LONGEST_REST: u32 = 10;

/// Changes in quick succession what a path is.
struct Swapper {
    stop: Arc<AtomicBool>,
    linked: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Swapper {
    /// Nothing, a link to a victim, and a directory, which it stays while there is a rest.
    fn start(path: &Path, victim: &Path) -> Self {
        let (path, victim) = (path.to_owned(), victim.to_owned());
        Self::repeating(move || {
            // Each may fail: the daemon works at the same path.
            let _ = std::fs::remove_dir(&path);
            let linked = symlink(&victim, &path).is_ok();
            if linked {
                let _ = std::fs::remove_file(&path);
            }
            let _ = std::fs::create_dir(&path);
            linked
        })
    }

    /// A link that leads here, then there, and never nowhere.
    fn between(path: &Path, places: [PathBuf; 2]) -> Self {
        let (path, next) = (path.to_owned(), path.with_extension("next"));
        symlink(&places[0], &path).unwrap();
        Self::repeating(move || {
            for place in &places {
                symlink(place, &next).unwrap();
                std::fs::rename(&next, &path).unwrap();
            }
            true
        })
    }

    fn repeating(step: impl Fn() -> bool + Send + 'static) -> Self {
        let (stop, linked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (end, count) = (Arc::clone(&stop), Arc::clone(&linked));
        let thread = std::thread::spawn(move || {
            for rest in (0..LONGEST_REST).cycle() {
                if end.load(Ordering::Acquire) {
                    return;
                }
                let linked = (0..SWAPS).filter(|_| step()).count();
                count.fetch_add(linked, Ordering::AcqRel);
                std::thread::sleep(Duration::from_millis(1 << rest));
            }
        });
        Self { stop, linked, thread: Some(thread) }
    }

    /// How often a link was there.
    fn linked(&self) -> usize {
        self.linked.load(Ordering::Acquire)
    }

    fn stop(mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

/// Until both have had their turns: the swapper, and the daemon.
struct Rounds<'a> {
    swapper: &'a Swapper,
    linked_before: usize,
    done: usize,
    /// In which the daemon came through.
    won: usize,
    deadline: Instant,
}

impl<'a> Rounds<'a> {
    fn begin(swapper: &'a Swapper) -> Self {
        let deadline = Instant::now() + TIMEOUT;
        Self { swapper, linked_before: swapper.linked(), done: 0, won: 0, deadline }
    }

    fn linked(&self) -> usize {
        self.swapper.linked() - self.linked_before
    }

    fn go_on(&mut self) -> bool {
        if self.done >= ROUNDS && self.linked() >= ROUNDS && self.won > 0 {
            return false;
        }
        assert!(Instant::now() < self.deadline, "one of them never gets its turn: {self}");
        self.done += 1;
        true
    }
}

impl Display for Rounds<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} times of {}, links swapped in {} times", self.won, self.done, self.linked())
    }
}

struct ProtectedFile(PathBuf);

impl ProtectedFile {
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
async fn symlink_at_the_target_is_never_followed() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    node.stage().await.unwrap();
    let victim = ProtectedFile::new(&pool);

    // At rest first.
    symlink(&victim.0, &node.target).unwrap();
    assert!(node.publish().await.is_err());
    victim.check();
    tidy(&node.target);

    let swapper = Swapper::start(&node.target, &victim.0);
    let mut rounds = Rounds::begin(&swapper);
    while rounds.go_on() {
        rounds.won += usize::from(node.publish().await.is_ok());
        victim.check();
        let _ = node.unpublish().await;
        victim.check();
    }
    report(&format!("published {rounds}"));
    swapper.stop();
    tidy(&node.target);
    node.unpublish().await.unwrap();
    victim.check();
    node.unstage().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn symlink_at_the_staging_path_is_never_followed() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    let victim = ProtectedFile::new(&pool);
    std::fs::remove_dir(&node.staging).unwrap();

    let swapper = Swapper::start(&node.staging, &victim.0);
    let mut rounds = Rounds::begin(&swapper);
    while rounds.go_on() {
        rounds.won += usize::from(node.stage().await.is_ok());
        victim.check();
        let _ = node.unstage().await;
        victim.check();
    }
    report(&format!("staged {rounds}"));
    swapper.stop();
    tidy(&node.staging);
    node.unstage().await.unwrap();
    tidy(&node.staging);
    victim.check();
}

/// It led elsewhere when it was looked at.
#[tokio::test(flavor = "multi_thread")]
async fn swapped_parent_symlink_cannot_reach_protected_paths() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    node.stage().await.unwrap();
    let (way, outside) = (pool.scratch().join("way"), pool.scratch().ensure_dir("outside"));
    let inside = pool.scratch().join("run/csi.orlop.io");

    let swapper = Swapper::between(&way, [inside.clone(), outside.clone()]);
    let mut rounds = Rounds::begin(&swapper);
    while rounds.go_on() {
        rounds.won += usize::from(node.publish_at(&way.join("new"), false).await.is_ok());
        let led_astray =
            all_mounts().unwrap().into_iter().any(|it| it.mount_point.starts_with(&inside));
        assert!(!led_astray, "a volume is mounted in the run directory");
        // Where that looks is for the link to say.
        let _ = node.unpublish_at(&way.join("new")).await;
        ensure_unmounted(&outside.join("new")).unwrap();
    }
    report(&format!("published behind a link {rounds}"));
    swapper.stop();
    std::fs::remove_file(&way).unwrap();
    symlink(&outside, &way).unwrap();
    node.unpublish_at(&way.join("new")).await.unwrap();
    tidy(&outside.join("new"));
    tidy(&inside.join("new"));
    node.unstage().await.unwrap();
}
