//! What volumes do, as the kernel counts it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use orlop_sys::tool;
use orlop_tests::*;
use rustix::process::{Pid, Signal, kill_process};

use super::Terminal;
use crate::daemon::hung::until;

/// Writes to a file, and waits for each write to be on the device, until it is dropped.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    fn begin(path: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let write = move || {
            while !seen.load(Ordering::Relaxed) {
                let mut file = File::create(&path).unwrap();
                file.write_all(&[7; 65536]).unwrap();
                file.sync_all().unwrap();
            }
        };
        Self { stop, thread: Some(std::thread::spawn(write)) }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_written_shows_in_every_form() {
    needs_root!();
    let at = Terminal::new().await;
    assert!(at.ok(&["top", "--once", "--interval", "0.1"]).contains("no volume is staged"));
    let (busy, idle) = (at.path("busy"), at.path("idle"));
    let made = ["volume", "create", "pvc-busy", "--size", "300MiB", "--mutable", "readIops=5000"];
    let id = at.id(&made);
    at.ok(&["volume", "create", "pvc-idle", "--size", "300MiB"]);
    at.ok(&["volume", "mount", "pvc-busy", &busy]);
    at.ok(&["volume", "mount", "pvc-idle", &idle]);
    let writer = Writer::begin(Path::new(&busy).join("file"));

    let seen = at.json(&["top", "--once"]);
    assert_eq!(seen["node"], "test-node");
    let volumes = seen["volumes"].as_array().unwrap();
    assert_eq!(volumes.len(), 2, "{seen}");
    let first = &volumes[0];
    assert_eq!((&first["id"], &first["name"]), (&id.as_str().into(), &"pvc-busy".into()));
    for figure in ["write_iops", "write_bytes_per_second", "write_latency_microseconds"] {
        assert!(first[figure].as_u64().unwrap() > 0, "{figure}: {seen}");
    }
    assert_eq!(first["limits"], serde_json::json!({"readIops": 5000}));
    let last = &volumes[1];
    assert_eq!((&last["name"], &last["limits"]), (&"pvc-idle".into(), &serde_json::json!({})));

    // Without a terminal, tables one after another.
    let tables = at.ok(&["top", "--count", "2", "--interval", "0.3", "--sort", "name"]);
    assert_eq!(tables.matches("VOLUME ").count(), 2, "{tables}");
    assert!(!tables.contains('\x1b'), "{tables:?}");
    let rows: Vec<&str> = tables.lines().filter(|line| line.starts_with("pvc-")).collect();
    assert!(rows[0].starts_with("pvc-busy") && rows[1].starts_with("pvc-idle"), "{tables}");
    assert!(rows[0].contains("5000 reads/s"), "{tables}");
    at.fails(2, &["top", "--interval", "0.01"]);
    at.fails(2, &["top", "--once", "--count", "3"]);
    drop(writer);
    for target in [&busy, &idle] {
        at.ok(&["volume", "unmount", target]);
    }
    at.ok(&["volume", "delete", "pvc-busy", "pvc-idle", "--yes"]);
}

/// The terminal is as it was before, and the end is no failure.
#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_redrawn_and_restored() {
    needs_root!();
    let at = Terminal::new().await;
    let recorded = at.path("recorded");
    let command = format!(
        "env CSI_ENDPOINT=unix://{} timeout --foreground --preserve-status --signal INT 2 {} top --interval 0.2",
        at.daemon.launch().socket().display(),
        binary().display()
    );
    let ran = tool::run("script", ["--quiet", "--return", "--command", &command, &recorded]);
    ran.expect("Ctrl-C ends it with 0");
    let seen = std::fs::read_to_string(&recorded).unwrap();
    assert!(seen.contains("\x1b[?1049h") && seen.contains("node test-node: 0 volumes"), "{seen:?}");
    let left = seen.rfind("\x1b[?1049l").expect("the screen is left");
    assert!(left > seen.rfind("no volume is staged").unwrap(), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn top_survives_a_restart_of_the_daemon() {
    needs_root!();
    let mut at = Terminal::new().await;
    let output = at.pool.scratch().join("output");
    std::fs::write(&output, "").unwrap();
    let launch = at.daemon.launch().clone();
    let mut running = launch.begin(&["top", "--interval", "0.1"], &output);
    let tables = || std::fs::read_to_string(&output).unwrap().matches("no volume").count();
    until("it is shown", || async { tables() >= 1 }).await;
    at.daemon.terminate();
    let before = tables();
    at.daemon.restart().await;
    until("it is shown again", || async { tables() > before + 1 }).await;
    kill_process(Pid::from_raw(running.pid().cast_signed()).unwrap(), Signal::INT).unwrap();
    assert_eq!(running.wait_for_end().code(), Some(0));
}
