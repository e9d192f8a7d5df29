//! Ids and names that look like options, like paths, or like nothing at all.

use orlop_tests::*;

const ODD: [&str; 12] = [
    "--help",
    "-o",
    "-rf",
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "$(reboot)",
    "a b\tc",
    "line\nbreak",
    "\u{202e}🐙",
    "v-00000000-00112233445566778899aabbccddeeff/../..",
    "v-ffffffff-00112233445566778899aabbccddeeff",
];

/// What an id that was never issued may be answered with.
fn expect_harmless<T>(answer: Answer<T>) {
    if let Err(status) = answer {
        let code = status.code();
        let harmless = [Code::InvalidArgument, Code::NotFound, Code::FailedPrecondition];
        assert!(harmless.contains(&code), "{status}");
        assert!(!status.message().contains(char::is_control), "{:?}", status.message());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_id_is_not_found() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let kept = client.create("kept").size(MIB).block().done().await;
    let path = client.new_target("t");
    for odd in ODD.into_iter().chain(["\0", "nul\0byte"]) {
        expect_harmless(client.delete(odd).await);
        expect_harmless(client.get_volume(odd).await);
        expect_harmless(client.expand(odd, GIB).await);
        expect_harmless(client.modify(odd, &[("readIops", "5")]).await);
        expect_harmless(client.controller_publish(odd, "test-node", block(), false).await);
        expect_harmless(client.controller_publish(&kept.volume_id, odd, block(), false).await);
        expect_harmless(client.controller_unpublish(odd, odd).await);
        expect_harmless(client.snapshot("s", odd).await);
        expect_harmless(client.delete_snapshot(odd).await);
        expect_harmless(client.create("copy").block().from_volume(odd).send().await);
        expect_harmless(client.create("copy").block().from_snapshot(odd).send().await);
        let mut node = client.on_node(&kept, block());
        node.id = odd.to_owned();
        expect_harmless(node.stage().await);
        expect_harmless(node.publish().await);
        expect_harmless(node.stats().await);
        expect_harmless(client.node_unpublish(odd, &path).await);
        expect_harmless(client.node_unstage(odd, &path).await);
    }
    assert_eq!(pool.entries("volumes"), [kept.volume_id]);
    assert_eq!(pool.entries("snapshots"), [""; 0]);
    assert_eq!(pool.entries("staging"), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_never_becomes_a_path_or_an_argument() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Launch::on(&pool).env("ORLOP_LOG", "trace").start().await;
    let client = daemon.client();
    let watcher = ChildWatcher::on(daemon.pid());
    let mut made = Vec::new();
    for odd in ODD {
        let volume = client.create(odd).size(64 * MIB).fs("ext4").done().await;
        let id = &volume.volume_id;
        assert!(id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'), "{id}");
        made.push(volume);
    }
    // One of each shape goes all the way.
    for volume in [&made[0], &made[4], &made[8]] {
        let node = client.on_node(volume, mount("ext4"));
        node.up().await;
        node.down().await;
    }
    let mut ids: Vec<_> = made.iter().map(|volume| volume.volume_id.clone()).collect();
    ids.sort();
    assert_eq!(pool.entries("volumes"), ids);
    for id in &ids {
        client.delete(id).await.unwrap();
    }
    let use_another = async |round| {
        let name = format!("--help {round}");
        // With mkfs options a volume is not created from a template.
        let create = client.create(&name).size(64 * MIB).fs("ext4");
        let volume = create.parameter("mkfsOptions", "-L odd").done().await;
        let node = client.on_node(&volume, mount("ext4"));
        node.up().await;
        node.down().await;
    };
    watcher.until_seen("mkfs.ext4", use_another).await;
    let lines = watcher.seen();
    for odd in ["--help", "etc/passwd", "reboot", "break"] {
        let telling: Vec<_> = lines.iter().filter(|line| line.contains(odd)).collect();
        assert!(telling.is_empty(), "{telling:?}");
    }
    for banned in ["\0", "nul\0byte", "bell\u{7}", ""] {
        let refused = client.create(banned).size(MIB).block().send().await;
        expect_code(refused, Code::InvalidArgument);
    }
    daemon.terminate();
    // A line of the log is a line, whatever a caller puts into a name.
    assert!(daemon.log().lines().all(|line| !line.starts_with("break")));
}
