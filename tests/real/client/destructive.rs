//! What destroys something asks first, and does nothing where it cannot ask.

use orlop_tests::*;

use super::Terminal;

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_yes_has_to_be_said() {
    needs_root!();
    let at = Terminal::new().await;
    let id = at.id(&["volume", "create", "data", "--size", "16MiB", "--block"]);
    let why = at.fails(2, &["volume", "delete", "data"]);
    assert!(why.contains(&id) && why.contains("16.0 MiB") && why.contains("--yes"), "{why}");
    assert_eq!(at.volumes(), 1);
    let would = at.ok(&["volume", "delete", "data", "--dry-run"]);
    assert!(would.starts_with("would delete volume data ("), "{would}");
    assert_eq!(at.volumes(), 1);
    // All or nothing, as far as it is known beforehand.
    at.fails(3, &["volume", "delete", "data", "missing", "--yes"]);
    assert_eq!(at.volumes(), 1);
    at.ok(&["volume", "delete", "data", "--yes"]);
    assert_eq!(at.volumes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_a_terminal_it_asks() {
    needs_root!();
    let at = Terminal::new().await;
    at.ok(&["volume", "create", "data", "--size", "16MiB", "--block"]);
    let endpoint = format!("CSI_ENDPOINT=unix://{}", at.daemon.launch().socket().display());
    let answered = |answer: &str| {
        // script gives the command a terminal.
        let command = format!("{} volume delete data", binary().display());
        let script = format!(
            "printf '{answer}\\n' | script --quiet --return --command '{command}' /dev/null"
        );
        let output = orlop_sys::tool::run_accepting(
            "env",
            [endpoint.as_str(), "PATH=/usr/bin:/bin", "bash", "-c", &script],
            &[0, 2],
        );
        let output = output.unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, said) = answered("n");
    assert!(said.contains("Go on? [y/N]") && said.contains("nothing was done"), "{said}");
    assert_eq!(code, Some(2));
    assert_eq!(at.volumes(), 1);
    let (code, said) = answered("y");
    assert!(code == Some(0) && said.contains("deleted volume data"), "{said}");
    assert_eq!(at.volumes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_creates_nothing() {
    needs_root!();
    let at = Terminal::new().await;
    let would = at.ok(&["volume", "create", "data", "--size", "1GiB", "--fs", "xfs", "--dry-run"]);
    assert_eq!(would, "would create volume data of 1.0 GiB, with xfs\n");
    assert_eq!(at.volumes(), 0);
}

/// CSI allows a new line in a name: what would be deleted is one line all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_cannot_forge_a_line() {
    needs_root!();
    let at = Terminal::new().await;
    let name = "x\nvolume other";
    let said = [
        at.ok(&["volume", "create", name, "--size", "16MiB", "--block", "--dry-run"]),
        at.ok(&["volume", "create", name, "--size", "16MiB", "--block"]),
        at.ok(&["volume", "delete", name, "--dry-run"]),
        at.fails(2, &["volume", "delete", name]),
        at.ok(&["volume", "delete", name, "--yes"]),
    ];
    for said in said {
        assert!(said.lines().count() == 1 && said.contains("x?volume other"), "{said:?}");
    }
}
