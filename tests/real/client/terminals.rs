//! What only people at a terminal see: colours, tables that are drawn again, progress.

use orlop_sys::tool;
use orlop_tests::*;

use super::Terminal;
use crate::daemon::hung::until;

/// What a command writes to a terminal.
fn on_terminal(at: &Terminal, variables: &str, words: &str) -> String {
    let socket = at.daemon.launch().socket();
    let run = at.path("client-run");
    let command = format!(
        "env CSI_ENDPOINT=unix://{} ORLOP_RUN_DIR={run} {variables} {} {words}",
        socket.display(),
        binary().display()
    );
    let ran = tool::run("script", ["--quiet", "--return", "--command", &command, "/dev/null"]);
    String::from_utf8(ran.unwrap().stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn colours_appear_at_a_terminal_alone() {
    needs_root!();
    let at = Terminal::new().await;
    let id = at.id(&["volume", "create", "lost", "--size", "16MiB", "--block"]);
    std::fs::remove_file(at.pool.volume_data(&id)).unwrap();
    let coloured = on_terminal(&at, "TERM=xterm", "volume list");
    let bad = coloured.lines().find(|line| line.contains("BackingFileMissing")).unwrap();
    assert!(bad.starts_with("\x1b[31m") && bad.trim_end().ends_with("\x1b[0m"), "{coloured:?}");
    assert!(coloured.contains("\x1b[1mID"), "{coloured:?}");
    for variables in ["TERM=xterm NO_COLOR=1", "TERM=dumb"] {
        let plain = on_terminal(&at, variables, "volume list");
        assert!(plain.contains("BackingFileMissing") && !plain.contains('\x1b'), "{plain:?}");
    }
    let piped = at.ok(&["volume", "list"]);
    assert!(piped.contains("BackingFileMissing") && !piped.contains('\x1b'), "{piped:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_copies_show_their_progress() {
    needs_root!();
    let at = Terminal::new().await;
    let image = at.path("image");
    std::fs::File::create(&image).unwrap().set_len(64 * MIB).unwrap();
    Pattern::new(4).write_at(std::path::Path::new(&image), 3 * MIB, 2 * MIB);
    let shown = on_terminal(&at, "", &format!("volume import {image} disk"));
    for step in ["import: ", "compare: "] {
        let (_, percent) = shown.split_once(step).unwrap_or_else(|| panic!("{step}: {shown:?}"));
        assert!(percent.contains(" % of 64.0 MiB"), "{shown:?}");
    }
    // And nothing of it is left in the result.
    assert!(shown.contains("\r\x1b[Knote: no filesystem"), "{shown:?}");
    assert!(shown.contains("\nimported "), "{shown:?}");
    let silent = at.ok(&["volume", "import", &image, "other"]);
    assert!(!silent.contains('%'), "{silent}");
}

/// The terminal is as it was before, and the end is no failure.
#[tokio::test(flavor = "multi_thread")]
async fn a_watched_table_is_drawn_again() {
    needs_root!();
    let at = Terminal::new().await;
    let words = "volume list --watch=1";
    let shown = on_terminal(&at, "timeout --foreground --preserve-status --signal INT 2.5", words);
    assert!(shown.starts_with("\x1b[?1049h"), "{shown:?}");
    assert!(shown.matches("\x1b[Hthere are no volumes").count() >= 2, "{shown:?}");
    assert!(shown.trim_end().ends_with("\x1b[?25h\x1b[?1049l"), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_table_survives_a_restart_of_the_daemon() {
    needs_root!();
    let mut at = Terminal::new().await;
    let output = at.pool.scratch().join("output");
    std::fs::write(&output, "").unwrap();
    let launch = at.daemon.launch().clone();
    let _watching = launch.begin(&["pool", "status", "--watch=1"], &output);
    let tables = || std::fs::read_to_string(&output).unwrap().matches("default").count();
    until("it is shown", || async { tables() >= 1 }).await;
    at.daemon.terminate();
    let before = tables();
    at.daemon.restart().await;
    until("it is shown again", || async { tables() > before + 1 }).await;
}
