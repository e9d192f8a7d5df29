//! Volumes come and go.

use orlop_sys::filesystem::{FsKind, Signature, probe};
use orlop_tests::{Answer, Code, Create, MIB, expect_code, v1};

use crate::walk::{Scenario, Walk};
use crate::world::{World, settled};

pub(crate) async fn all(walk: &mut Walk) {
    for what in [What::Thin, What::Thick, What::Filesystem] {
        walk.walk(&CreateVolume { what }).await;
    }
    walk.walk(&DeleteVolume).await;
}

enum What {
    Thin,
    Thick,
    /// With ext4 in it, from a template that a process makes when it first needs it.
    Filesystem,
}

struct CreateVolume {
    what: What,
}

impl CreateVolume {
    fn request(&self, world: &World, name: &str) -> Create {
        let create = world.client().create(name).size(32 * MIB);
        match self.what {
            What::Thin => create.block(),
            What::Thick => create.block().thick(),
            What::Filesystem => create.fs("ext4"),
        }
    }
}

impl Scenario for CreateVolume {
    type State = String;

    fn name(&self) -> &'static str {
        match self.what {
            What::Thin => "create-thin",
            What::Thick => "create-thick",
            What::Filesystem => "create-ext4",
        }
    }

    async fn prepare(&self, _: &World, tag: &str) -> String {
        tag.to_owned()
    }

    async fn call(&self, world: &World, name: &String) -> Answer<()> {
        self.request(world, name).send().await.map(drop)
    }

    async fn holds(&self, world: &World, name: &String) {
        let volume = self.request(world, name).done().await;
        let data = world.pool.volume_data(&volume.volume_id);
        let found = std::fs::metadata(&data).expect("the volume's data");
        assert_eq!(found.len(), 32 * MIB);
        let formatted = matches!(
            probe(&data).expect("probe"),
            Signature::Filesystem { kind: FsKind::Ext4, needs_check: false, .. }
        );
        assert_eq!(formatted, matches!(self.what, What::Filesystem));
    }

    /// An orchestrator that never heard the id creates again before it deletes.
    async fn undo(&self, world: &World, name: &String) {
        let volume = settled("create", || self.request(world, name).send()).await;
        settled("delete", || world.client().delete(&volume.volume_id)).await;
    }
}

struct DeleteVolume;

impl Scenario for DeleteVolume {
    type State = v1::Volume;

    fn name(&self) -> &'static str {
        "delete"
    }

    async fn prepare(&self, world: &World, tag: &str) -> v1::Volume {
        world.client().create(tag).size(32 * MIB).block().done().await
    }

    async fn call(&self, world: &World, volume: &v1::Volume) -> Answer<()> {
        world.client().delete(&volume.volume_id).await
    }

    async fn holds(&self, world: &World, volume: &v1::Volume) {
        expect_code(world.client().get_volume(&volume.volume_id).await, Code::NotFound);
    }

    async fn undo(&self, world: &World, volume: &v1::Volume) {
        settled("delete", || world.client().delete(&volume.volume_id)).await;
    }
}
