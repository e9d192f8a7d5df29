//! A pool is taken out of the configuration while a volume on it is in use.

use orlop_sys::loopdev;
use orlop_tests::*;

fn is_attached(id: &str) -> bool {
    loopdev::attached(|_| false).unwrap().iter().any(|device| device.label == id)
}

/// A raw volume mounts nothing at its staging path: only the node record tells that it is in use. The
/// node's calls need no more than that.
#[tokio::test(flavor = "multi_thread")]
async fn raw_volume_of_an_unconfigured_pool_is_let_go() {
    needs_root!();
    let near = TestPool::new(PoolFs::Directory, 0);
    let far = near.beside("far", PoolFs::Directory, 0);
    let both = [("near", &near, ""), ("far", &far, "")];
    let mut daemon = Launch::on_several(&both).start().await;
    let client = daemon.client();
    let create = client.create("raw").size(MIB).block().parameter("pool", "far");
    let node = client.on_node(&create.done().await, block());
    node.up().await;
    daemon.terminate();

    let mut without = Launch::on_several(&both[..1]).start().await;
    for answer in [
        client.controller_unpublish(&node.id, "test-node").await,
        client.controller_unpublish(&node.id, "").await,
    ] {
        let status = expect_code(answer, Code::NotFound);
        assert!(status.message().contains("is not configured on this daemon"), "{status}");
        assert!(status.message().contains("in use on this node"), "{status}");
    }
    assert!(is_attached(&node.id) && node.target.exists());
    let in_use = "the volume is in use here, but its pool is not configured";
    let log = without.log();
    let line = log.lines().find(|line| line.contains(in_use)).expect(&log);
    assert!(line.contains(" WARN ") && line.contains(&node.id), "{line}");
    let settings = near.scratch().join("orlop.toml");
    let settings = settings.to_str().unwrap();
    for is_served in [true, false] {
        if !is_served {
            without.terminate();
        }
        let ran = without.launch().run(&["doctor", "--repair", "--config", settings]);
        assert_eq!(ran.status.code(), Some(1), "{}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains("pool-not-configured"), "{}", ran.stdout);
        assert!(ran.stdout.contains(&node.id), "{}", ran.stdout);
        assert!(is_attached(&node.id), "the doctor took away what is in use");
    }

    without.restart().await;
    expect_code(node.unstage().await, Code::FailedPrecondition);
    node.down().await;
    assert!(!is_attached(&node.id) && !node.target.exists());
    client.controller_unpublish(&node.id, "test-node").await.unwrap();
    without.terminate();
    let ran = without.launch().run(&["doctor", "--config", settings]);
    assert_eq!(ran.status.code(), Some(0), "{}{}", ran.stdout, ran.stderr);

    let mut daemon = Launch::on_several(&both).start().await;
    node.up().await;
    node.down().await;
    daemon.terminate();
}
