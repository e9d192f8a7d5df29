//! Inline volumes: made by NodePublishVolume for one workload, gone with its unpublish.
//!
//! Their ids are the orchestrator's. The digest of such an id names the volume on the pool, so
//! that unpublish finds it again after a restart and after a reboot.

use std::ffi::OsStr;

use orlop_model::{
    CapabilitySet, Error, NameDigest, NodeRecord, ObjectName, Result, Stage, TargetPath, VolumeId,
    VolumeRecord,
};

use crate::engine::{Engine, PoolRef, rolled_back};
use crate::request::{CreateVolume, InlineVolume, PublishVolume, VolumeRef};
use crate::sharing::sharing;

/// May a publish that fails delete the volume?
enum Discardable {
    /// It was made by this call, or by one that was interrupted before it published it.
    Yes,
    No,
}

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
        let _locks = self.locks().volume_at(&NameDigest::of(&name), &request.target)?;
        let (record, discardable) = self.ensure_inline_volume(name, request, inline)?;
        let pool = self.pool_of(&record.id)?.ok_or_else(|| Self::not_served(&record.id))?;
        let _foreign_call = self.admit_foreign_call(pool, None)?;
        let stage = Stage {
            path: self.host().private_stage(&record.id)?,
            capability: request.capability.clone(),
            read_only: false,
            encrypted: record.is_encrypted(),
        };
        let staged = self
            .check_keys_fit(pool, &record, &request.keys)
            .and_then(|()| self.ensure_staged(pool, &record, stage.clone(), &request.keys));
        let done = staged.and_then(|found| {
            let published = self
                .note_published(pool, &record)
                .and_then(|()| self.publish_staged(pool, &record, &stage.path, request));
            let undo = || self.undo_stage(pool, &record.id, &stage, found);
            rolled_back(published, "publish", &record.id, undo)
        });
        rolled_back(done, "publish", &record.id, || {
            self.undo_failed_publish(pool, &record.id, &stage.path, &discardable)
        })
    }

    /// Before a workload can write: from here on a failure does not delete the volume.
    fn note_published(&self, pool: &PoolRef, record: &VolumeRecord) -> Result<()> {
        if !record.never_published {
            return Ok(());
        }
        pool.catalogue().update_volume(&record.id, &mut |record| {
            record.never_published = false;
            Ok(())
        })?;
        Ok(())
    }

    /// A volume that was found may hold a workload's data, for example after a reboot. What this call
    /// did to the node is undone before; a stage that it found stays, as a workload may use it
    /// although the record is lost.
    fn undo_failed_publish(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        stage: &TargetPath,
        discardable: &Discardable,
    ) -> Result<()> {
        match discardable {
            Discardable::Yes => self.discard_inline(pool, id, &self.host().node_record(id)?),
            Discardable::No if self.host().mount_at(stage)?.is_none() => {
                self.host().ensure_target_removed(stage)
            }
            Discardable::No => Ok(()),
        }
    }

    fn ensure_inline_volume(
        &self,
        name: ObjectName,
        request: &PublishVolume,
        inline: &InlineVolume,
    ) -> Result<(VolumeRecord, Discardable)> {
        let digest = NameDigest::of(&name);
        if let Some((_, record)) = self.find_volume(&digest, inline.parameters.pool.as_deref())? {
            if record.ephemeral {
                // A call that was interrupted may have made it, and published nothing.
                let unused = record.never_published;
                let discardable = if unused { Discardable::Yes } else { Discardable::No };
                return Ok((record, discardable));
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
        Ok((self.create_new(&digest, &new, None, true, None)?.record, Discardable::Yes))
    }

    pub(crate) fn find_inline(&self, text: &str) -> Result<Option<VolumeId>> {
        let found = self.find_volume(&NameDigest::of_text(text), None)?;
        Ok(found.filter(|(_, record)| record.ephemeral).map(|(_, record)| record.id))
    }

    /// As [`Engine::find_inline`], for a call that clears up: a volume whose record cannot be read may be
    /// the inline volume, unless it was staged by a separate call.
    pub(crate) fn find_inline_to_clear(&self, text: &str) -> Result<Option<VolumeId>> {
        match self.find_inline(text) {
            Err(Error::Damaged { .. }) => {}
            found => return found,
        }
        let digest = NameDigest::of_text(text);
        let mut damaged = None;
        for pool in self.homes(|_| true) {
            let id = VolumeId::new(pool.id().clone(), digest.clone());
            match pool.catalogue().volume(&id) {
                Ok(Some(record)) if record.ephemeral => return Ok(Some(id)),
                Ok(_) => {}
                Err(Error::Damaged { .. }) => {
                    let path = self.host().private_stage(&id)?;
                    let stage = self.host().node_record(&id)?.stage;
                    if stage.is_none_or(|stage| stage.path == path) {
                        damaged.get_or_insert(id);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        match damaged {
            Some(id) => Ok(Some(id)),
            None => self.check_none_absent(|_| true).map(|()| None),
        }
    }

    /// Once nothing is published any more, an inline volume has no reason to exist.
    pub(crate) fn discard_inline(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        node: &NodeRecord,
    ) -> Result<()> {
        let path = self.host().private_stage(id)?;
        // Staged by a separate call, hence not inline; the pool, which may be away, is not asked.
        if node.stage.as_ref().is_some_and(|stage| stage.path != path) {
            return Ok(());
        }
        let ephemeral = match pool.catalogue().volume(id) {
            Ok(record) => record.is_some_and(|record| record.ephemeral),
            // Without a record it is unknown what the volume is, so it is kept; the workload's path is clear already.
            Err(Error::Damaged { .. }) => false,
            Err(error) => return Err(error),
        };
        if !ephemeral || !node.publications.is_empty() {
            return Ok(());
        }
        if let Some(owner) = sharing(pool).inline_elsewhere(id)? {
            // It may be down, and its workload may come back with it.
            tracing::info!(
                volume = %id,
                %owner,
                "kept an inline volume that belongs to another node"
            );
            return Ok(());
        }
        self.ensure_no_former_stage(pool, id, &path)?;
        self.unstage_inline(pool, id, &path)?;
        self.remove_volume(pool, id)
    }

    /// A daemon with another run directory or driver name staged the volume at its own path, and
    /// its record is not here. Wherever else the volume is mounted, it is still in use.
    fn ensure_no_former_stage(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        path: &TargetPath,
    ) -> Result<()> {
        let mut former = Vec::new();
        for mounted in self.mounted_at(pool, id)? {
            match mounted.path() {
                Some(at) if at == *path => {}
                Some(at) if is_same_stage(&at, path) => former.push(at),
                Some(_) | None => {
                    return Err(Error::precondition(format!(
                        "cannot remove inline volume {id}: it is still mounted at {mounted}; \
                         unpublish or unmount it there first"
                    )));
                }
            }
        }
        for stage in &former {
            self.host().ensure_unmounted(stage)?;
        }
        // After all of them: one path may be mounted on twice.
        for stage in &former {
            self.host().ensure_target_removed(stage)?;
        }
        Ok(())
    }

    fn unstage_inline(&self, pool: &PoolRef, id: &VolumeId, path: &TargetPath) -> Result<()> {
        self.ensure_unstaged(pool, id, path)?;
        self.host().ensure_target_removed(path)
    }

    /// At start: volumes that an interrupted NodePublishVolume made and that no workload has seen.
    /// The orchestrator need not call again for them. On a shared pool another node may be about to
    /// publish one, so there they wait for NodeUnpublishVolume.
    pub(crate) fn discard_unpublished_inline(&self, pool: &PoolRef) -> Result<()> {
        for (id, record) in pool.catalogue().volumes(None, 0)? {
            if !record.is_ok_and(|record| record.ephemeral && record.never_published) {
                continue;
            }
            let node = self.host().node_record(&id);
            match node.and_then(|node| self.discard_inline(pool, &id, &node)) {
                Ok(()) => tracing::info!(
                    volume = %id,
                    "removed an inline volume that was never published: the call was interrupted"
                ),
                Err(error) => tracing::warn!(
                    %error,
                    volume = %id,
                    "cannot remove an inline volume that was never published"
                ),
            }
        }
        Ok(())
    }
}

/// The private stages of one volume, in whichever run directory, have their last two names in common;
/// the last one is the volume's id.
fn is_same_stage(one: &TargetPath, other: &TargetPath) -> bool {
    let names = |path: &TargetPath| {
        let mut names = path.as_path().iter().rev().map(OsStr::to_owned);
        (names.next(), names.next())
    };
    names(one) == names(other)
}
