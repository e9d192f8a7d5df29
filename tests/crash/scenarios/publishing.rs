//! NodePublishVolume and NodeUnpublishVolume, of mounts, devices and inline volumes.

use std::os::unix::fs::FileExt;

use orlop_tests::{Answer, MIB, OnNode, block, mount, v1};

use crate::each_crash_point::{Scenario, ScenarioRunner};
use crate::fixture::{Fixture, settled};

pub(crate) async fn all(runner: &mut impl ScenarioRunner) {
    for back in [false, true] {
        runner.run(&Publish { device: false, readonly: true, back }).await;
        runner.run(&Publish { device: true, readonly: false, back }).await;
        runner.run(&Publish { device: true, readonly: true, back }).await;
    }
}

pub(crate) async fn inline(runner: &mut impl ScenarioRunner) {
    runner.run(&Inline { back: false }).await;
    runner.run(&Inline { back: true }).await;
}

struct Publish {
    device: bool,
    readonly: bool,
    back: bool,
}

impl Publish {
    async fn publish(&self, fixture: &Fixture, node: &OnNode) -> Answer<()> {
        let request = v1::NodePublishVolumeRequest {
            readonly: self.readonly,
            // A reader of an encrypted volume gets another mapping, which takes the key.
            secrets: node.secrets.clone(),
            ..node.publish_request()
        };
        fixture.client().node_publish(request).await
    }
}

impl Scenario for Publish {
    type State = OnNode;

    fn name(&self) -> &'static str {
        match (self.device, self.readonly, self.back) {
            (false, _, false) => "publish-mount",
            (false, _, true) => "unpublish-mount",
            (true, false, false) => "publish-device",
            (true, false, true) => "unpublish-device",
            (true, true, false) => "publish-read-only-device",
            (true, true, true) => "unpublish-read-only-device",
        }
    }

    fn rpc(&self) -> &'static str {
        match self.back {
            false => "csi.v1.Node/NodePublishVolume",
            true => "csi.v1.Node/NodeUnpublishVolume",
        }
    }

    async fn prepare(&self, fixture: &Fixture, tag: &str) -> OnNode {
        let client = fixture.client();
        let capability = if self.device { block() } else { mount("ext4") };
        let create = client.create(tag).size(32 * MIB).capability(capability.clone());
        let node = client.on_node(&create.done().await, capability);
        node.stage().await.expect("stage");
        self.roll_back(fixture, &node).await;
        node
    }

    async fn call(&self, fixture: &Fixture, node: &OnNode) -> Answer<()> {
        if self.back {
            return node.unpublish().await;
        }
        self.publish(fixture, node).await
    }

    async fn holds(&self, _: &Fixture, node: &OnNode) {
        if self.back {
            assert!(!node.target.exists(), "{} is left", node.target.display());
            return;
        }
        let mut how = std::fs::File::options();
        let opened = how.read(true).write(true).create(!self.device).open(node.data_path());
        // The kernel lets a read-only device be opened for writing, and refuses the write.
        let written = opened.and_then(|file| file.write_at(&[7; 4096], 0).and(file.sync_all()));
        assert_eq!(written.is_err(), self.readonly, "{written:?}");
    }

    async fn roll_back(&self, fixture: &Fixture, node: &OnNode) {
        match self.back {
            false => settled("unpublish", || node.unpublish()).await,
            true => settled("publish", || self.publish(fixture, node)).await,
        }
    }

    async fn clear(&self, fixture: &Fixture, node: OnNode) {
        node.down().await;
        fixture.client().delete(&node.id).await.expect("delete");
    }
}

/// Made, staged and published in one call, and all of it taken back in one.
struct Inline {
    back: bool,
}

impl Inline {
    fn request(fixture: &Fixture, id: &str) -> v1::NodePublishVolumeRequest {
        let target = fixture.client().new_target(id);
        v1::NodePublishVolumeRequest {
            volume_id: id.to_owned(),
            target_path: target.to_str().expect("text").to_owned(),
            volume_capability: Some(mount("ext4")),
            volume_context: [
                ("csi.storage.k8s.io/ephemeral".to_owned(), "true".to_owned()),
                ("size".to_owned(), "32Mi".to_owned()),
            ]
            .into(),
            ..Default::default()
        }
    }
}

impl Scenario for Inline {
    type State = String;

    fn name(&self) -> &'static str {
        if self.back { "unpublish-inline" } else { "publish-inline" }
    }

    fn rpc(&self) -> &'static str {
        match self.back {
            false => "csi.v1.Node/NodePublishVolume",
            true => "csi.v1.Node/NodeUnpublishVolume",
        }
    }

    async fn prepare(&self, fixture: &Fixture, tag: &str) -> String {
        let id = format!("csi-{tag}");
        self.roll_back(fixture, &id).await;
        id
    }

    async fn call(&self, fixture: &Fixture, id: &String) -> Answer<()> {
        if self.back {
            return fixture.client().node_unpublish(id, &fixture.client().new_target(id)).await;
        }
        fixture.client().node_publish(Self::request(fixture, id)).await
    }

    async fn holds(&self, fixture: &Fixture, id: &String) {
        let target = fixture.client().new_target(id);
        if self.back {
            assert!(!target.exists(), "{} is left", target.display());
            return;
        }
        std::fs::write(target.join("file"), "of a workload").expect("write");
    }

    async fn roll_back(&self, fixture: &Fixture, id: &String) {
        let client = fixture.client();
        let target = client.new_target(id);
        match self.back {
            false => settled("unpublish", || client.node_unpublish(id, &target)).await,
            true => settled("publish", || client.node_publish(Self::request(fixture, id))).await,
        }
    }

    async fn clear(&self, fixture: &Fixture, id: String) {
        let target = fixture.client().new_target(&id);
        fixture.client().node_unpublish(&id, &target).await.expect("unpublish");
    }
}
