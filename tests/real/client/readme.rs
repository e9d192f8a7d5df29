//! What the README tells a newcomer to type.

use orlop_sys::tool;
use orlop_tests::*;

use super::Terminal;

/// The commands of the tour, without those that name the daemon of `make run`.
fn tour() -> String {
    let readme = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let text = std::fs::read_to_string(readme).unwrap();
    let (_, tour) = text.split_once("## A tour in five minutes").expect("there is a tour");
    let (_, block) = tour.split_once("```sh\n").expect("of commands");
    let (commands, _) = block.split_once("```").unwrap();
    let of_run = |line: &&str| !line.starts_with("export ");
    commands.lines().filter(of_run).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tour_of_the_readme_works_as_it_stands() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 8 * GIB);
    let daemon = Daemon::start(&pool).await;
    let at = Terminal { pool, daemon };
    let script = tour().replace("/tmp/tour", &at.path("tour"));
    assert!(script.contains("orlop snapshot restore") && script.lines().count() > 15, "{script}");
    let directory = binary().parent().unwrap().to_owned();
    let of_daemon = at.daemon.launch();
    let variables = [
        format!("PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", directory.display()),
        format!("CSI_ENDPOINT=unix://{}", of_daemon.socket().display()),
        format!("ORLOP_RUN_DIR={}", of_daemon.scratch().join("run").display()),
        format!("ORLOP_POOL={}", at.pool.path.display()),
        "ORLOP_NODE_ID=test-node".to_owned(),
    ];
    let words = ["-i"].into_iter().chain(variables.iter().map(String::as_str));
    let words: Vec<&str> = words.chain(["bash", "-euxc", &script]).collect();
    let output = tool::run("env", words).expect("every command of the tour succeeds");
    let said = String::from_utf8(output.stdout).unwrap();
    for part in
        ["\nprecious\n", "changed: ", "copies\n├─ snapshot ", "sound", "deleted snapshot night"]
    {
        assert!(said.contains(part), "{part:?} is missing: {said}");
    }
    assert_eq!(at.volumes(), 0);
}
