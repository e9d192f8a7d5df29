//! A supervisor may limit the daemon's memory.

use std::path::{Path, PathBuf};

use orlop_tests::*;

/// What docs/deploy/requirements.md says is enough.
const LIMIT: &str = "268435456";

/// A cgroup whose processes have 256 MiB of memory.
struct Bounded(PathBuf);

impl Bounded {
    fn new() -> Self {
        let is_unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let (root, file) = match is_unified {
            true => ("/sys/fs/cgroup", "memory.max"),
            false => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        };
        let group = Self(Path::new(root).join(format!("orlop-bounded-{}", std::process::id())));
        std::fs::create_dir(&group.0).unwrap();
        std::fs::write(group.0.join(file), LIMIT).unwrap();
        group
    }

    fn processes(&self) -> String {
        std::fs::read_to_string(self.0.join("cgroup.procs")).unwrap()
    }
}

impl Drop for Bounded {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.0).unwrap();
    }
}

/// OP-21: mkfs and all else that the daemon starts has the limit too.
#[tokio::test(flavor = "multi_thread")]
async fn daemon_works_within_a_memory_limit() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let group = Bounded::new();
    let enter = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", group.0.display());
    let launch = Launch::on(&pool).run_by(&["/bin/sh", "-c", &enter, "sh"]);
    let mut daemon = launch.start().await;
    let pid = daemon.pid().to_string();
    assert!(group.processes().lines().any(|line| line == pid), "the daemon is not limited");
    let client = daemon.client();
    for fs in ["xfs", "ext4", "btrfs"] {
        let volume = client.create(fs).size(512 * MIB).fs(fs).done().await;
        let node = client.on_node(&volume, mount(fs));
        node.up().await;
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
    daemon.terminate();
}
