//! NodeStageVolume and NodeUnstageVolume: devices, filesystems, mounts.

use orlop_tests::{Answer, MIB, OnNode, Pattern, mount};

use crate::walk::{Scenario, Walk};
use crate::world::{World, settled};

const DATA: Pattern = Pattern::new(6);

pub(crate) async fn all(walk: &mut Walk) {
    for fs in ["xfs", "ext4", "btrfs"] {
        walk.walk(&Stage { fs, copy: false, back: false }).await;
    }
    walk.walk(&Stage { fs: "ext4", copy: true, back: false }).await;
    walk.walk(&Stage { fs: "btrfs", copy: true, back: false }).await;
    walk.walk(&Stage { fs: "xfs", copy: false, back: true }).await;
}

/// The first time (mkfs, for which a volume needs options of its own), of a copy (a new UUID, and growth), or back.
struct Stage {
    fs: &'static str,
    copy: bool,
    back: bool,
}

pub(crate) struct Staged {
    node: OnNode,
    /// What the copy is one of.
    original: Option<OnNode>,
}

impl Scenario for Stage {
    type State = Staged;

    fn name(&self) -> &'static str {
        match (self.fs, self.copy, self.back) {
            ("ext4", false, _) => "stage-ext4",
            ("btrfs", false, _) => "stage-btrfs",
            ("ext4", true, _) => "stage-copy-ext4",
            (_, true, _) => "stage-copy-btrfs",
            (_, _, true) => "unstage",
            (_, _, false) => "stage-xfs",
        }
    }

    async fn prepare(&self, world: &World, tag: &str) -> Staged {
        let client = world.client();
        let capability = mount(self.fs);
        let mut create = client.create(tag).size(320 * MIB).capability(capability.clone());
        if !self.copy && !self.back {
            create = create.parameter("mkfsOptions", "-L walked");
        }
        let volume = create.done().await;
        let node = client.on_node(&volume, capability.clone());
        if self.back {
            node.stage().await.expect("stage");
        }
        if !self.copy {
            return Staged { node, original: None };
        }
        node.up().await;
        DATA.write(&node.data_path(), MIB);
        let copy = client.create(&format!("{tag}-copy")).size(384 * MIB);
        let copy = copy.capability(capability.clone()).from_volume(&node.id).done().await;
        Staged { node: client.on_node(&copy, capability), original: Some(node) }
    }

    async fn call(&self, _: &World, staged: &Staged) -> Answer<()> {
        if self.back { staged.node.unstage().await } else { staged.node.stage().await }
    }

    async fn holds(&self, _: &World, staged: &Staged) {
        if self.back {
            staged.node.stage().await.expect("stage again");
        }
        staged.node.publish().await.expect("publish");
        if staged.original.is_some() {
            DATA.check(&staged.node.data_path(), MIB);
        }
        DATA.write(&staged.node.target.join("new"), MIB);
    }

    async fn undo(&self, world: &World, staged: &Staged) {
        for node in std::iter::once(&staged.node).chain(&staged.original) {
            settled("unpublish", || node.unpublish()).await;
            settled("unstage", || node.unstage()).await;
            settled("delete", || world.client().delete(&node.id)).await;
        }
    }
}
