//! Half-made volumes and snapshots of the memory pool.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use orlop_model::record::RECORD_VERSION;
use orlop_model::{
    ContentSource, Draft, Error, NewSnapshot, NewVolume, Result, SnapshotRecord, VolumeRecord,
};

use super::state::{Interlude, MemorySnapshot, MemoryVolume, Port, State};
use crate::poison::lock;

/// A test may want something to happen now, and may want the pool for that.
fn begin_cut(shared: &Mutex<State>) -> Result<MutexGuard<'_, State>> {
    let interlude = lock(shared).interlude.take();
    if let Some(Interlude(happen)) = interlude {
        happen();
    }
    let mut state = lock(shared);
    state.fault("cut")?;
    Ok(state)
}

#[derive(Debug)]
pub(super) struct VolumeDraft {
    state: Arc<Mutex<State>>,
    record: VolumeRecord,
    /// Set by the cut.
    tag: Option<String>,
}

impl VolumeDraft {
    pub(super) fn begin(shared: &Arc<Mutex<State>>, new: &NewVolume) -> Result<Self> {
        let mut state = lock(shared);
        if let Some(volume) = state.volumes.get(&new.id) {
            volume.checked()?;
        }
        let needed = match &new.source {
            None => 0,
            Some(ContentSource::Volume(id)) => state.volume(id)?.record.capacity_bytes,
            Some(ContentSource::Snapshot(id)) => match state.snapshots.get(id) {
                Some(snapshot) => snapshot.record.size_bytes,
                None => return Err(Error::NoSuchSnapshot(id.to_string())),
            },
        };
        if needed > new.capacity_bytes {
            return Err(Error::OutOfRange(format!(
                "the source has {needed} bytes, which do not fit into {}",
                new.capacity_bytes
            )));
        }
        state.try_reserve(new.capacity_bytes)?;
        Ok(Self {
            state: Arc::clone(shared),
            record: VolumeRecord {
                version: RECORD_VERSION,
                id: new.id.clone(),
                name: new.name.clone(),
                capacity_bytes: new.capacity_bytes,
                capabilities: new.capabilities.clone(),
                parameters: new.parameters.clone(),
                limits: new.limits,
                source: new.source.clone(),
                format: new.format,
                ephemeral: new.ephemeral,
                created: SystemTime::now().into(),
                published: BTreeMap::new(),
            },
            tag: None,
        })
    }

    fn source_tag(&self, state: &mut State) -> Result<String> {
        match &self.record.source {
            None => Ok(String::new()),
            Some(ContentSource::Volume(id)) => Ok(state.volume(id)?.tag.clone()),
            Some(ContentSource::Snapshot(id)) => match state.snapshots.get(id) {
                Some(snapshot) => Ok(snapshot.tag.clone()),
                None => Err(Error::NoSuchSnapshot(id.to_string())),
            },
        }
    }
}

impl Draft<VolumeRecord> for VolumeDraft {
    fn cut(&mut self) -> Result<()> {
        let mut state = begin_cut(&self.state)?;
        if self.tag.is_none() {
            let tag = self.source_tag(&mut state)?;
            drop(state);
            self.tag = Some(tag);
        }
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<VolumeRecord> {
        lock(&self.state).fault("commit")?;
        if self.tag.is_none() {
            self.cut()?;
        }
        let mut state = lock(&self.state);
        if let Some(existing) = state.volumes.get(&self.record.id) {
            return existing.checked().cloned();
        }
        let volume = MemoryVolume {
            record: self.record.clone(),
            tag: self.tag.clone().unwrap_or_default(),
            damage: None,
            condition: None,
            read_write: Port::default(),
            read_only: Port::default(),
        };
        state.volumes.insert(self.record.id.clone(), volume);
        Ok(self.record.clone())
    }
}

impl Drop for VolumeDraft {
    fn drop(&mut self) {
        lock(&self.state).reserved -= self.record.capacity_bytes;
    }
}

#[derive(Debug)]
pub(super) struct SnapshotDraft {
    state: Arc<Mutex<State>>,
    record: SnapshotRecord,
    /// Set by the cut.
    tag: Option<String>,
}

impl SnapshotDraft {
    pub(super) fn begin(shared: &Arc<Mutex<State>>, new: &NewSnapshot) -> Result<Self> {
        let source = lock(shared).volume(&new.source.id)?.record.clone();
        Ok(Self {
            state: Arc::clone(shared),
            record: SnapshotRecord {
                version: RECORD_VERSION,
                id: new.id.clone(),
                name: new.name.clone(),
                source: source.id,
                size_bytes: source.capacity_bytes,
                format: new.format,
                capabilities: source.capabilities,
                created: SystemTime::now().into(),
            },
            tag: None,
        })
    }
}

impl Draft<SnapshotRecord> for SnapshotDraft {
    fn cut(&mut self) -> Result<()> {
        let mut state = begin_cut(&self.state)?;
        if self.tag.is_none() {
            self.tag = Some(state.volume(&self.record.source)?.tag.clone());
            self.record.created = SystemTime::now().into();
        }
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<SnapshotRecord> {
        lock(&self.state).fault("commit")?;
        if self.tag.is_none() {
            self.cut()?;
        }
        let mut state = lock(&self.state);
        let snapshot =
            state.snapshots.entry(self.record.id.clone()).or_insert_with(|| MemorySnapshot {
                record: self.record.clone(),
                tag: self.tag.clone().unwrap_or_default(),
            });
        Ok(snapshot.record.clone())
    }
}
