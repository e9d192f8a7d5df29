//! Which files differ between two snapshots.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use orlop_tests::*;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::Terminal;
use crate::daemon::hung::until;

fn set_time(path: &Path) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

fn before(top: &Path) {
    for name in ["untouched", "rewritten", "grown", "mode", "attributes", "old name", "gone"] {
        fs::write(top.join(name), "some text").unwrap();
        set_time(&top.join(name));
    }
    fs::create_dir_all(top.join("directory/below")).unwrap();
    fs::write(top.join("directory/below/file"), "x").unwrap();
    symlink("here", top.join("link")).unwrap();
}

fn after(top: &Path) {
    // Neither its size nor its time says that it was written.
    fs::write(top.join("rewritten"), "text some").unwrap();
    set_time(&top.join("rewritten"));
    fs::write(top.join("grown"), "some text, and more").unwrap();
    set_time(&top.join("grown"));
    fs::set_permissions(top.join("mode"), fs::Permissions::from_mode(0o600)).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(top.join("attributes"), "user.key", b"value", flags).unwrap();
    fs::rename(top.join("old name"), top.join("directory/new name")).unwrap();
    fs::remove_file(top.join("gone")).unwrap();
    fs::remove_file(top.join("link")).unwrap();
    symlink("there", top.join("link")).unwrap();
    let odd = OsStr::from_bytes(b"odd \x1b[31m \xff\nname");
    fs::write(top.join(odd), "x").unwrap();
    fs::create_dir(top.join("new")).unwrap();
    fs::write(top.join("new/inner"), "x").unwrap();
}

fn changes(diff: &Value) -> Vec<Value> {
    diff["files"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_were_added_removed_changed_and_renamed_are_listed() {
    needs_root!();
    let at = Terminal::new().await;
    for fs in ["ext4", "xfs"] {
        at.ok(&["volume", "create", fs, "--size", "300MiB", "--fs", fs]);
        let target = at.path("mnt");
        at.ok(&["volume", "mount", fs, &target]);
        before(Path::new(&target));
        let (one, two) = (format!("{fs}-1"), format!("{fs}-2"));
        at.ok(&["snapshot", "create", fs, &one]);
        after(Path::new(&target));
        at.ok(&["snapshot", "create", fs, &two]);

        let diff = at.json(&["snapshot", "diff", &one, &two, "--files", "--fs", fs]);
        let found = changes(&diff);
        for expected in [
            json!({"change": "changed", "type": "file", "path": "attributes", "respects": ["attributes"]}),
            json!({"change": "changed", "type": "file", "path": "grown", "respects": ["size", "contents"]}),
            json!({"change": "changed", "type": "file", "path": "mode", "respects": ["mode"]}),
            json!({"change": "changed", "type": "file", "path": "rewritten", "respects": ["contents"]}),
            json!({"change": "renamed", "type": "file", "path": "directory/new name", "from": "old name"}),
            json!({"change": "removed", "type": "file", "path": "gone"}),
            json!({"change": "added", "type": "directory", "path": "new"}),
            json!({"change": "added", "type": "file", "path": "new/inner"}),
            json!({"change": "added", "type": "file", "path": "odd \\u{1b}[31m \\xff\\nname"}),
        ] {
            assert!(found.contains(&expected), "{fs}: {expected} in {diff:#}");
        }
        let link = found.iter().find(|it| it["path"] == "link").unwrap();
        assert!(link["respects"].as_array().unwrap().contains(&"target".into()), "{link}");
        assert_eq!(found.len(), 10, "{fs}: {diff:#}");
        let totals = json!({"added": 3, "removed": 1, "changed": 5, "renamed": 1});
        assert_eq!(diff["totals"], totals, "{fs}");

        let text = at.ok(&["snapshot", "diff", &one, &two, "--files", "--fs", fs]);
        assert!(text.contains("renamed  old name -> directory/new name\n"), "{text}");
        assert!(text.contains("changed  rewritten (contents)\n"), "{text}");
        assert!(text.ends_with("3 added, 1 removed, 5 changed, 1 renamed\n"), "{text}");
        assert!(!text.contains('\x1b'), "{text:?}");
        // The other way round, and with itself.
        let back = at.json(&["snapshot", "diff", &two, &one, "--files", "--fs", fs]);
        let totals = json!({"added": 1, "removed": 3, "changed": 5, "renamed": 1});
        assert_eq!(back["totals"], totals, "{fs}");
        let same = at.json(&["snapshot", "diff", &two, &two, "--files", "--fs", fs]);
        assert_eq!(same["files"], json!([]));

        assert_eq!(at.volumes(), 1, "what was made for it is deleted");
        at.ok(&["volume", "unmount", &target]);
        at.ok(&["snapshot", "delete", &one, &two, "--yes"]);
        at.ok(&["volume", "delete", fs, "--yes"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_that_fails_or_is_interrupted_leaves_nothing() {
    needs_root!();
    let at = Terminal::new().await;
    at.ok(&["volume", "create", "raw", "--size", "16MiB", "--block"]);
    let device = at.path("device");
    at.ok(&["volume", "mount", "raw", &device, "--block"]);
    Pattern::new(2).write_at(Path::new(&device), 0, MIB);
    at.ok(&["volume", "unmount", &device]);
    at.ok(&["snapshot", "create", "raw", "raw-1"]);
    let why = at.fails(3, &["snapshot", "diff", "raw-1", "raw-1", "--files"]);
    assert!(why.contains("--fs") && why.contains("no files are known"), "{why}");
    at.fails(2, &["snapshot", "diff", "raw-1", "raw-1", "--files", "--bar"]);
    at.fails(2, &["snapshot", "diff", "raw-1", "raw-1", "--fs", "xfs"]);
    assert_eq!(at.volumes(), 1);

    // Equal but for the time, so that all of it is read: there is time to interrupt it.
    at.ok(&["volume", "create", "data", "--size", "500MiB", "--fs", "ext4"]);
    let target = at.path("mnt");
    at.ok(&["volume", "mount", "data", &target]);
    Pattern::new(3).write(&Path::new(&target).join("file"), 380 * MIB);
    at.ok(&["snapshot", "create", "data", "one"]);
    set_time(&Path::new(&target).join("file"));
    at.ok(&["snapshot", "create", "data", "two"]);
    let output = at.pool.scratch().join("output");
    fs::write(&output, "").unwrap();
    let diff = ["snapshot", "diff", "one", "two", "--files", "--fs", "ext4"];
    for signal in [Signal::INT, Signal::TERM] {
        let mut running = at.daemon.launch().begin(&diff, &output);
        let mounted = || {
            let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
            let ours = at.pool.scratch().join("run/.client/diff");
            mounts.lines().filter(|line| line.contains(ours.to_str().unwrap())).count()
        };
        until("both are mounted", || async { mounted() == 2 }).await;
        kill_process(Pid::from_raw(running.pid().cast_signed()).unwrap(), signal).unwrap();
        assert_eq!(running.wait_for_end().code(), Some(130), "{signal:?}");
        assert_eq!((mounted(), at.volumes()), (0, 2), "{signal:?}");
    }
    // Killed, it cannot clean up; the same command does.
    let running = at.daemon.launch().begin(&diff, &output);
    until("both copies are there", || async { at.volumes() == 4 }).await;
    drop(running);
    let found = at.json(&diff);
    assert_eq!(found["files"][0]["respects"], json!(["mtime"]), "{found}");
    assert_eq!(at.volumes(), 2);
    at.ok(&["volume", "unmount", &target]);
    at.ok(&["snapshot", "delete", "raw-1", "one", "two", "--yes"]);
    at.ok(&["volume", "delete", "raw", "data", "--yes"]);
}
