//! The run directory of the daemon that served the pool last is found by the pool's stamp, and nothing is
//! repaired where it is not certain.

use std::fs;
use std::path::{Path, PathBuf};

use orlop_sys::tool;
use orlop_tests::*;
use serde_json::Value;

use crate::doctor::fixture::{Fixture, Report, doctor};
use crate::doctor::machine::{attached, in_run_dir, is_attached};

fn run_dir_of(report: &Report) -> Option<PathBuf> {
    report.document["pools"][0]["run_dir"].as_str().map(PathBuf::from)
}

/// As a pool of a daemon that did not write down its run directory yet.
fn forget_run_dir(pool: &Path) {
    let served_by = pool.join("served-by.json");
    let mut document: Value = serde_json::from_slice(&fs::read(&served_by).unwrap()).unwrap();
    assert!(document.as_object_mut().unwrap().remove("run_dir").is_some(), "{document}");
    fs::write(&served_by, document.to_string()).unwrap();
}

/// Also if the one that is configured is another daemon's, which has records of pools that are unknown here.
#[tokio::test(flavor = "multi_thread")]
async fn run_directory_is_found_whatever_is_configured() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let volume = fixture.client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = fixture.client.on_node(&volume, mount("ext4"));
    node.up().await;
    Pattern::new(3).write(&node.data_path(), MIB);
    let id = fixture.block_volume("a").await;
    fixture.daemon.terminate();
    let device = attached(&fixture, &id);
    let launch = fixture.daemon.launch();
    let absent = launch.clone().env("ORLOP_RUN_DIR", fixture.pool.scratch().join("other-run"));
    let stranger = launch.clone().env("ORLOP_DRIVER_NAME", "csi.example.com");
    let records = fixture.pool.scratch().ensure_dir("run/csi.example.com/volumes");
    let record = records.join(format!("v-ffffffff-{}.json", "0".repeat(32)));
    fs::write(record, r#"{"stage": null, "publications": []}"#).unwrap();
    let forgotten = launch.clone().without_env("ORLOP_RUN_DIR");
    for mistaken in [&absent, &stranger, &forgotten] {
        let report = doctor(mistaken, &[]);
        report.expect(1, &[("stray-device", "repairable")]);
        let expected = in_run_dir(&fixture, "");
        assert_eq!(
            run_dir_of(&report).map(|path| path.join("")),
            Some(expected),
            "{}",
            report.text
        );
    }
    doctor(&stranger, &["--repair"]).expect(0, &[("stray-device", "repaired")]);
    assert!(!is_attached(&device, &id));
    Pattern::new(3).check(&node.data_path(), MIB);
    fixture.daemon.restart().await;
    node.down().await;
}

/// The records are in the run directory of the last daemon, however often the other one was used.
#[tokio::test(flavor = "multi_thread")]
async fn former_run_directory_is_not_taken_for_the_last() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let volume = |name: &str| fixture.client.create(name).size(64 * MIB).fs("ext4").done();
    let former = fixture.client.on_node(&volume("former").await, mount("ext4"));
    let last = fixture.client.on_node(&volume("last").await, mount("ext4"));
    // Until the end: each of them fails the test if something is in use when it is dropped.
    let mut others = Vec::new();
    for in_use_before in [false, true] {
        fixture.daemon.terminate();
        let other = fixture.pool.scratch().join(format!("other-run-{in_use_before}"));
        let mut daemon = fixture.daemon.launch().clone().env("ORLOP_RUN_DIR", other).start().await;
        fixture.client.reconnect();
        last.up().await;
        Pattern::new(3).write(&last.data_path(), MIB);
        daemon.terminate();

        // Volumes that were in use when it started are recorded in neither, so it is not certain.
        let report = match in_use_before {
            false => {
                fixture.doctor(&["--repair"]).expect(0, &[]);
                forget_run_dir(&fixture.pool.path);
                fixture.doctor(&["--repair"])
            }
            true => fixture.doctor(&["--repair"]),
        };
        report.expect(1, &[("forgotten-mount", "by-hand")]);
        assert!(report.text.contains(&last.id), "{}", report.text);
        assert!(report.text.contains("ORLOP_RUN_DIR"), "{}", report.text);
        assert_eq!(run_dir_of(&report), None, "{}", report.text);
        Pattern::new(3).check(&last.data_path(), MIB);
        daemon.restart().await;
        last.down().await;
        daemon.terminate();
        others.push(daemon);
        fixture.daemon.restart().await;
        // What is forgotten under the run directory of the last daemon is repaired all the same.
        former.up().await;
        if in_use_before {
            fixture.daemon.terminate();
            let record = in_run_dir(&fixture, "volumes").join(format!("{}.json", former.id));
            fs::remove_file(record).unwrap();
            fixture.repair("forgotten-mount");
            fs::remove_dir(&former.target).unwrap();
        }
    }
}

/// Which one is the original cannot be seen.
#[tokio::test(flavor = "multi_thread")]
async fn copied_run_directory_repairs_nothing() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let id = fixture.block_volume("a").await;
    fixture.daemon.terminate();
    let device = attached(&fixture, &id);
    let original = in_run_dir(&fixture, "");
    let copy = original.with_file_name("csi.copy.io");
    tool::run("cp", ["-a", original.to_str().unwrap(), copy.to_str().unwrap()]).unwrap();
    fixture.not_repairable("stray-device");
    let report = fixture.doctor(&[]);
    assert!(report.text.contains("csi.copy.io"), "{}", report.text);
    assert_eq!(run_dir_of(&report), None);
    assert!(is_attached(&device, &id));
    // Another way to the same directory is no second one.
    orlop_sys::file::remove_tree(&copy).unwrap();
    std::os::unix::fs::symlink(&original, &copy).unwrap();
    fixture.repair("stray-device");
}
