//! Inline volumes: made by NodePublishVolume for one workload, gone with its unpublish.
//!
//! Their ids are the orchestrator's. The digest of such an id names the volume on the pool, so
//! that unpublish finds it again after a restart and after a reboot.

use orlop_model::{
    CapabilitySet, Error, NameDigest, NodeRecord, ObjectName, Result, Stage, VolumeId, VolumeRecord,
};

use crate::engine::{Engine, PoolRef};
use crate::request::{CreateVolume, InlineVolume, PublishVolume, VolumeRef};

impl Engine {
    pub(crate) fn publish_inline(
        &self,
        request: &PublishVolume,
        inline: &InlineVolume,
    ) -> Result<()> {
        let VolumeRef::Foreign(text) = &request.volume else {
            return Err(Error::invalid("volume_id", "is that of a volume that is not inline"));
        };
        let name: ObjectName =
            text.parse().map_err(|_| Error::invalid("volume_id", "cannot name a volume"))?;
        let _lock = self.lock_volume(&NameDigest::of(&name))?;
        let record = self.ensure_inline_volume(name, request, inline)?;
        let pool = self.pool_of(&record.id)?.ok_or_else(|| Self::not_served(&record.id))?;
        let stage = Stage {
            path: self.host.private_stage(&record.id)?,
            capability: request.capability.clone(),
            read_only: false,
        };
        let done = self
            .ensure_staged(pool, &record, stage.clone())
            .and_then(|()| self.publish_staged(pool, &record, &stage.path, request));
        if done.is_err() {
            let node = self.host.node_record(&record.id)?;
            self.discard_inline(pool, &record.id, &node)?;
        }
        done
    }

    fn ensure_inline_volume(
        &self,
        name: ObjectName,
        request: &PublishVolume,
        inline: &InlineVolume,
    ) -> Result<VolumeRecord> {
        let digest = NameDigest::of(&name);
        if let Some((_, record)) = self.find_volume(&digest, inline.parameters.pool.as_deref())? {
            if record.ephemeral {
                return Ok(record);
            }
            return Err(Error::conflict(format!("volume {name}"), "it is not an inline volume"));
        }
        let new = CreateVolume {
            name,
            range: inline.range,
            capabilities: CapabilitySet::new(vec![request.capability.clone()])?,
            parameters: inline.parameters.clone(),
            limits: inline.limits.clone(),
            source: None,
            topology: None,
        };
        Ok(self.create_new(&digest, &new, true)?.record)
    }

    pub(crate) fn find_inline(&self, text: &str) -> Result<Option<VolumeId>> {
        let found = self.find_volume(&NameDigest::of_text(text), None)?;
        Ok(found.filter(|(_, record)| record.ephemeral).map(|(_, record)| record.id))
    }

    /// Once nothing is published any more, an inline volume has no reason to exist.
    pub(crate) fn discard_inline(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        node: &NodeRecord,
    ) -> Result<()> {
        let path = self.host.private_stage(id)?;
        // Staged by a call of its own, hence not inline; the pool, which may be away, is not asked.
        if node.stage.as_ref().is_some_and(|stage| stage.path != path) {
            return Ok(());
        }
        let ephemeral = match pool.volume(id) {
            Ok(record) => record.is_some_and(|record| record.ephemeral),
            // Nobody knows what it is, so it is kept; the workload's path is clear all the same.
            Err(Error::Damaged { .. }) => false,
            Err(error) => return Err(error),
        };
        if !ephemeral || !node.publications.is_empty() {
            return Ok(());
        }
        self.ensure_unstaged(pool, id, &path)?;
        self.host.ensure_target_removed(&path)?;
        self.remove_volume(pool, id)
    }
}
