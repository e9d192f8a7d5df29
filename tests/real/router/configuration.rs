//! Settings that cannot work say so before anything starts.

use orlop_tests::*;

use crate::router::cluster::{addresses, launch};

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_in_peers_are_named() {
    needs_root!();
    let authority = Authority::new();
    let router = || {
        launch(Launch::without_pool(), "router", &authority)
            .env("ORLOP_MODE", "router")
            .env("ORLOP_PEERS", addresses().join(","))
    };
    let pool = TestPool::new(PoolFs::Directory, 0);
    let elsewhere = router();
    let foreign = Authority::new().issue("other", &elsewhere.scratch().ensure_dir("other"));
    let cases = [
        (router().without_env("ORLOP_PEERS"), "ORLOP_PEERS: is not set"),
        (router().env("ORLOP_PEERS", "node-a"), "\"node-a\" is not HOST:PORT"),
        (router().without_env("ORLOP_PEER_KEY"), "ORLOP_PEER_KEY: is not set"),
        (router().env("ORLOP_PEER_CA", "/nowhere/ca.crt"), "cannot read /nowhere/ca.crt"),
        (router().env("ORLOP_NODE_ID", "another"), "it is not for node another"),
        (router().env("ORLOP_NODE_ID", "node.1"), "ORLOP_NODE_ID: node.1 cannot be used in"),
        (router().env("ORLOP_PEER_CA", &foreign[2].1), "it is not signed by a certificate in"),
        (router().env("ORLOP_POOL", &pool.path), "router, which has no pool"),
        (router().env("ORLOP_PEER_LISTEN", "7420"), "\"7420\" is not an address"),
        (
            Launch::on(&pool).env("ORLOP_PEER_KEY", &foreign[1].1),
            "set ORLOP_PEERS or ORLOP_PEER_LISTEN",
        ),
    ];
    for (launch, expected) in cases {
        for launch in [launch.clone(), launch.arg("--check")] {
            let ended = launch.run_to_end();
            assert_eq!(ended.status.code(), Some(2), "{expected}: {}", ended.output);
            let reason = ended.output.lines().last().unwrap_or_default();
            assert!(reason.contains(expected), "{expected}: {reason}");
        }
    }
    let checked = router().arg("--check").run_to_end();
    assert_eq!(checked.status.code(), Some(0), "{}", checked.output);
}
