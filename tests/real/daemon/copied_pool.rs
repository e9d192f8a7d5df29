//! A copy of a pool directory is configured beside its original. It is refused as it is.

use orlop_sys::tool;
use orlop_tests::*;

/// All that is in the directory.
fn contents(pool: &TestPool) -> String {
    let found = tool::run("find", [pool.path.to_str().unwrap(), "-printf", "%P %s %T@\n"]).unwrap();
    let mut lines: Vec<_> =
        String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines.join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_served_pool_is_refused_unchanged() {
    needs_root!();
    for size in ["", "image_size = \"400MiB\""] {
        let pool = TestPool::new(PoolFs::Directory, 0);
        let mut daemon = Launch::on_several(&[("original", &pool, size)]).start().await;
        let volume = daemon.client().create("v").size(32 * MIB).block().done().await;
        daemon.terminate();
        let copy = pool.beside("copy", PoolFs::Directory, 0);
        let inside = format!("{}/.", pool.path.display());
        tool::run("cp", ["-a", inside.as_str(), copy.path.to_str().unwrap()]).unwrap();
        // As a daemon leaves them that was killed; the next start removes them.
        for leftover in ["staging", "trash"] {
            let leftover = copy.path.join(leftover).join(format!("{}.1", volume.volume_id));
            std::fs::create_dir_all(&leftover).unwrap();
            std::fs::write(leftover.join("data"), "the only copy").unwrap();
        }
        let before = contents(&copy);

        let both = [("original", &pool, size), ("copy", &copy, size)];
        let ended = Launch::on_several(&both).run_to_end();
        assert!(!ended.status.success());
        assert!(ended.output.contains("cannot open pool copy"), "{}", ended.output);
        assert_eq!(contents(&copy), before);
        assert_eq!(daemon.leaks(), [""; 0], "{size}");
        let checked = Launch::on_several(&both).arg("--check").run_to_end();
        assert!(!checked.status.success(), "--check: {}", checked.output);
        assert!(
            checked.output.contains("it has the same id as pool original"),
            "{}",
            checked.output
        );
    }
}
