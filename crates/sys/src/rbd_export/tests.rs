#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::testbed::scratch;

fn source() -> ExportSource<'static> {
    ExportSource {
        monitors: "[v2:127.0.0.1:1]",
        user: "orlop",
        keyring: Path::new("/etc/ceph/ceph.client.orlop.keyring"),
        pool: "rbd",
        namespace: "",
        image: "v-1",
        read_only: false,
    }
}

fn joined(source: &ExportSource<'_>) -> String {
    Export::at(PathBuf::from("/run/a,b")).arguments(source).join(" ")
}

#[test]
fn commas_in_values_are_escaped() {
    let arguments = joined(&ExportSource { pool: "a,readonly=on", ..source() });
    assert!(arguments.contains("pool=a,,readonly=on,"));
    assert!(arguments.contains("mountpoint=/run/a,,b/image,"));
}

#[test]
fn read_only_export_is_read_only_on_both_sides() {
    let writable = joined(&source());
    assert!(writable.contains("read-only=off") && writable.contains("writable=on"));
    let read_only = joined(&ExportSource { read_only: true, namespace: "team", ..source() });
    assert!(read_only.contains("read-only=on") && read_only.contains("writable=off"));
    assert!(read_only.contains("namespace=team,"));
}

#[test]
fn client_addresses_are_read_from_the_log() {
    let log = "2026-01-01T00:00:00 7f 5 monclient: authenticate success, global_id 4139\n\
               2026-01-01T00:00:00 7f 4 set_mon_vals no callback set\n\
               2026-01-01T00:00:00 7f 5 monclient: authenticate success, global_id 4140\n";
    assert_eq!(clients_in(log), [4139, 4140]);
    assert_eq!(clients_in("authenticate success, global_id"), [0_i64; 0]);
}

#[test]
fn reused_pid_is_not_the_export() {
    let scratch = scratch();
    let export = Export::at(scratch.path().join("export"));
    assert!(!export.is_running().unwrap());
    fs::create_dir(scratch.path().join("export")).unwrap();
    for number in [std::process::id().to_string(), "0".to_owned(), "x".to_owned()] {
        fs::write(export.process_number(), number).unwrap();
        assert!(!export.is_running().unwrap());
    }
    export.ensure_stopped().unwrap();
    assert!(!export.exists());
}

/// The port of discard, where no process listens: librados goes on trying.
const NO_MONITOR: &str = "[v2:127.0.0.1:9]";

fn is_exported(export: &Export) -> bool {
    let mark = export.file().display().to_string();
    fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        contains(&words, mark.as_bytes())
    })
}

#[test]
fn start_timeout_leaves_no_process() {
    let scratch = scratch();
    let export = Export::at(scratch.path().join("export"));
    let unreachable = ExportSource { monitors: NO_MONITOR, ..source() };
    let late = export.start(&unreachable, Duration::from_secs(2)).unwrap_err();
    assert_eq!(late.errno(), Some(Errno::TIMEDOUT), "{late}");
    assert!(!is_exported(&export));
    export.ensure_stopped().unwrap();
    assert!(!export.exists());
}

/// As after a daemon that was killed before the export had written the number of its process.
#[test]
fn export_without_a_pid_file_is_stopped() {
    let scratch = scratch();
    let export = Export::at(scratch.path().join("export"));
    let starting = {
        let export = export.clone();
        std::thread::spawn(move || {
            let unreachable = ExportSource { monitors: NO_MONITOR, ..source() };
            export.start(&unreachable, Duration::from_secs(60))
        })
    };
    while !is_exported(&export) {
        assert!(!starting.is_finished(), "{:?}", starting.join());
        std::thread::yield_now();
    }
    assert!(!export.is_running().unwrap());
    export.ensure_stopped().unwrap();
    assert!(!is_exported(&export));
    assert!(!export.exists());
    starting.join().unwrap().unwrap_err();
}
