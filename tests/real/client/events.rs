//! What happened, and what happens.

use orlop_tests::*;
use rustix::process::{Pid, Signal, kill_process};

use super::Terminal;
use crate::daemon::hung::until;

fn methods(events: &serde_json::Value) -> Vec<String> {
    let events = events.as_array().unwrap();
    events.iter().filter_map(|it| it["fields"]["method"].as_str().map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_changed_something_are_listed_and_filtered() {
    needs_root!();
    // Whatever the log leaves out.
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Launch::on(&pool).env("ORLOP_LOG", "off").start().await;
    let at = Terminal { pool, daemon };
    let id = at.id(&["volume", "create", "pvc-1", "--size", "8MiB", "--block"]);
    at.ok(&["volume", "create", "pvc-2", "--size", "8MiB", "--block"]);
    at.fails(3, &["volume", "create", "pvc-2", "--size", "16MiB", "--block"]);
    at.ok(&["volume", "list"]);
    at.ok(&["volume", "delete", "pvc-1", "--yes"]);

    let all = at.json(&["events"]);
    let listed = methods(&all);
    assert_eq!(listed, ["CreateVolume", "CreateVolume", "CreateVolume", "DeleteVolume"], "{all}");
    let numbers: Vec<u64> =
        all.as_array().unwrap().iter().map(|it| it["sequence"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted(), "the newest last: {numbers:?}");
    // By its name, although it is deleted; and by its id.
    for given in ["pvc-1", &id] {
        let of_volume = at.json(&["events", "--volume", given]);
        assert!(!methods(&of_volume).is_empty(), "{given}: {of_volume}");
        assert!(methods(&of_volume).len() <= 2, "{given}: {of_volume}");
    }
    let refused = at.json(&["events", "--level", "warn", "--kind", "call"]);
    assert_eq!(refused[0]["fields"]["code"], "ALREADY_EXISTS", "{refused}");
    assert_eq!(refused.as_array().unwrap().len(), 1, "{refused}");
    let lines = at.ok(&["events", "--kind", "call"]);
    assert!(lines.lines().next().unwrap().contains("call    CreateVolume volume pvc-1"), "{lines}");
    assert!(at.ok(&["events", "--kind", "daemon"]).contains("ready"));
    assert!(at.ok(&["events", "--since", "2020-01-01T00:00:00Z"]).contains("CreateVolume"));
    assert_eq!(at.json(&["events", "--since", "2200-01-01T00:00:00Z"]), serde_json::json!([]));
    at.fails(2, &["events", "--since", "yesterday"]);
    at.fails(2, &["events", "--kind", "weather"]);
    at.ok(&["volume", "delete", "pvc-2", "--yes"]);
}

/// A follower sees what happens, waits for a daemon that is away, and says that it was restarted.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_survives_a_restart_of_the_daemon() {
    needs_root!();
    let mut at = Terminal::new().await;
    let output = at.pool.scratch().join("output");
    std::fs::write(&output, "").unwrap();
    let launch = at.daemon.launch().clone();
    let words = ["events", "--follow", "--volume", "pvc-1", "--output", "json"];
    let errors = at.pool.scratch().join("errors");
    let mut running = launch.begin_with_errors(&words, &output, &errors);
    let seen = |method: &str| {
        let text = std::fs::read_to_string(&output).unwrap();
        let lines =
            text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.filter(|event| event["fields"]["method"] == *method).count()
    };
    at.ok(&["volume", "create", "pvc-1", "--size", "8MiB", "--block"]);
    until("it is followed", || async { seen("CreateVolume") == 1 }).await;
    at.daemon.kill9();
    at.daemon.restart().await;
    at.ok(&["volume", "grow", "pvc-1", "16MiB"]);
    until("it is followed again", || async { seen("ControllerExpandVolume") == 1 }).await;
    assert_eq!(seen("CreateVolume"), 1, "nothing is shown twice");
    let said = std::fs::read_to_string(&errors).unwrap();
    assert!(said.contains("the daemon was restarted"), "{said}");
    kill_process(Pid::from_raw(running.pid().cast_signed()).unwrap(), Signal::INT).unwrap();
    assert_eq!(running.wait_for_end().code(), Some(0));
    at.ok(&["volume", "delete", "pvc-1", "--yes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_hold_no_secrets() {
    needs_root!();
    let at = Terminal::new().await;
    let secrets = at.path("secrets");
    std::fs::write(&secrets, "password=hunter2hunter2\n").unwrap();
    let create = ["volume", "create", "pvc-1", "--size", "8MiB", "--block"];
    at.ok(&[&create[..], &["--secrets-file", &secrets]].concat());
    at.fails(3, &[&create[..4], &["900TiB", "--secrets-file", &secrets]].concat());
    let events = at.ok(&["events", "--output", "json"]);
    assert!(events.contains("CreateVolume") && !events.contains("hunter2"), "{events}");
    at.ok(&["volume", "delete", "pvc-1", "--yes"]);
}
