//! Volumes come and go.

use orlop_tests::{Answer, Code, Create, MIB, expect_code, v1};

use crate::each_crash_point::{Scenario, ScenarioRunner};
use crate::fixture::{Fixture, settled};

pub(crate) async fn all(runner: &mut impl ScenarioRunner) {
    for what in [What::Thin, What::Thick, What::Filesystem] {
        runner.run(&CreateVolume { what }).await;
    }
    runner.run(&DeleteVolume).await;
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
    fn request(&self, fixture: &Fixture) -> Create {
        let create = fixture.client().create(self.name()).size(32 * MIB);
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

    async fn prepare(&self, fixture: &Fixture, _: &str) -> String {
        let id = self.request(fixture).done().await.volume_id;
        fixture.client().delete(&id).await.expect("delete");
        id
    }

    async fn call(&self, fixture: &Fixture, _: &String) -> Answer<()> {
        self.request(fixture).send().await.map(drop)
    }

    async fn holds(&self, fixture: &Fixture, id: &String) {
        assert_eq!(self.request(fixture).done().await.volume_id, *id);
        let is_ext4 = matches!(self.what, What::Filesystem);
        fixture.pool.assert_stored(id, 32 * MIB, is_ext4);
    }

    async fn roll_back(&self, fixture: &Fixture, id: &String) {
        settled("delete", || fixture.client().delete(id)).await;
    }

    async fn clear(&self, _: &Fixture, _: String) {}
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

    async fn prepare(&self, fixture: &Fixture, _: &str) -> v1::Volume {
        fixture.client().create(self.name()).size(32 * MIB).block().done().await
    }

    async fn call(&self, fixture: &Fixture, volume: &v1::Volume) -> Answer<()> {
        fixture.client().delete(&volume.volume_id).await
    }

    async fn holds(&self, fixture: &Fixture, volume: &v1::Volume) {
        expect_code(fixture.client().get_volume(&volume.volume_id).await, Code::NotFound);
    }

    async fn roll_back(&self, fixture: &Fixture, volume: &v1::Volume) {
        let create = || fixture.client().create(self.name()).size(32 * MIB).block().send();
        assert_eq!(settled("create", create).await.volume_id, volume.volume_id);
    }

    async fn clear(&self, fixture: &Fixture, volume: v1::Volume) {
        fixture.client().delete(&volume.volume_id).await.expect("delete");
    }
}
