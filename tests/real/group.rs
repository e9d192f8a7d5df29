//! Snapshots of several volumes: one instant, all or nothing, and no writer stays frozen.

mod all_or_nothing;
mod instant;
mod killed;

use orlop_tests::*;

/// Volumes of one use, staged and published.
async fn members(client: &Client, uses: &[v1::VolumeCapability], size: u64) -> Vec<OnNode> {
    let mut nodes = Vec::new();
    for (index, capability) in uses.iter().enumerate() {
        let create = client.create(&format!("member {index}")).size(size);
        let volume = create.capability(capability.clone()).done().await;
        let node = client.on_node(&volume, capability.clone());
        node.up().await;
        nodes.push(node);
    }
    nodes
}

fn ids(nodes: &[OnNode]) -> Vec<String> {
    nodes.iter().map(|node| node.id.clone()).collect()
}

async fn take_down(client: &Client, nodes: &[OnNode]) {
    for node in nodes {
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
}

/// Nothing of any snapshot, neither to see nor on the disk.
async fn assert_no_snapshot(pool: &TestPool, client: &Client) {
    assert_eq!(client.list_snapshots().await.unwrap(), []);
    assert_eq!(pool.entries("snapshots"), [""; 0]);
    assert_eq!(pool.entries("staging"), [""; 0]);
}
