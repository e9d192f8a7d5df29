//! `make clean-run` beside a daemon.

use orlop_sys::tool;
use orlop_tests::*;

#[tokio::test(flavor = "multi_thread")]
async fn clean_run_refuses_while_a_daemon_uses_the_pool() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    daemon.client().create("kept").size(MIB).block().done().await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/clean-run");
    let home = format!("ORLOP_TEST_HOME={}", pool.scratch().path().display());
    let refused = tool::run("env", [home.as_str(), script]).unwrap_err().to_string();
    assert!(refused.contains("a daemon uses"), "{refused}");
    assert_eq!(pool.entries("volumes").len(), 1, "the pool was deleted under the daemon");
    daemon.terminate();
}

/// It is not below the directory that is to be removed, so only the client's notes name it.
#[tokio::test(flavor = "multi_thread")]
async fn clean_run_names_what_is_mounted_by_hand() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let elsewhere = Scratch::new();
    let target = elsewhere.join("by hand");
    let launch = daemon.launch().clone();
    let mount = ["volume", "mount", "kept", target.to_str().unwrap()];
    for words in [&["volume", "create", "kept", "--size", "16MiB", "--fs", "ext4"][..], &mount] {
        assert!(launch.run(words).status.success(), "{words:?}");
    }
    daemon.terminate();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/clean-run");
    let home = format!("ORLOP_TEST_HOME={}", pool.scratch().path().display());
    let refused = tool::run("env", [home.as_str(), script]).unwrap_err().to_string();
    assert!(refused.contains(&format!("mounted by hand: {}", target.display())), "{refused}");
    assert!(refused.contains("orlop volume unmount"), "{refused}");
    daemon.restart().await;
    assert!(launch.run(&["volume", "unmount", "kept"]).status.success());
    daemon.terminate();
}

/// As a suite whose temporary directory could not be made would, of all mounts and devices of the machine.
#[test]
fn nothing_is_looked_for_below_the_root_directory() {
    let shown = |functions: &str| {
        let text = format!("set -euo pipefail; source {SCRIPTS}/loops; {functions}");
        let ran = tool::run_accepting("bash", ["-c", &text], &[0, 1]).unwrap();
        (ran.status.code(), String::from_utf8(ran.stdout).unwrap())
    };
    for function in ["mounts_under", "loops_backed_under"] {
        for directory in ["''", "/", "//", ".", "tmp"] {
            let (status, listed) = shown(&format!("{function} {directory}"));
            assert_eq!((status, listed.as_str()), (Some(1), ""), "{function} {directory}");
        }
    }
    assert_eq!(shown("mounts_under /proc").1.lines().last(), Some("/proc"));
}

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts");

/// A script in the background, as in a terminal. Killed when dropped.
struct Script(std::process::Child);

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "a script of the repository is no host tool")]
async fn run_serves_a_managed_pool_and_says_what_to_type_next() {
    needs_root!();
    let ground = Launch::without_pool().idle();
    let home = ground.launch().scratch().path().to_owned();
    let said = home.join("said");
    let output = std::fs::File::create(&said).unwrap();
    let run = std::process::Command::new(format!("{SCRIPTS}/run"))
        .env("ORLOP_TEST_HOME", &home)
        .env("ORLOP_TEST_BINARY", binary())
        .stdin(std::process::Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn();
    let mut run = Script(run.unwrap());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let text = loop {
        let text = std::fs::read_to_string(&said).unwrap();
        if text.contains("make clean-run") {
            break text;
        }
        assert!(
            run.0.try_wait().unwrap().is_none() && std::time::Instant::now() < deadline,
            "{text}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let socket = home.join("csi.sock");
    assert!(text.contains(&format!("socket   {}", socket.display())), "{text}");
    assert!(text.contains("a sparse XFS image"), "{text}");
    // The lines to type are those of a shell.
    let export = text.lines().find_map(|line| line.trim().strip_prefix("export ")).unwrap();
    let probe = text.lines().find(|line| line.ends_with(" probe --ready")).unwrap();
    tool::run("sh", ["-c", &format!("export {export}; {probe}")]).unwrap();
    // A second one ends at once, and does not pretend to be the first.
    let words = [
        format!("ORLOP_TEST_HOME={}", home.display()),
        format!("ORLOP_TEST_BINARY={}", binary().display()),
        format!("{SCRIPTS}/run"),
    ];
    let refused = tool::run("env", &words).unwrap_err().to_string();
    assert!(refused.contains("a daemon runs here already"), "{refused}");
    assert!(!refused.contains("The daemon is ready"), "{refused}");
    let pid = rustix::process::Pid::from_child(&run.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(run.0.wait().unwrap().success(), "{}", std::fs::read_to_string(&said).unwrap());
    assert_eq!(ground.leaks(), [""; 0]);
    let home = format!("ORLOP_TEST_HOME={}", home.display());
    tool::run("env", [home.as_str(), &format!("{SCRIPTS}/clean-run")]).unwrap();
    assert!(!socket.parent().unwrap().exists(), "clean-run left something");
    // Its directory is what the fixture looks at when it ends.
    std::fs::create_dir(socket.parent().unwrap()).unwrap();
}
