//! Objects that existed before all crashes, and that none of them may touch.

use std::fs::File;
use std::os::unix::fs::FileExt;

use orlop_tests::{Client, MIB, OnNode, Pattern, block};

/// A volume in use, and a snapshot of another.
pub(crate) struct Preexisting {
    pub(crate) node: OnNode,
    pub(crate) snapshot: String,
    round: u64,
    source: String,
}

const KEPT: Pattern = Pattern::new(77);
const BLOCK: usize = 4096;

impl Preexisting {
    pub(crate) async fn new(client: &Client) -> Self {
        let source = client.create("preexisting-source").size(64 * MIB).block().done().await;
        let on_node = client.on_node(&source, block());
        on_node.up().await;
        KEPT.write(&on_node.target, 8 * MIB);
        on_node.down().await;
        let snapshot = client.snapshot("preexisting-snapshot", &source.volume_id).await;
        let volume = client.create("preexisting").size(64 * MIB).block().done().await;
        let node = client.on_node(&volume, block());
        node.up().await;
        let snapshot = snapshot.expect("a snapshot").snapshot_id;
        Self { node, round: 0, snapshot, source: source.volume_id }
    }

    /// The volume still takes writes, and holds the last one.
    pub(crate) fn check_and_write(&mut self) {
        let device = File::options().read(true).write(true).open(&self.node.target);
        let device = device.expect("open the volume in use");
        if self.round > 0 {
            let mut found = [0; BLOCK];
            device.read_exact_at(&mut found, 0).expect("read the volume in use");
            assert!(found[..] == Pattern::new(self.round).bytes(0, BLOCK), "a write was lost");
        }
        self.round += 1;
        let written = device.write_all_at(&Pattern::new(self.round).bytes(0, BLOCK), 0);
        written.and_then(|()| device.sync_data()).expect("write to the volume in use");
    }

    pub(crate) async fn finish(self, client: &Client) {
        let Self { node, snapshot, source, .. } = self;
        node.down().await;
        let copy = client.create("preexisting-copy").size(64 * MIB).block();
        let copy = copy.from_snapshot(&snapshot).done().await;
        let on_node = client.on_node(&copy, block());
        on_node.up().await;
        KEPT.check(&on_node.target, 8 * MIB);
        on_node.down().await;
        for volume in [&copy.volume_id, &node.id, &source] {
            client.delete(volume).await.expect("delete a preexisting object");
        }
        client.delete_snapshot(&snapshot).await.expect("delete a preexisting object");
    }
}
