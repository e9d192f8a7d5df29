//! encryptionkeyrotation: another key for an encrypted volume, on the node that has it staged.

use std::sync::Arc;

use orlop_engine::request::RotateKey;
use orlop_model::{Result, Secret, TargetPath};

use crate::executor::{Executor, Subject};
use crate::parse;
use crate::proto::encryptionkeyrotation as wire;
use crate::services::{note_volume, unary_calls};

pub(crate) struct KeyRotation {
    executor: Arc<Executor>,
}

impl KeyRotation {
    pub(crate) fn new(executor: Arc<Executor>) -> Self {
        Self { executor }
    }

    async fn encryption_key_rotate(
        &self,
        request: wire::EncryptionKeyRotateRequest,
    ) -> Result<wire::EncryptionKeyRotateResponse> {
        note_volume(&request.volume_id);
        parse::require([
            ("volume_id", !request.volume_id.is_empty()),
            ("volume_path", !request.volume_path.is_empty()),
        ])?;
        let keys = parse::volume_keys(request.secrets)?;
        let new = match request.encryption_key.is_empty() {
            true => None,
            false => Some(Secret::new("encryption_key", request.encryption_key.into_bytes())?),
        };
        // The sidecar sends the volume's context as parameters. It is not needed.
        parse::volume_context(request.parameters)?;
        request.volume_capability.map(parse::capability).transpose()?;
        let wanted = RotateKey {
            path: TargetPath::parse("volume_path", &request.volume_path)?,
            volume: parse::volume_id("volume_id", &request.volume_id)?,
            new,
            keys,
        };
        let home = Subject::Node(Some(wanted.volume.pool().clone()));
        self.executor.run(home, move |engine| engine.rotate_key(&wanted)).await?;
        Ok(wire::EncryptionKeyRotateResponse {})
    }
}

unary_calls! {
    impl wire::encryption_key_rotation_controller_server::EncryptionKeyRotationController,
        for KeyRotation, with wire
    {
        encryption_key_rotate(EncryptionKeyRotateRequest) -> EncryptionKeyRotateResponse;
    }
}
