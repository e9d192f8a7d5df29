//! Volumes come and go.

use orlop_sys::filesystem::{FsKind, Signature, probe};
use orlop_tests::{Answer, Code, Create, MIB, expect_code, v1};

use crate::walk::{Scenario, Stroll};
use crate::world::{World, settled};

pub(crate) async fn all(stroll: &mut impl Stroll) {
    for what in [What::Thin, What::Thick, What::Filesystem] {
        stroll.walk(&CreateVolume { what }).await;
    }
    stroll.walk(&DeleteVolume).await;
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
    fn request(&self, world: &World) -> Create {
        let create = world.client().create(self.name()).size(32 * MIB);
        match self.what {
            What::Thin => create.block(),
            What::Thick => create.block().thick(),
            What::Filesystem => create.fs("ext4"),
        }
    }
}

impl Scenario for CreateVolume {
    /// The id that the volume is going to have, for ids come from names.
    type State = String;

    fn name(&self) -> &'static str {
        match self.what {
            What::Thin => "create-thin",
            What::Thick => "create-thick",
            What::Filesystem => "create-ext4",
        }
    }

    fn rpc(&self) -> &'static str {
        "csi.v1.Controller/CreateVolume"
    }

    async fn prepare(&self, world: &World, _: &str) -> String {
        let id = self.request(world).done().await.volume_id;
        world.client().delete(&id).await.expect("delete");
        id
    }

    async fn call(&self, world: &World, _: &String) -> Answer<()> {
        self.request(world).send().await.map(drop)
    }

    async fn holds(&self, world: &World, id: &String) {
        assert_eq!(self.request(world).done().await.volume_id, *id);
        let data = world.pool.volume_data(id);
        let found = std::fs::metadata(&data).expect("the volume's data");
        assert_eq!(found.len(), 32 * MIB);
        let formatted = matches!(
            probe(&data).expect("probe"),
            Signature::Filesystem { kind: FsKind::Ext4, needs_check: false, .. }
        );
        assert_eq!(formatted, matches!(self.what, What::Filesystem));
    }

    async fn take_back(&self, world: &World, id: &String) {
        settled("delete", || world.client().delete(id)).await;
    }

    async fn clear(&self, _: &World, _: String) {}
}

struct DeleteVolume;

impl Scenario for DeleteVolume {
    type State = v1::Volume;

    fn name(&self) -> &'static str {
        "delete"
    }

    fn rpc(&self) -> &'static str {
        "csi.v1.Controller/DeleteVolume"
    }

    async fn prepare(&self, world: &World, _: &str) -> v1::Volume {
        world.client().create(self.name()).size(32 * MIB).block().done().await
    }

    async fn call(&self, world: &World, volume: &v1::Volume) -> Answer<()> {
        world.client().delete(&volume.volume_id).await
    }

    async fn holds(&self, world: &World, volume: &v1::Volume) {
        expect_code(world.client().get_volume(&volume.volume_id).await, Code::NotFound);
    }

    async fn take_back(&self, world: &World, volume: &v1::Volume) {
        let create = || world.client().create(self.name()).size(32 * MIB).block().send();
        assert_eq!(settled("create", create).await.volume_id, volume.volume_id);
    }

    async fn clear(&self, world: &World, volume: v1::Volume) {
        world.client().delete(&volume.volume_id).await.expect("delete");
    }
}
