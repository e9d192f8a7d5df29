//! docs/deploy/requirements.md says which capabilities each mode has; the kernel has to say the same.

use orlop_tests::*;

use crate::privilege::lifecycle;

/// With their numbers, from linux/capability.h.
const NUMBERS: [(&str, u32); 9] = [
    ("CAP_CHOWN", 0),
    ("CAP_DAC_OVERRIDE", 1),
    ("CAP_DAC_READ_SEARCH", 2),
    ("CAP_FOWNER", 3),
    ("CAP_FSETID", 4),
    ("CAP_SYS_ADMIN", 21),
    ("CAP_SYS_RESOURCE", 24),
    ("CAP_MKNOD", 27),
    ("CAP_LEASE", 28),
];

#[derive(Clone, Copy)]
enum Column {
    Node = 2,
    ImageController = 3,
    RbdController = 4,
}

/// As the table of the manual has it, less what this machine does not give.
fn documented(column: Column) -> u64 {
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/deploy/requirements.md");
    let manual = std::fs::read_to_string(manual).expect("read the manual");
    let mut set = 0;
    for line in manual.lines().filter(|line| line.starts_with("| `CAP_")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`');
        let (_, number) = NUMBERS.iter().find(|(known, _)| *known == name).expect(name);
        match cells[column as usize] {
            "yes" => set |= 1 << number,
            "" => {}
            other => panic!("{name}: {other}"),
        }
    }
    assert_ne!(set, 0, "the manual has no table");
    set & value_in(&status_of(std::process::id()).expect("our status"), "CapBnd")
}

/// `None`: it has ended.
fn status_of(process: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{process}/status")).ok()
}

fn value_in(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    u64::from_str_radix(line.expect(field).trim(), 16).expect(field)
}

/// Of the daemon, all its threads, and the thaw helper beside it.
fn assert_has(daemon: &Daemon, wanted: u64) {
    let pid = daemon.pid();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let threads: Vec<_> = threads.map(|it| it.unwrap().path()).collect();
    // Each thread has its own children, and may end while they are read.
    let children: String = threads
        .iter()
        .filter_map(|thread| std::fs::read_to_string(thread.join("children")).ok())
        .collect();
    let mut processes: Vec<u32> =
        children.split_whitespace().map(|child| child.parse().unwrap()).collect();
    assert!(!processes.is_empty(), "the thaw helper runs");
    let numbers = threads.iter().map(|thread| thread.file_name().unwrap().to_str().unwrap());
    processes.extend(numbers.map(|thread| thread.parse::<u32>().unwrap()));
    assert!(status_of(pid).is_some(), "the daemon runs");
    for process in processes {
        // Threads come and go.
        let Some(status) = status_of(process) else { continue };
        for field in ["CapEff", "CapPrm", "CapBnd"] {
            assert_eq!(value_in(&status, field), wanted, "{field} of {process}");
        }
        for field in ["CapInh", "CapAmb"] {
            assert_eq!(value_in(&status, field), 0, "{field} of {process}");
        }
        assert_eq!(value_in(&status, "NoNewPrivs"), 1);
    }
}

async fn full_lifecycle_with_few_capabilities(fs: PoolFs) {
    let pool = TestPool::new(fs, 3 * GIB);
    let group = Cgroup::new();
    let launch = Launch::on(&pool).env("ORLOP_WORKLOAD_CGROUP", &group.name);
    let daemon = launch.start().await;
    assert_has(&daemon, documented(Column::Node));
    lifecycle::of_all_filesystems(&daemon.client()).await;
    assert_has(&daemon, documented(Column::Node));
}

on_every_pool!(full_lifecycle_with_few_capabilities);

#[tokio::test(flavor = "multi_thread")]
async fn managed_pool_needs_no_further_capabilities() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Launch::on(&pool).env("ORLOP_POOL_IMAGE_SIZE", "1GiB").start().await;
    assert_has(&daemon, documented(Column::Node));
    lifecycle::of_a_controller(&daemon.client()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_mode_has_fewer_capabilities_than_node_mode() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Btrfs, 3 * GIB);
    let launch = Launch::on(&pool);
    let mut daemon = launch.clone().env("ORLOP_MODE", "controller").start().await;
    assert_has(&daemon, documented(Column::ImageController));
    let client = daemon.client();
    lifecycle::of_a_controller(&client).await;
    let volume = client.create("v").size(128 * MIB).fs("btrfs").done().await;
    daemon.terminate();
    drop(daemon);

    let daemon = launch.env("ORLOP_MODE", "node").env("ORLOP_ATTACH", "false").start().await;
    assert_has(&daemon, documented(Column::Node));
    let node = daemon.client().on_node(&volume, mount("btrfs"));
    node.up().await;
    Pattern::new(1).write(&node.data_path(), MIB);
    node.down().await;
}

/// As in a container: a separate /dev, in which the kernel makes no nodes.
#[tokio::test(flavor = "multi_thread")]
async fn missing_device_nodes_are_created() {
    needs_root!();
    const OWN_DEV: &str = "cp -a /dev/null /dev/zero /dev/urandom /dev/loop-control \"$0\" && \
         mount -t tmpfs none /dev && cp -a \"$0\"/* /dev/ && exec \"$@\"";
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let nodes = pool.scratch().ensure_dir("nodes");
    let around = ["/bin/sh", "-c", OWN_DEV, nodes.to_str().unwrap()];
    let daemon = Launch::on(&pool).run_by(&around).with_own_mounts().start().await;
    let client = daemon.client();
    let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    node.up().await;
    // Mounted in the daemon's namespace alone, so it is asked there.
    let mounts = std::fs::read_to_string(format!("/proc/{}/mountinfo", daemon.pid())).unwrap();
    assert!(mounts.contains(node.target.to_str().unwrap()), "{mounts}");
    node.stats().await.unwrap();
    node.down().await;
    client.delete(&volume.volume_id).await.unwrap();
    assert_has(&daemon, documented(Column::Node));
}

#[tokio::test(flavor = "multi_thread")]
async fn keep_capabilities_keeps_all() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Launch::on(&pool).env("ORLOP_KEEP_CAPABILITIES", "true").start().await;
    for field in ["CapEff", "CapBnd"] {
        let [own, daemons] = [std::process::id(), daemon.pid()]
            .map(|process| value_in(&status_of(process).expect("its status"), field));
        assert_eq!(daemons, own, "{field}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rbd_controller_has_minimal_capabilities() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.launch("c", "controller");
    let keyring = controller.scratch().join("a-strangers.keyring");
    std::fs::copy(ceph.keyring(), &keyring).unwrap();
    lifecycle::give_to_stranger(&keyring, 0o600);
    let controller = controller.env("ORLOP_RBD_KEYRING", &keyring).start().await;
    assert_has(&controller, documented(Column::RbdController));
    let worker = ceph.launch("n", "node").start().await;
    assert_has(&worker, documented(Column::Node));

    let client = controller.client();
    lifecycle::of_a_controller(&client).await;
    let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
    let id = &volume.volume_id;
    let context = client.controller_publish(id, "n", mount("ext4"), false).await.unwrap();
    let mut node = worker.client().on_node(&volume, mount("ext4"));
    node.publish_context = context;
    node.up().await;
    Pattern::new(1).write(&node.data_path(), MIB);
    Pattern::new(1).check(&node.data_path(), MIB);
    node.down().await;
    client.controller_unpublish(id, "n").await.unwrap();
    client.delete(id).await.unwrap();
}
