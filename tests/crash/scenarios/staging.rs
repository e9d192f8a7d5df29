//! NodeStageVolume and NodeUnstageVolume: devices, filesystems, mounts.

use std::os::unix::fs::MetadataExt;

use orlop_tests::{Answer, MIB, OnNode, Pattern, VolumeCapabilityExt, mount, v1};

use crate::each_crash_point::{Scenario, ScenarioRunner};
use crate::fixture::{Fixture, settled};

const DATA: Pattern = Pattern::new(6);
const WRITTEN: u64 = 128 << 10;
const GROUP: u32 = 4321;

pub(crate) async fn first(runner: &mut impl ScenarioRunner) {
    for fs in ["xfs", "ext4", "btrfs"] {
        runner.run(&Stage { fs, of: Of::New }).await;
    }
}

pub(crate) async fn copies(runner: &mut impl ScenarioRunner) {
    runner.run(&Stage { fs: "ext4", of: Of::Copy }).await;
    runner.run(&Stage { fs: "btrfs", of: Of::Copy }).await;
}

pub(crate) async fn others(runner: &mut impl ScenarioRunner) {
    runner.run(&Stage { fs: "xfs", of: Of::Copy }).await;
    runner.run(&Stage { fs: "ext4", of: Of::Used }).await;
    runner.run(&Unstage).await;
}

/// Whose first stage it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// A new volume: mkfs.
    New,
    /// A larger copy: a new UUID, and growth.
    Copy,
    /// Files that are given to a group.
    Used,
}

struct Stage {
    fs: &'static str,
    of: Of,
}

pub(crate) struct Staged {
    node: OnNode,
    /// What the copy is one of, in use.
    original: Option<OnNode>,
}

impl Stage {
    fn capability(&self) -> v1::VolumeCapability {
        mount(self.fs)
    }

    async fn volume(&self, fixture: &Fixture, tag: &str) -> OnNode {
        let mut create = fixture.client().create(tag).size(320 * MIB).capability(self.capability());
        if self.of == Of::New {
            // Else it would be born with its filesystem.
            create = create.parameter("mkfsOptions", "-L walked");
        }
        fixture.client().on_node(&create.done().await, self.capability())
    }

    async fn copy(&self, fixture: &Fixture, original: &OnNode) -> OnNode {
        let client = fixture.client();
        let copy = client.create(&format!("{}-copy", self.name())).size(384 * MIB);
        let copy = copy.capability(self.capability()).from_volume(&original.id);
        client.on_node(&copy.done().await, self.capability())
    }

    /// Of the group that its files are to be given to.
    async fn used(&self, fixture: &Fixture) -> OnNode {
        let node = self.volume(fixture, self.name()).await;
        node.up().await;
        DATA.write(&node.data_path(), WRITTEN);
        std::fs::create_dir(node.target.join("below")).expect("make a directory");
        DATA.write(&node.target.join("below/file"), 4096);
        node.down().await;
        node.with_capability(self.capability().group(&GROUP.to_string()))
    }

    /// As it was before it was ever staged.
    async fn renew(&self, fixture: &Fixture, original: Option<&OnNode>) -> OnNode {
        match (self.of, original) {
            (Of::Copy, Some(original)) => self.copy(fixture, original).await,
            (Of::Used, _) => self.used(fixture).await,
            (Of::New | Of::Copy, _) => self.volume(fixture, self.name()).await,
        }
    }
}

impl Scenario for Stage {
    type State = Staged;

    fn name(&self) -> &'static str {
        match (self.fs, self.of) {
            ("xfs", Of::New) => "stage-xfs",
            ("ext4", Of::New) => "stage-ext4",
            (_, Of::New) => "stage-btrfs",
            ("xfs", Of::Copy) => "stage-copy-xfs",
            ("ext4", Of::Copy) => "stage-copy-ext4",
            (_, Of::Copy) => "stage-copy-btrfs",
            (_, Of::Used) => "stage-with-group",
        }
    }

    fn rpc(&self) -> &'static str {
        "csi.v1.Node/NodeStageVolume"
    }

    async fn prepare(&self, fixture: &Fixture, tag: &str) -> Staged {
        let mut original = None;
        if self.of == Of::Copy {
            let node = self.volume(fixture, &format!("{tag}-original")).await;
            node.up().await;
            DATA.write(&node.data_path(), WRITTEN);
            original = Some(node);
        }
        let node = self.renew(fixture, original.as_ref()).await;
        Staged { node, original }
    }

    async fn call(&self, _: &Fixture, staged: &Staged) -> Answer<()> {
        staged.node.stage().await
    }

    async fn holds(&self, _: &Fixture, staged: &Staged) {
        let node = &staged.node;
        node.publish().await.expect("publish");
        if self.of != Of::New {
            DATA.check(&node.data_path(), WRITTEN);
        }
        if self.of == Of::Used {
            let given = std::fs::metadata(node.target.join("below/file")).expect("a file");
            assert_eq!((given.gid(), given.mode() & 0o060), (GROUP, 0o060));
        }
        DATA.write(&node.target.join("new"), WRITTEN);
        node.unpublish().await.expect("unpublish");
    }

    async fn roll_back(&self, fixture: &Fixture, staged: &Staged) {
        settled("unstage", || staged.node.unstage()).await;
        settled("delete", || fixture.client().delete(&staged.node.id)).await;
        let renewed = self.renew(fixture, staged.original.as_ref()).await;
        assert_eq!(renewed.id, staged.node.id);
    }

    async fn clear(&self, fixture: &Fixture, staged: Staged) {
        fixture.client().delete(&staged.node.id).await.expect("delete");
        if let Some(original) = staged.original {
            original.down().await;
            fixture.client().delete(&original.id).await.expect("delete");
        }
    }
}

struct Unstage;

impl Scenario for Unstage {
    type State = OnNode;

    fn name(&self) -> &'static str {
        "unstage"
    }

    fn rpc(&self) -> &'static str {
        "csi.v1.Node/NodeUnstageVolume"
    }

    async fn prepare(&self, fixture: &Fixture, tag: &str) -> OnNode {
        let create = fixture.client().create(tag).size(32 * MIB).fs("ext4");
        let node = fixture.client().on_node(&create.done().await, mount("ext4"));
        node.up().await;
        DATA.write(&node.data_path(), WRITTEN);
        node.unpublish().await.expect("unpublish");
        node
    }

    async fn call(&self, _: &Fixture, node: &OnNode) -> Answer<()> {
        node.unstage().await
    }

    async fn holds(&self, fixture: &Fixture, node: &OnNode) {
        let held: Vec<_> =
            fixture.inventory().into_iter().filter(|it| it.contains(&node.id)).collect();
        assert_eq!(held, [format!("volumes/{}", node.id)]);
    }

    async fn roll_back(&self, _: &Fixture, node: &OnNode) {
        settled("stage", || node.stage()).await;
        DATA.check(&node.staging.join("data"), WRITTEN);
    }

    async fn clear(&self, fixture: &Fixture, node: OnNode) {
        node.unstage().await.expect("unstage");
        fixture.client().delete(&node.id).await.expect("delete");
    }
}
