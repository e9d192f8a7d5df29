//! Logs for collectors: one JSON object a line, one line for the outcome of each call.

use std::collections::BTreeSet;

use orlop_tests::*;
use serde_json::Value;

/// Method, outcome and number of each call that the log tells the end of.
fn outcomes(log: &str) -> Vec<(String, String, u64)> {
    let entries = log.lines().map(|line| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    entries
        .filter(|entry| entry["fields"]["code"].is_string())
        .map(|entry| {
            let (span, code) = (&entry["span"], &entry["fields"]["code"]);
            assert_eq!(span["name"], "call", "{entry}");
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&span["method"]), text(code), span["call"].as_u64().unwrap())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn json_log_has_one_outcome_per_call() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let launch = Launch::on(&pool).env("ORLOP_LOG_FORMAT", "json").env("ORLOP_LOG", "info");
    let mut daemon = launch.start().await;
    let client = daemon.client();
    let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    expect_code(node.publish().await, Code::FailedPrecondition);
    node.up().await;
    let snapshot = client.snapshot("s", &node.id).await.unwrap().snapshot_id;
    node.down().await;
    expect_code(client.create("v").size(GIB).send().await, Code::AlreadyExists);
    expect_code(client.get_volume("nothing").await, Code::NotFound);
    client.delete_snapshot(&snapshot).await.unwrap();
    client.delete(&node.id).await.unwrap();
    daemon.terminate();

    let logged = outcomes(&daemon.log());
    let logged_pairs: Vec<_> =
        logged.iter().map(|(method, code, _)| (method.as_str(), code.as_str())).collect();
    let expected = [
        ("CreateVolume", "OK"),
        ("NodePublishVolume", "FAILED_PRECONDITION"),
        ("NodeStageVolume", "OK"),
        ("NodePublishVolume", "OK"),
        ("CreateSnapshot", "OK"),
        ("NodeUnpublishVolume", "OK"),
        ("NodeUnstageVolume", "OK"),
        ("CreateVolume", "ALREADY_EXISTS"),
        ("ControllerGetVolume", "NOT_FOUND"),
        ("DeleteSnapshot", "OK"),
        ("DeleteVolume", "OK"),
    ];
    assert_eq!(logged_pairs, expected, "routine calls such as Probe are not logged at this level");
    let numbers: BTreeSet<_> = logged.iter().map(|(_, _, call)| call).collect();
    assert_eq!(numbers.len(), logged.len(), "each call has a different number");
}

/// A refusal is logged at a fitting level, with the name that the orchestrator knows.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_logged_at_a_fitting_level() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let launch = Launch::on(&pool).env("ORLOP_LOG_FORMAT", "json").env("ORLOP_LOG", "debug");
    let mut daemon = launch.start().await;
    let client = daemon.client();
    let good = client.create("pvc-good").size(64 * MIB).block().done().await.volume_id;
    let typo = client.create("pvc-typo").size(64 * MIB).block().parameter("colour", "red");
    expect_code(typo.send().await, Code::InvalidArgument);
    client.capacity().await.unwrap();
    client.get_volume(&good).await.unwrap();
    expect_code(client.get_volume("gone").await, Code::NotFound);
    let node = client
        .on_node(&v1::Volume { volume_id: good.clone(), ..v1::Volume::default() }, mount("ext4"));
    expect_code(node.stage().await, Code::FailedPrecondition);
    let mut nowhere = node.stage_request();
    nowhere.staging_target_path = "not/absolute".to_owned();
    expect_code(client.node_stage(nowhere).await, Code::InvalidArgument);
    std::fs::remove_file(pool.volume_data(&good)).unwrap();
    expect_code(client.snapshot("snapshot-lost", &good).await, Code::DataLoss);
    client.delete(&good).await.unwrap();
    daemon.terminate();

    let log = daemon.log();
    let entries = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let logged: Vec<_> = entries
        .filter(|entry| entry["fields"]["code"].is_string())
        .filter(|entry| entry["span"]["method"] != "Probe")
        .map(|entry| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (span, fields) = (&entry["span"], &entry["fields"]);
            let names = ["volume_name", "volume", "snapshot_name"].map(|field| text(&span[field]));
            [text(&entry["level"]), text(&fields["code"]), text(&span["method"]), names.join(" ")]
        })
        .collect();
    let line = |level: &str, code: &str, method: &str, names: String| {
        [level.to_owned(), code.to_owned(), method.to_owned(), names]
    };
    let expected = [
        line("INFO", "OK", "CreateVolume", format!("pvc-good {good} ")),
        line("WARN", "INVALID_ARGUMENT", "CreateVolume", "pvc-typo  ".to_owned()),
        line("DEBUG", "OK", "GetCapacity", "  ".to_owned()),
        line("DEBUG", "OK", "ControllerGetVolume", format!(" {good} ")),
        line("INFO", "NOT_FOUND", "ControllerGetVolume", " gone ".to_owned()),
        line("WARN", "FAILED_PRECONDITION", "NodeStageVolume", format!("pvc-good {good} ")),
        line("WARN", "INVALID_ARGUMENT", "NodeStageVolume", format!(" {good} ")),
        line("ERROR", "DATA_LOSS", "CreateSnapshot", format!("pvc-good {good} snapshot-lost")),
        line("INFO", "OK", "DeleteVolume", format!("pvc-good {good} ")),
    ];
    assert_eq!(logged, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_is_json_at_any_level() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let launch = Launch::on(&pool).env("ORLOP_LOG_FORMAT", "json").env("ORLOP_LOG", "trace");
    let mut daemon = launch.start().await;
    let client = daemon.client();
    let volume = client.create("line\nbreak \"quoted\"").size(64 * MIB).fs("ext4").done().await;
    expect_code(client.get_volume("no\nsuch \"volume\" \u{1b}[31m").await, Code::NotFound);
    client.delete(&volume.volume_id).await.unwrap();
    daemon.terminate();
    assert!(outcomes(&daemon.log()).len() >= 3);
}

/// OP-12: whatever is to be said is said on stdout or stderr.
#[tokio::test(flavor = "multi_thread")]
async fn no_log_files_are_written() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let mut names: Vec<_> = std::fs::read_dir(pool.scratch().path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["csi.sock", "daemon.log", "pool", "run"]);
    assert!(!daemon.log().is_empty());
}
