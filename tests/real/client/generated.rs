//! Completion scripts and man pages.

use orlop_tests::*;

#[test]
fn every_shell_gets_a_completion_script() {
    let launch = Launch::without_pool();
    for shell in ["bash", "zsh", "fish"] {
        let ran = launch.run(&["completion", shell]);
        assert_eq!(ran.status.code(), Some(0), "{}", ran.stderr);
        for word in ["snapshot", "--from-snapshot", "unmount"] {
            let word = word.trim_start_matches("--");
            assert!(ran.stdout.contains(word), "{shell}: {word}");
        }
    }
    let script = launch.scratch().join("completion");
    std::fs::write(&script, launch.run(&["completion", "bash"]).stdout).unwrap();
    let check = format!(". {} && complete -p orlop", script.display());
    let output = orlop_sys::tool::run("bash", ["-c", &check]).unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("_orlop"));
    assert_eq!(launch.run(&["completion", "csh"]).status.code(), Some(2));
}

#[test]
fn every_command_has_a_man_page() {
    let launch = Launch::without_pool();
    let directory = launch.scratch().join("man");
    let ran = launch.run(&["man", directory.to_str().unwrap()]);
    assert_eq!(ran.status.code(), Some(0), "{}", ran.stderr);
    for page in [
        "orlop.1",
        "orlop-serve.1",
        "orlop-volume-create.1",
        "orlop-snapshot-diff.1",
        "orlop-node-forget.1",
    ] {
        let text = std::fs::read_to_string(directory.join(page)).expect(page);
        assert!(text.contains(".TH") && text.contains("NAME"), "{page}");
    }
    let serve = launch.run(&["serve", "--help"]).stdout;
    assert!(serve.contains("cannot start without") && serve.contains("ORLOP_POOL"), "{serve}");
}
