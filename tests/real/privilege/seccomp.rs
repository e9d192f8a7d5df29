//! The daemon under the seccomp profile that is shipped, with all programs it starts.

use orlop_tests::*;

use crate::privilege::lifecycle;

const PROFILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/seccomp/orlop.json");
const CONFINED: &str = env!("CARGO_BIN_EXE_confined");
const EPERM: i32 = 1;

/// What would undo the confinement, or reach beyond volumes.
const NEVER: [&str; 22] = [
    "add_key",
    "bpf",
    "chroot",
    "delete_module",
    "finit_module",
    "init_module",
    "io_uring_setup",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "open_by_handle_at",
    "perf_event_open",
    "pivot_root",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "reboot",
    "setns",
    "settimeofday",
    "swapon",
    "unshare",
    "userfaultfd",
];

async fn full_lifecycle_under_the_profile(fs: PoolFs) {
    let pool = TestPool::new(fs, 3 * GIB);
    let group = Cgroup::new();
    let launch = Launch::on(&pool).env("ORLOP_WORKLOAD_CGROUP", &group.name);
    let daemon = launch.run_by(&[CONFINED, PROFILE]).start().await;
    let status = format!("/proc/{}/status", daemon.pid());
    let status = std::fs::read_to_string(status).unwrap();
    assert!(status.contains("Seccomp:\t2"), "a filter is in force:\n{status}");
    lifecycle::of_all_filesystems(&daemon.client()).await;
}

on_every_pool!(full_lifecycle_under_the_profile);

#[tokio::test(flavor = "multi_thread")]
async fn ceph_lifecycle_works_under_the_profile() {
    needs_root!();
    let ceph = TestCeph::shared();
    let daemon = ceph.launch("confined", "all").run_by(&[CONFINED, PROFILE]).start().await;
    let client = daemon.client();
    let volume = client.create("confined").size(64 * MIB).fs("ext4").done().await;
    let id = &volume.volume_id;
    let context = client.controller_publish(id, "confined", mount("ext4"), false).await.unwrap();
    let mut node = client.on_node(&volume, mount("ext4"));
    node.publish_context = context;
    node.up().await;
    Pattern::new(1).write(&node.data_path(), MIB);
    let snapshot = client.snapshot("confined-s", id).await.unwrap();
    node.down().await;
    client.controller_unpublish(id, "confined").await.unwrap();
    client.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
    client.delete(id).await.unwrap();
}

#[test]
fn profile_allows_nothing_that_would_lift_it() {
    let profile = std::fs::read(PROFILE).unwrap();
    let profile: serde_json::Value = serde_json::from_slice(&profile).unwrap();
    for group in profile["syscalls"].as_array().unwrap() {
        for name in group["names"].as_array().unwrap() {
            assert!(!NEVER.contains(&name.as_str().unwrap()), "{name} is allowed");
        }
    }
}

#[test]
fn forbidden_system_calls_are_refused() {
    needs_root!();
    #[expect(clippy::disallowed_methods, reason = "the program under test is no host tool")]
    let run = |words: &[&str]| std::process::Command::new(words[0]).args(&words[1..]).output();
    let outcome = |words: &[&str]| run(words).expect(words[0]).status.code();
    assert_eq!(outcome(&[CONFINED, PROFILE, "--load-module"]), Some(EPERM), "init_module");
    for forbidden in
        [["/usr/bin/unshare", "--mount", "/bin/true"], ["/usr/sbin/chroot", "/", "/bin/true"]]
    {
        assert_eq!(outcome(&forbidden), Some(0), "{forbidden:?} works here without the profile");
        let confined = outcome(&[&[CONFINED, PROFILE], &forbidden[..]].concat());
        assert_ne!(confined, Some(0), "{forbidden:?}");
    }
    assert_eq!(outcome(&[CONFINED, PROFILE, "/bin/true"]), Some(0), "all else works");
}
