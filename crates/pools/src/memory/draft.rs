//! Half-made volumes, snapshots and group snapshots of the memory pool.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use orlop_model::{
    ContentSource, Draft, Error, GroupSnapshotId, GroupSnapshotRecord, NewGroupSnapshot,
    NewSnapshot, NewVolume, Result, SnapshotRecord, Timestamp, VolumeRecord,
};

use super::content::MemoryContent;
use super::state::{Interlude, MemoryPoolState, MemorySnapshot, MemoryVolume, Port};
use crate::poison::lock;
use crate::recorded::{new_group_snapshot_record, new_snapshot_record, new_volume_record};

/// A test may want something to happen now, and may want the pool for that.
fn begin_capture(shared: &Mutex<MemoryPoolState>) -> Result<MutexGuard<'_, MemoryPoolState>> {
    let interlude = lock(shared).interlude.take();
    if let Some(Interlude(happen)) = interlude {
        happen();
    }
    let mut state = lock(shared);
    state.fault("capture")?;
    Ok(state)
}

fn begin_commit(shared: &Mutex<MemoryPoolState>) {
    let interlude = lock(shared).commit_interlude.take();
    if let Some(Interlude(happen)) = interlude {
        happen();
    }
}

#[derive(Debug)]
pub(super) struct MemoryVolumeDraft {
    state: Arc<Mutex<MemoryPoolState>>,
    record: VolumeRecord,
    /// Set by the capture.
    content: Option<MemoryContent>,
}

impl MemoryVolumeDraft {
    pub(super) fn begin(shared: &Arc<Mutex<MemoryPoolState>>, new: &NewVolume) -> Result<Self> {
        let mut state = lock(shared);
        if let Some(volume) = state.volumes.get(&new.id) {
            volume.checked()?;
        }
        let needed = match &new.source {
            None => 0,
            Some(ContentSource::Volume(id)) => state.volume(id)?.record.capacity_bytes,
            Some(ContentSource::Snapshot(id)) => state.snapshot(id)?.record.size_bytes,
        };
        if needed > new.capacity_bytes {
            return Err(Error::OutOfRange(format!(
                "the source has {needed} bytes, which do not fit into {}",
                new.capacity_bytes
            )));
        }
        state.try_reserve(new.capacity_bytes)?;
        Ok(Self { state: Arc::clone(shared), record: new_volume_record(new), content: None })
    }

    fn source_content(&self, state: &mut MemoryPoolState) -> Result<MemoryContent> {
        match &self.record.source {
            None => Ok(MemoryContent::default()),
            Some(ContentSource::Volume(id)) => Ok(state.volume(id)?.content.clone()),
            Some(ContentSource::Snapshot(id)) => Ok(state.snapshot(id)?.content.clone()),
        }
    }
}

impl Draft<VolumeRecord> for MemoryVolumeDraft {
    fn capture(&mut self) -> Result<()> {
        let mut state = begin_capture(&self.state)?;
        if self.content.is_none() {
            let content = self.source_content(&mut state)?;
            drop(state);
            self.content = Some(content);
        }
        Ok(())
    }

    /// As the kind of pool that it stands for.
    fn needs_source_until_commit(&self) -> bool {
        lock(&self.state).sharers.is_some()
    }

    fn commit(mut self: Box<Self>) -> Result<VolumeRecord> {
        lock(&self.state).fault("commit")?;
        begin_commit(&self.state);
        if self.content.is_none() {
            self.capture()?;
        }
        let mut state = lock(&self.state);
        if let Some(existing) = state.volumes.get(&self.record.id) {
            return existing.checked().cloned();
        }
        let volume = MemoryVolume {
            record: self.record.clone(),
            content: self.content.clone().unwrap_or_default(),
            damage: None,
            condition: None,
            device_problem: None,
            read_write: Port::default(),
            read_only: Port::default(),
        };
        state.volumes.insert(self.record.id.clone(), volume);
        Ok(self.record.clone())
    }
}

impl Drop for MemoryVolumeDraft {
    fn drop(&mut self) {
        lock(&self.state).reserved -= self.record.capacity_bytes;
    }
}

#[derive(Debug)]
pub(super) struct MemorySnapshotDraft {
    state: Arc<Mutex<MemoryPoolState>>,
    record: SnapshotRecord,
    /// Set by the capture.
    content: Option<MemoryContent>,
}

impl MemorySnapshotDraft {
    pub(super) fn begin(
        shared: &Arc<Mutex<MemoryPoolState>>,
        new: &NewSnapshot,
        group: Option<&GroupSnapshotId>,
    ) -> Result<Self> {
        let source = lock(shared).volume(&new.source.id)?.record.clone();
        Ok(Self {
            state: Arc::clone(shared),
            record: new_snapshot_record(new, source, group),
            content: None,
        })
    }

    fn copy(&mut self, state: &mut MemoryPoolState, now: Timestamp) -> Result<()> {
        if self.content.is_none() {
            self.content = Some(state.volume(&self.record.source)?.content.clone());
            self.record.created = now.after(self.record.created);
        }
        Ok(())
    }

    fn enter(&self, state: &mut MemoryPoolState) -> SnapshotRecord {
        let snapshot =
            state.snapshots.entry(self.record.id.clone()).or_insert_with(|| MemorySnapshot {
                record: self.record.clone(),
                content: self.content.clone().unwrap_or_default(),
            });
        snapshot.record.clone()
    }
}

impl Draft<SnapshotRecord> for MemorySnapshotDraft {
    fn capture(&mut self) -> Result<()> {
        let shared = Arc::clone(&self.state);
        let mut state = begin_capture(&shared)?;
        self.copy(&mut state, SystemTime::now().into())
    }

    fn commit(mut self: Box<Self>) -> Result<SnapshotRecord> {
        lock(&self.state).fault("commit")?;
        if self.content.is_none() {
            self.capture()?;
        }
        Ok(self.enter(&mut lock(&self.state)))
    }
}

#[derive(Debug)]
pub(super) struct MemoryGroupSnapshotDraft {
    state: Arc<Mutex<MemoryPoolState>>,
    members: Vec<MemorySnapshotDraft>,
    record: GroupSnapshotRecord,
    is_captured: bool,
}

impl MemoryGroupSnapshotDraft {
    pub(super) fn begin(
        shared: &Arc<Mutex<MemoryPoolState>>,
        new: &NewGroupSnapshot,
    ) -> Result<Self> {
        let draft = |member| MemorySnapshotDraft::begin(shared, member, Some(&new.id));
        Ok(Self {
            state: Arc::clone(shared),
            members: new.members.iter().map(draft).collect::<Result<_>>()?,
            record: new_group_snapshot_record(new),
            is_captured: false,
        })
    }
}

impl Draft<GroupSnapshotRecord> for MemoryGroupSnapshotDraft {
    fn capture(&mut self) -> Result<()> {
        let shared = Arc::clone(&self.state);
        let mut state = begin_capture(&shared)?;
        if self.is_captured {
            return Ok(());
        }
        self.record.created = SystemTime::now().into();
        for member in &mut self.members {
            member.copy(&mut state, self.record.created)?;
        }
        self.is_captured = true;
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<GroupSnapshotRecord> {
        begin_commit(&self.state);
        lock(&self.state).fault("commit")?;
        if !self.is_captured {
            self.capture()?;
        }
        let mut state = lock(&self.state);
        if let Some(existing) = state.group_snapshots.get(&self.record.id) {
            return Ok(existing.clone());
        }
        for member in &self.members {
            member.enter(&mut state);
        }
        state.group_snapshots.insert(self.record.id.clone(), self.record.clone());
        Ok(self.record.clone())
    }
}
