//! What is in the pool of a fixture: one of each kind of thing that a pool keeps.

use std::collections::BTreeMap;
use std::path::PathBuf;

use orlop_tests::*;

/// Little, for the fixture is kept in the repository.
const DATA: u64 = 16 << 10;
const MOUNTED: u64 = 16 * MIB;
const INLINE: &str = "csi-00000000000000000000000000000000000000000000000000000000000000f1";

const OF_MOUNTED: Pattern = Pattern::new(1);
const OF_RAW: Pattern = Pattern::new(2);
/// Written after the snapshots.
const LATER: Pattern = Pattern::new(3);
const OF_INLINE: Pattern = Pattern::new(4);

pub(crate) struct Contents {
    mounted: v1::Volume,
    raw: v1::Volume,
    thick: v1::Volume,
    copy: v1::Volume,
    snapshot: v1::Snapshot,
    moment: v1::VolumeGroupSnapshot,
    group: String,
}

/// Published on this node.
pub(crate) struct Used {
    pub(crate) mounted: OnNode,
    pub(crate) raw: OnNode,
    inline: PathBuf,
}

impl Contents {
    pub(crate) async fn make(client: &Client) -> Self {
        let raw = client.create("raw").size(MIB).block().done().await;
        let mounted = client.create("mounted").size(MOUNTED).fs("ext4").done().await;
        let thick = client.create("thick").size(MIB).block().thick().done().await;
        let on_node = [client.on_node(&mounted, mount("ext4")), client.on_node(&raw, block())];
        for (node, data) in on_node.iter().zip([OF_MOUNTED, OF_RAW]) {
            node.up().await;
            data.write(&node.data_path(), DATA);
            node.down().await;
        }
        let snapshot = client.snapshot("snapshot", &mounted.volume_id).await.unwrap();
        let sources = [mounted.volume_id.clone(), raw.volume_id.clone()];
        let moment = client.group_snapshot("moment", &sources).await.unwrap();
        let copy = client.create("copy").fs("ext4").from_snapshot(&snapshot.snapshot_id);
        let copy = copy.done().await;
        on_node[1].up().await;
        LATER.write_at(&on_node[1].target, DATA, DATA);
        on_node[1].down().await;
        let members = [raw.volume_id.as_str(), thick.volume_id.as_str()];
        let group = VolumeGroups::of(client).create("group", &members).await.unwrap();
        let inline = client.new_target("inline");
        client.node_publish(inline_request(&inline)).await.unwrap();
        OF_INLINE.write(&inline.join("file"), DATA);
        client.controller_publish(&thick.volume_id, "test-node", block(), true).await.unwrap();
        let group = group.volume_group_id;
        Self { mounted, raw, thick, copy, snapshot, moment, group }
    }

    /// By the names, from what the pool lists.
    pub(crate) async fn found(client: &Client) -> Self {
        let listed = client.list_volumes().await.unwrap();
        assert_eq!(listed.len(), 5, "{listed:?}");
        let snapshots = client.list_snapshots().await.unwrap();
        assert_eq!(snapshots.len(), 3, "{snapshots:?}");
        let single = |each: &&v1::Snapshot| each.group_snapshot_id.is_empty();
        let snapshot = snapshots.iter().find(single).unwrap().clone();
        let member = snapshots.iter().find(|each| !single(each)).unwrap();
        let members: Vec<_> = snapshots
            .iter()
            .filter(|each| !single(each))
            .map(|each| each.snapshot_id.clone())
            .collect();
        let moment = client.get_group_snapshot(&member.group_snapshot_id, &members).await.unwrap();
        let groups = VolumeGroups::of(client).list().await;
        assert_eq!(groups.len(), 1);

        // The same call finds what it made.
        let raw = client.create("raw").size(MIB).block().done().await;
        let mounted = client.create("mounted").size(MOUNTED).fs("ext4").done().await;
        let thick = client.create("thick").size(MIB).block().thick().done().await;
        let copy = client.create("copy").fs("ext4").from_snapshot(&snapshot.snapshot_id);
        let copy = copy.done().await;
        assert_eq!(client.list_volumes().await.unwrap().len(), 5, "something was made");
        let again = client.snapshot("snapshot", &mounted.volume_id).await.unwrap();
        assert_eq!(again, snapshot);
        let sources = [mounted.volume_id.clone(), raw.volume_id.clone()];
        assert_eq!(client.group_snapshot("moment", &sources).await.unwrap(), moment);
        let group = groups[0].volume_group_id.clone();
        Self { mounted, raw, thick, copy, snapshot, moment, group }
    }

    pub(crate) async fn check(&self, client: &Client) {
        for entry in client.list_volumes().await.unwrap() {
            let condition = entry.status.unwrap().volume_condition.unwrap();
            assert!(!condition.abnormal, "{}", condition.message);
        }
        let used = self.take_into_use(client).await;
        self.check_in_use(&used);
        for node in [&used.mounted, &used.raw] {
            node.down().await;
        }
        let members = VolumeGroups::of(client).get(&self.group).await.unwrap().volumes;
        let members: Vec<_> = members.iter().map(|each| &each.volume_id).collect();
        assert_eq!(members.len(), 2);
        assert!(members.contains(&&self.raw.volume_id) && members.contains(&&self.thick.volume_id));
        let thick = client.get_volume(&self.thick.volume_id).await.unwrap();
        assert_eq!(thick.status.unwrap().published_node_ids, ["test-node"]);
    }

    pub(crate) async fn check_copies(&self, client: &Client) {
        let of_raw = self.moment.member_of(&self.raw.volume_id);
        let restored = client.create("restored").block().from_snapshot(&of_raw.snapshot_id);
        let restored = client.on_node(&restored.done().await, block());
        restored.up().await;
        OF_RAW.check(&restored.target, DATA);
        assert!(is_all_zero(&restored.target, DATA, DATA), "it was written later");
        restored.down().await;
        client.delete(&restored.id).await.unwrap();
        let of_mounted = self.moment.member_of(&self.mounted.volume_id);
        let restored = client.create("restored").fs("ext4").from_snapshot(&of_mounted.snapshot_id);
        let restored = restored.done().await;
        for copy in [&self.copy, &restored] {
            let node = client.on_node(copy, mount("ext4"));
            node.up().await;
            OF_MOUNTED.check(&node.data_path(), DATA);
            node.down().await;
        }
        client.delete(&restored.volume_id).await.unwrap();
    }

    /// Idempotent, as an orchestrator's calls are.
    pub(crate) async fn take_into_use(&self, client: &Client) -> Used {
        let mounted = client.on_node(&self.mounted, mount("ext4"));
        let raw = client.on_node(&self.raw, block());
        let inline = client.new_target("inline");
        mounted.up().await;
        raw.up().await;
        client.node_publish(inline_request(&inline)).await.unwrap();
        Used { mounted, raw, inline }
    }

    pub(crate) fn check_in_use(&self, used: &Used) {
        OF_MOUNTED.check(&used.mounted.data_path(), DATA);
        OF_RAW.check(&used.raw.target, DATA);
        LATER.check_at(&used.raw.target, DATA, DATA);
        OF_INLINE.check(&used.inline.join("file"), DATA);
    }

    pub(crate) async fn delete(&self, client: &Client) {
        client.node_unpublish(INLINE, &client.new_target("inline")).await.unwrap();
        let mut groups = VolumeGroups::of(client);
        groups.modify(&self.group, &[]).await.unwrap();
        groups.delete(&self.group).await.unwrap();
        client.controller_unpublish(&self.thick.volume_id, "test-node").await.unwrap();
        for volume in [&self.copy, &self.thick, &self.raw, &self.mounted] {
            client.delete(&volume.volume_id).await.unwrap();
        }
        let members = self.moment.member_ids();
        client.delete_group_snapshot(&self.moment.group_snapshot_id, &members).await.unwrap();
        client.delete_snapshot(&self.snapshot.snapshot_id).await.unwrap();
    }
}

impl Used {
    pub(crate) async fn take_down(&self, client: &Client) {
        self.mounted.down().await;
        self.raw.down().await;
        client.node_unpublish(INLINE, &self.inline).await.unwrap();
    }
}

fn inline_request(target: &std::path::Path) -> v1::NodePublishVolumeRequest {
    let context = [("csi.storage.k8s.io/ephemeral", "true"), ("size", "16Mi")];
    v1::NodePublishVolumeRequest {
        volume_id: INLINE.to_owned(),
        target_path: target.to_str().unwrap().to_owned(),
        volume_capability: Some(mount("ext4")),
        volume_context: BTreeMap::from(context.map(|(key, value)| (key.into(), value.into()))),
        ..v1::NodePublishVolumeRequest::default()
    }
}
