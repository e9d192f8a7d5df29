//! Commands that end in the middle: the same command finishes them.

use std::fs::File;
use std::path::Path;

use orlop_sys::mounts::mount_at;
use orlop_tests::*;
use rustix::process::{Pid, Signal, kill_process};

use super::Terminal;
use crate::daemon::hung::{Frozen, until};

fn notes(at: &Terminal, kind: &str) -> usize {
    let directory = at.pool.scratch().join("run/.client").join(kind);
    std::fs::read_dir(directory).map_or(0, |entries| entries.count())
}

fn unread(at: &Terminal) -> std::path::PathBuf {
    let output = at.pool.scratch().join("output");
    std::fs::write(&output, "").unwrap();
    output
}

/// The pool hangs, so the client is in the middle of its first call.
async fn killed_while_mounting(at: &Terminal, target: &str) {
    let frozen = Frozen::new(&at.pool);
    let client = at.daemon.launch().begin(&["volume", "mount", "data", target], &unread(at));
    until("the mount is noted", || async { notes(at, "mounts") == 1 }).await;
    drop(client);
    drop(frozen);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_that_was_killed_is_finished_or_undone() {
    needs_root!();
    let at = Terminal::new().await;
    at.ok(&["volume", "create", "data", "--size", "64MiB", "--fs", "ext4"]);
    let target = at.path("mnt");
    killed_while_mounting(&at, &target).await;
    at.ok(&["volume", "mount", "data", &target]);
    Pattern::new(8).write(&Path::new(&target).join("file"), MIB);
    at.ok(&["volume", "unmount", &target]);
    assert_eq!(notes(&at, "mounts"), 0);

    killed_while_mounting(&at, &target).await;
    at.ok(&["volume", "unmount", &target]);
    assert_eq!(notes(&at, "mounts"), 0);
    assert!(mount_at(Path::new(&target)).unwrap().is_none());
    assert_eq!(at.json(&["volume", "show", "data"])["published_nodes"], serde_json::json!([]));
    at.ok(&["volume", "delete", "data", "--yes"]);
}

/// Its device is written in full chunks, so that there is time to interrupt it.
fn image(at: &Terminal) -> String {
    let image = at.path("image");
    File::create(&image).unwrap().set_len(768 * MIB).unwrap();
    Pattern::new(2).write_at(Path::new(&image), 0, 768 * MIB);
    image
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_was_interrupted_is_finished_by_the_same_command() {
    needs_root!();
    let at = Terminal::new().await;
    let image = image(&at);
    for signal in [Signal::INT, Signal::KILL] {
        let mut client =
            at.daemon.launch().begin(&["volume", "import", &image, "disk"], &unread(&at));
        until("the device is there", || async { notes(&at, "transfer") == 1 }).await;
        kill_process(Pid::from_raw(client.pid().cast_signed()).unwrap(), signal).unwrap();
        until("it has ended", || {
            let ended = client.has_ended();
            async move { ended }
        })
        .await;
        assert_eq!(at.volumes(), 1, "{signal:?}");
        assert_eq!(notes(&at, "imports"), 1, "{signal:?}");
        // Ctrl-C leaves no device behind; a killed process cannot do that.
        assert!(signal == Signal::KILL || notes(&at, "mounts") == 0);
    }
    // Another image is not what was begun.
    let other = at.path("other");
    File::create(&other).unwrap().set_len(MIB).unwrap();
    at.fails(3, &["volume", "import", &other, "disk"]);
    at.ok(&["volume", "import", &image, "disk"]);
    assert_eq!((notes(&at, "imports"), notes(&at, "mounts")), (0, 0));
    let device = at.path("device");
    at.ok(&["volume", "mount", "disk", &device, "--block"]);
    Pattern::new(2).check_at(Path::new(&device), 0, 768 * MIB);
    at.ok(&["volume", "unmount", &device]);
    at.ok(&["volume", "delete", "disk", "--yes"]);
}

/// The second export has what is in the volume by then.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_that_was_killed_is_made_again_of_what_is_there_now() {
    needs_root!();
    let at = Terminal::new().await;
    let image = image(&at);
    at.ok(&["volume", "import", &image, "disk", "--no-verify"]);
    let back = at.path("back");
    let client = at.daemon.launch().begin(&["volume", "export", "disk", &back], &unread(&at));
    until("the copy is attached", || async { notes(&at, "transfer") == 1 }).await;
    drop(client);
    assert!(!Path::new(&back).exists());
    let device = at.path("device");
    at.ok(&["volume", "mount", "disk", &device, "--block"]);
    Pattern::new(3).write_at(Path::new(&device), 0, MIB);
    at.ok(&["volume", "unmount", &device]);
    at.ok(&["volume", "export", "disk", &back]);
    Pattern::new(3).check_at(Path::new(&back), 0, MIB);
    Pattern::new(2).check_at(Path::new(&back), MIB, 767 * MIB);
    assert_eq!((at.volumes(), notes(&at, "mounts")), (1, 0));
    at.ok(&["volume", "delete", "disk", "--yes"]);
}

/// The file is there by then, so that the same command would be refused.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_whose_daemon_ended_says_how_to_delete_the_copy() {
    needs_root!();
    let mut at = Terminal::new().await;
    let image = image(&at);
    at.ok(&["volume", "import", &image, "disk", "--no-verify"]);
    let (back, errors) = (at.path("back"), at.path("errors"));
    let words = ["volume", "export", "disk", &back, "--no-verify"];
    let launch = at.daemon.launch().clone();
    let mut client = launch.begin_with_errors(&words, &unread(&at), Path::new(&errors));
    until("the copy is attached", || async { notes(&at, "transfer") == 1 }).await;
    at.daemon.terminate();
    until("it has ended", || {
        let ended = client.has_ended();
        async move { ended }
    })
    .await;
    Pattern::new(2).check_at(Path::new(&back), 0, 768 * MIB);
    at.daemon.restart().await;
    assert_eq!((at.volumes(), notes(&at, "mounts")), (2, 1));
    let why = std::fs::read_to_string(&errors).unwrap();
    let command = why.split_once("`orlop ").and_then(|(_, rest)| rest.split_once('`'));
    let command: Vec<&str> = command.expect(&why).0.split(' ').collect();
    at.ok(&command);
    assert_eq!((at.volumes(), notes(&at, "mounts")), (1, 0), "{command:?}");
    at.ok(&["volume", "delete", "disk", "--yes"]);
}

/// As an orchestrator does that knows nothing of the import.
async fn made_again_and_used(at: &Terminal, id: &str) {
    let transfer = at.pool.scratch().join("run/.client/transfer");
    let [device] = std::fs::read_dir(transfer).unwrap().collect::<Vec<_>>().try_into().unwrap();
    let device = device.unwrap().path();
    at.ok(&["volume", "unmount", device.to_str().unwrap()]);
    at.daemon.client().delete(id).await.unwrap();
    at.ok(&["volume", "create", "disk", "--size", "768MiB", "--block"]);
    let device = at.path("device");
    at.ok(&["volume", "mount", "disk", &device, "--block"]);
    Pattern::new(9).write_at(Path::new(&device), 0, 2 * MIB);
    at.ok(&["volume", "unmount", &device]);
}

/// Names and ids are the same, and the note of the import is there.
#[tokio::test(flavor = "multi_thread")]
async fn an_import_does_not_overwrite_a_volume_that_was_made_again() {
    needs_root!();
    let at = Terminal::new().await;
    let image = image(&at);
    let client = at.daemon.launch().begin(&["volume", "import", &image, "disk"], &unread(&at));
    until("the device is there", || async { notes(&at, "transfer") == 1 }).await;
    drop(client);
    let id = at.id(&["volume", "list"]);
    made_again_and_used(&at, &id).await;
    assert_eq!(notes(&at, "imports"), 1);
    for more in [&["--no-verify"][..], &[]] {
        let why = at.fails(3, &[&["volume", "import", &image, "disk"], more].concat());
        assert!(why.contains("is not overwritten"), "{why}");
    }
    let device = at.path("device");
    at.ok(&["volume", "mount", "disk", &device, "--block"]);
    Pattern::new(9).check_at(Path::new(&device), 0, 2 * MIB);
    assert!(is_all_zero(Path::new(&device), 2 * MIB, 700 * MIB));
    at.ok(&["volume", "unmount", &device]);
    at.ok(&["volume", "delete", "disk", "--yes"]);
    at.ok(&["volume", "import", &image, "disk"]);
    at.ok(&["volume", "delete", "disk", "--yes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_export_to_the_same_file_is_refused() {
    needs_root!();
    let at = Terminal::new().await;
    let image = image(&at);
    at.ok(&["volume", "import", &image, "disk", "--no-verify"]);
    at.ok(&["volume", "create", "other", "--size", "16MiB", "--block"]);
    let back = at.path("back");
    let mut client = at.daemon.launch().begin(&["volume", "export", "disk", &back], &unread(&at));
    until("the copy is attached", || async { notes(&at, "transfer") == 1 }).await;
    for volume in ["other", "disk"] {
        let why = at.fails(2, &["volume", "export", volume, &back, "--overwrite"]);
        assert!(why.contains("another export is writing it"), "{why}");
    }
    until("it has ended", || {
        let ended = client.has_ended();
        async move { ended }
    })
    .await;
    Pattern::new(2).check_at(Path::new(&back), 0, 768 * MIB);
    at.ok(&["volume", "export", "other", &back, "--overwrite"]);
    assert_eq!(std::fs::metadata(&back).unwrap().len(), 16 * MIB);
    assert_eq!((at.volumes(), notes(&at, "mounts")), (2, 0));
    at.ok(&["volume", "delete", "disk", "other", "--yes"]);
}
