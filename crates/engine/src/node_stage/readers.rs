//! Filesystems that several nodes read at once.
//!
//! Even a read-only mount may want to write first: it replays the journal, makes a filesystem on a
//! blank volume, gives a copy its identity, grows. One node alone does that, while no other has it
//! mounted; the publications in the volume's record say who. All then mount a device that refuses
//! writes. A node that dies while it prepares is fenced when it is unpublished, and its claim goes
//! with its publication.

use orlop_model::{
    DeviceAccess, Error, FormatState, FsType, MountAccess, ReaderState, Result, VolumeId,
    VolumeKeys, VolumeRecord,
};

use crate::engine::{Engine, PoolRef, rolled_back};

impl Engine {
    pub(super) fn prepare_for_readers(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        mount: &MountAccess,
        keys: &VolumeKeys,
    ) -> Result<()> {
        if self.claim_preparation(pool, record)? == ReaderState::Reading {
            return Ok(());
        }
        let prepared =
            self.ensure_attached(pool, &record.id, DeviceAccess::ReadWrite).and_then(|device| {
                let record = self.record_now(pool, &record.id)?;
                self.check_claim(&record)?;
                let access = DeviceAccess::ReadWrite;
                let device = self.ensure_opened(pool, &record, access, device, keys)?;
                self.prepare_filesystem(pool, &record, &device, mount, true)
            });
        // While this node could still write, the claim stays: another one that prepares would be a
        // second writer. A repeated call goes on with it, and unpublishing fences it and takes it.
        let detached = self.ensure_detached(pool, &record.id, DeviceAccess::ReadWrite);
        if detached.is_err() {
            let prepared = rolled_back(prepared, "preparation", &record.id, || detached.clone());
            return prepared.and(detached);
        }
        let state = if prepared.is_ok() { ReaderState::Reading } else { ReaderState::Away };
        prepared.and(self.set_reader(pool, record, state))
    }

    /// `Reading`: another node has it mounted, so there is nothing left to do.
    fn claim_preparation(&self, pool: &PoolRef, record: &VolumeRecord) -> Result<ReaderState> {
        let here = &self.settings().node_id;
        let mut state = ReaderState::Preparing;
        pool.catalogue().update_volume(&record.id, &mut |record| {
            let others = || record.published.iter().filter(|(node, _)| *node != here);
            if others().any(|(_, other)| other.reader == ReaderState::Preparing) {
                return Err(Error::busy(
                    format!("volume {}", record.id),
                    "another node is preparing its filesystem",
                ));
            }
            let mounted = others().any(|(_, other)| other.reader == ReaderState::Reading);
            state = if mounted { ReaderState::Reading } else { ReaderState::Preparing };
            if let Some(own) = record.published.get_mut(here) {
                own.reader = state;
            }
            Ok(())
        })?;
        Ok(state)
    }

    /// The claim goes when the volume is unpublished, which may have been while the device was
    /// waited for.
    fn check_claim(&self, record: &VolumeRecord) -> Result<()> {
        match record.published.get(&self.settings().node_id) {
            Some(own) if own.reader == ReaderState::Preparing => Ok(()),
            Some(_) | None => Err(Error::busy(
                format!("volume {}", record.id),
                "it was unpublished from this node during this call",
            )),
        }
    }

    fn set_reader(&self, pool: &PoolRef, record: &VolumeRecord, state: ReaderState) -> Result<()> {
        pool.catalogue().update_volume(&record.id, &mut |record| {
            if let Some(own) = record.published.get_mut(&self.settings().node_id) {
                own.reader = state;
            }
            Ok(())
        })?;
        Ok(())
    }

    /// The record has changed since the call began: this node or another one has prepared it.
    pub(super) fn prepared_filesystem(&self, pool: &PoolRef, id: &VolumeId) -> Result<FsType> {
        match self.record_now(pool, id)?.format {
            FormatState::Formatted { fs, .. } => Ok(fs),
            FormatState::Blank
            | FormatState::Formatting { .. }
            | FormatState::Copied { .. }
            | FormatState::Renewing { .. }
            | FormatState::Raw => {
                Err(Error::busy(format!("volume {id}"), "its filesystem is not prepared yet"))
            }
        }
    }
}
