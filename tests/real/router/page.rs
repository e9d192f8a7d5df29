//! The page of a router: which nodes it knows, and which of them answer.

use orlop_tests::*;
use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::daemon::hung::until;
use crate::daemon::page::got;

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_router_shows_nodes_and_who_is_away() {
    needs_root!();
    let mut cluster = Cluster::start(PoolFs::Directory).await;
    let nodes = |overview: &Value| -> Vec<(String, bool)> {
        let nodes = overview["peers"]["nodes"].as_array().unwrap();
        let node = |it: &Value| {
            (it["node"].as_str().unwrap().to_owned(), it["answers"].as_bool().unwrap())
        };
        nodes.iter().map(node).collect()
    };
    let overview = got(&cluster.metrics, "/api/overview").await;
    assert_eq!((&overview["mode"], &overview["pools"]), (&json!("router"), &json!([])));
    let both = [("node-a".to_owned(), true), ("node-b".to_owned(), true)];
    assert_eq!(nodes(&overview), both);
    let first = &overview["peers"]["nodes"][0];
    assert_eq!(first["pools"][0]["name"], "default");
    assert!(overview["peers"]["certificate_expiry"].as_u64().is_some());
    // Volumes are on the nodes.
    assert_eq!(got(&cluster.metrics, "/api/volumes").await["total"], 0);

    cluster.nodes[1].daemon.kill9();
    until("the router notices", || async {
        let overview = got(&cluster.metrics, "/api/overview").await;
        let away = &overview["peers"]["nodes"][1];
        away["answers"] == false && away["why"].as_str().is_some_and(|why| !why.is_empty())
    })
    .await;
    assert!(nodes(&got(&cluster.metrics, "/api/overview").await)[0].1);
}
