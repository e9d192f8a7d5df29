//! A process that keeps mounts in another mount namespace, as a monitoring agent does that was
//! started with the host's root directory while they were mounted.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(120);

/// A function of the shell. A new mount namespace is a copy of all mounts, and as long as it has those of
/// other tests, their devices cannot be detached. So they are dropped, but for what is at or below the
/// paths that it is given.
pub(crate) const DROP_ALL_BUT: &str = r#"
    drop_all_but() {
        while read -r _ _ _ _ point _; do
            for kept; do
                case $point in "$kept" | "$kept"/*) continue 2 ;; esac
            done
            case $point in */orlop-test.*) umount --lazy "$point" ;; esac
        done </proc/self/mountinfo
    }
"#;

/// `$0` is a file to open, or empty; the others are the mounts to keep.
const KEEP: &str = r#"
    drop_all_but "$@"
    mount -t tmpfs tmpfs /mnt && mkdir /mnt/host && mount --rbind / /mnt/host
    [ -z "$0" ] || exec 9<"$0"
    exec $WITHOUT_RIGHTS sleep 600
"#;
const WITHOUT_RIGHTS: &str = "setpriv --bounding-set=-all --inh-caps=-all";

/// Ended when dropped.
pub struct MountHolder(Child);

impl MountHolder {
    /// It sees the mounts at these paths, at the same place and below a second root, and uses none.
    pub fn of(mounts: &[&Path]) -> Self {
        Self::start(Path::new(""), mounts, "")
    }

    /// As [`Self::of`], with a file of its mounts open. Without capabilities: a daemon that has given
    /// up its own cannot look at a process that has more.
    pub fn reading(file: &Path, mounts: &[&Path]) -> Self {
        Self::start(file, mounts, WITHOUT_RIGHTS)
    }

    /// As [`Self::reading`], with all rights.
    pub fn privileged_reading(file: &Path, mounts: &[&Path]) -> Self {
        Self::start(file, mounts, "")
    }

    #[expect(clippy::disallowed_methods, reason = "no host tool, but a bystander")]
    fn start(file: &Path, mounts: &[&Path], begin: &str) -> Self {
        let mut copying = Command::new("/usr/bin/unshare");
        let keep = [DROP_ALL_BUT, KEEP].concat();
        copying.args(["--mount", "--propagation", "private", "/bin/sh", "-c", &keep]);
        copying.arg(file).args(mounts).env("WITHOUT_RIGHTS", begin).stdin(Stdio::null());
        let holder = Self(copying.spawn().expect("start a keeper"));
        let program = PathBuf::from(format!("/proc/{}/comm", holder.pid()));
        let deadline = Instant::now() + TIMEOUT;
        // By then the namespace is as it is to be.
        while std::fs::read_to_string(&program).expect("look at a keeper").trim_end() != "sleep" {
            assert!(Instant::now() < deadline, "the keeper does not get ready");
            std::thread::sleep(Duration::from_millis(1));
        }
        for mount in mounts {
            assert_eq!(holder.mounts_at(mount), 2, "{}", mount.display());
        }
        holder
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Its mount namespace, which lasts as long as the file is open, with or without a process in it.
    pub fn namespace(&self) -> File {
        File::open(format!("/proc/{}/ns/mnt", self.pid())).expect("open the keeper's namespace")
    }

    /// A path for others to what it sees at the given one.
    pub fn path_in_namespace(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.pid()));
        root.join(path.strip_prefix("/").expect("an absolute path"))
    }

    /// How many mounts it sees at the path, its second root included.
    pub fn mounts_at(&self, path: &Path) -> usize {
        let mounts = std::fs::read_to_string(format!("/proc/{}/mountinfo", self.pid()))
            .expect("read the keeper's mounts");
        let below = Path::new("/mnt/host").join(path.strip_prefix("/").expect("an absolute path"));
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
        points.filter(|point| *point == path || *point == below).count()
    }
}

impl Drop for MountHolder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
