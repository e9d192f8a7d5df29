//! Encrypted volumes get another key.

use orlop_sys::crypt::{Unlocked, check_key};
use orlop_tests::encryptionkeyrotation::EncryptionKeyRotateRequest;
use orlop_tests::encryptionkeyrotation::encryption_key_rotation_controller_client::EncryptionKeyRotationControllerClient;
use orlop_tests::{Answer, Code, MIB, OnNode, Pattern, expect_code, mount};

use crate::each_crash_point::{Scenario, ScenarioRunner};
use crate::fixture::{Fixture, settled};

const DATA: Pattern = Pattern::new(9);
const WRITTEN: u64 = 128 << 10;
const KEYS: [&str; 2] = ["the first key", "the second key"];

pub(crate) async fn rotation(runner: &mut impl ScenarioRunner) {
    // What the orchestrator takes for the present key may be either.
    runner.run(&Rotate { name: "rotate-key", believed: KEYS[0] }).await;
    runner.run(&Rotate { name: "rotate-key-again", believed: KEYS[1] }).await;
}

struct Rotate {
    name: &'static str,
    /// What the call gives as the present key; the other one is its former key.
    believed: &'static str,
}

/// From one key to another.
async fn rotate(fixture: &Fixture, node: &OnNode, new: &str, believed: &str) -> Answer<()> {
    let other = KEYS.into_iter().find(|key| *key != believed).expect("the other key");
    let secrets = [("encryptionPassphrase", believed), ("previousEncryptionPassphrase", other)];
    let request = EncryptionKeyRotateRequest {
        volume_id: node.id.clone(),
        volume_path: node.staging.to_str().expect("a path").to_owned(),
        encryption_key: new.to_owned(),
        secrets: secrets.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..EncryptionKeyRotateRequest::default()
    };
    let mut client = EncryptionKeyRotationControllerClient::new(fixture.client().channel());
    client.encryption_key_rotate(request).await.map(drop)
}

fn keys_that_open(fixture: &Fixture, node: &OnNode) -> Vec<&'static str> {
    let image = fixture.pool.volume_data(&node.id);
    let opens = |key: &&str| check_key(&image, key.as_bytes()).expect("a header") == Unlocked::Yes;
    KEYS.into_iter().filter(opens).collect()
}

impl Scenario for Rotate {
    type State = OnNode;

    fn name(&self) -> &'static str {
        self.name
    }

    fn rpc(&self) -> &'static str {
        "encryptionkeyrotation.EncryptionKeyRotationController/EncryptionKeyRotate"
    }

    async fn prepare(&self, fixture: &Fixture, tag: &str) -> OnNode {
        let create = fixture.client().create(tag).size(64 * MIB).fs("ext4");
        let volume = create.parameter("encryption", "luks2").done().await;
        let node = fixture.client().on_node(&volume, mount("ext4")).with_key(KEYS[0]);
        node.up().await;
        DATA.write(&node.data_path(), WRITTEN);
        node.unpublish().await.expect("unpublish");
        node
    }

    async fn call(&self, fixture: &Fixture, node: &OnNode) -> Answer<()> {
        // Wherever an earlier call has ended.
        assert!(!keys_that_open(fixture, node).is_empty(), "no key opens the volume");
        rotate(fixture, node, KEYS[1], self.believed).await
    }

    async fn holds(&self, fixture: &Fixture, node: &OnNode) {
        assert_eq!(keys_that_open(fixture, node), [KEYS[1]]);
        node.with_key(KEYS[1]).stage().await.expect("stage again");
        expect_code(node.with_key(KEYS[0]).stage().await, Code::Unauthenticated);
        DATA.check(&node.staging.join("data"), WRITTEN);
    }

    async fn roll_back(&self, fixture: &Fixture, node: &OnNode) {
        settled("rotate back", || rotate(fixture, node, KEYS[0], self.believed)).await;
        assert_eq!(keys_that_open(fixture, node), [KEYS[0]]);
    }

    async fn clear(&self, fixture: &Fixture, node: OnNode) {
        node.unstage().await.expect("unstage");
        fixture.client().delete(&node.id).await.expect("delete");
    }
}
