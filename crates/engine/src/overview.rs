//! Volumes and their copies, for the page: by name, up to a limit, and from memory where possible. Nothing here waits for
//! a pool that hangs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use orlop_model::{
    Condition, ContentSource, Error, Footprint, Problem, Result, SnapshotId, SnapshotRecord,
    VolumeId, VolumeRecord,
};

use crate::engine::{Engine, PoolRef};
use crate::figures::not_answered;

/// How many volumes and snapshots are read of a pool whose records are not in memory.
const MAX_OF_CLUSTER: usize = 200;
/// How many copies of one volume are listed: snapshots and volumes together.
const MAX_COPIES: usize = 500;
/// Shorter than the timeout of the query, so that the sizes measured by then are returned.
const MEASURING_TIME: Duration = Duration::from_secs(3);

#[derive(Debug, Clone)]
pub struct ListedVolume {
    pub id: VolumeId,
    /// The name of its pool.
    pub pool: String,
    pub state: VolumeState,
    /// How many snapshots of it there are. `None`: counting would take requests to the cluster.
    pub snapshots: Option<usize>,
}

#[derive(Debug, Clone)]
pub enum VolumeState {
    Present(Box<VolumeRecord>),
    /// Its record cannot be read.
    Unreadable(Problem),
    /// The volume was deleted, and snapshots of it are left.
    Deleted,
}

impl ListedVolume {
    pub fn record(&self) -> Option<&VolumeRecord> {
        match &self.state {
            VolumeState::Present(record) => Some(record),
            VolumeState::Unreadable(_) | VolumeState::Deleted => None,
        }
    }

    fn name(&self) -> &str {
        self.record().map_or("", |record| record.name.as_str())
    }
}

#[derive(Debug, Clone, Default)]
pub struct VolumeListing {
    /// By name; those without a record last.
    pub volumes: Vec<ListedVolume>,
    /// Pools of which some or all volumes are missing from the list, with the reason.
    pub incomplete: Vec<(String, String)>,
}

/// All descendants of a volume: its snapshots and clones, their copies, and so on; the oldest first.
#[derive(Debug, Clone, Default)]
pub struct Copies {
    pub snapshots: Vec<ListedSnapshot>,
    pub volumes: Vec<ListedVolumeCopy>,
    /// Of the volume itself. `None`: not known.
    pub footprint: Option<Footprint>,
    /// More copies exist than are listed.
    pub is_truncated: bool,
}

#[derive(Debug, Clone)]
pub struct ListedSnapshot {
    pub record: SnapshotRecord,
    /// `None`: not known.
    pub footprint: Option<Footprint>,
}

#[derive(Debug, Clone)]
pub struct ListedVolumeCopy {
    pub record: VolumeRecord,
    pub footprint: Option<Footprint>,
}

impl Engine {
    /// All volumes of pools whose records are in memory, and the first volumes of other pools; also deleted volumes of
    /// which snapshots are left.
    pub fn volume_listing(&self) -> VolumeListing {
        let mut view = VolumeListing::default();
        let in_memory = |pool: &&PoolRef| pool.catalogue().is_in_memory();
        for pool in self.pools().values().filter(in_memory) {
            view.add(pool, pool.catalogue().volumes(None, 0));
            view.add_snapshots(pool, pool.catalogue().snapshots(None, 0));
        }
        if self.pools().values().any(|pool| !in_memory(&pool)) {
            let mut found = self.query_pools(|pool, _| match pool.catalogue().is_in_memory() {
                true => Ok(Vec::new()),
                false => pool.catalogue().volumes(None, MAX_OF_CLUSTER + 1),
            });
            for pool in self.pools().values().filter(|pool| !in_memory(pool)) {
                view.add(pool, found.remove(pool.id()).unwrap_or_else(|| Err(not_answered(pool))));
            }
        }
        for absent in self.absent() {
            view.incomplete.push((absent.name.clone(), absent.refusal().to_string()));
        }
        let order = |volume: &ListedVolume| {
            (volume.record().is_none(), volume.name().to_owned(), volume.id.clone())
        };
        view.volumes.sort_by_cached_key(order);
        view
    }

    /// In the order of the ids.
    pub fn conditions_by_id(&self, ids: &[VolumeId]) -> Vec<Condition> {
        let mut found = self.query_volumes(ids, |pool, ids| Ok(pool.health().conditions(ids)));
        let condition = |id: &VolumeId| match found.remove(id) {
            Some(Ok(Ok(condition))) => {
                self.staged_watch().with_problems(id, self.with_lost_writes(id, condition))
            }
            Some(Ok(Err(error)) | Err(error)) => Condition::of_error(&error),
            None => Condition::of_error(&Error::NoSuchVolume(id.to_string())),
        };
        ids.iter().map(condition).collect()
    }

    /// How many bytes of its pool each volume takes, in the order of the ids. `None` if that cannot be read, or would take
    /// a request to the cluster.
    pub fn used_bytes_by_id(&self, ids: &[VolumeId]) -> Vec<Option<u64>> {
        let mut found = self.query_volumes(ids, |pool, ids| {
            Ok(match pool.catalogue().is_in_memory() {
                true => pool.provisioner().used_bytes_of(ids),
                false => Vec::new(),
            })
        });
        ids.iter().map(|id| found.remove(id)?.ok()?.ok()).collect()
    }

    /// Queries each pool for those of these volumes that are on it, all pools at once.
    fn query_volumes<T: Send + 'static>(
        &self,
        ids: &[VolumeId],
        query: impl Fn(&PoolRef, &[VolumeId]) -> Result<Vec<T>> + Clone + Send + 'static,
    ) -> BTreeMap<VolumeId, Result<T>> {
        let mut by_pool = BTreeMap::new();
        for id in ids {
            by_pool.entry(id.pool().clone()).or_insert_with(Vec::new).push(id.clone());
        }
        let ids_of = by_pool.clone();
        let mut found = self.query_pools(move |pool, _| match ids_of.get(pool.id()) {
            Some(ids) => query(pool, ids),
            None => Ok(Vec::new()),
        });
        let mut all = BTreeMap::new();
        for (pool, ids) in by_pool {
            let Some(pool) = self.pools().get(&pool) else { continue };
            match found.remove(pool.id()).unwrap_or_else(|| Err(not_answered(pool))) {
                Ok(answers) => all.extend(ids.into_iter().zip(answers.into_iter().map(Ok))),
                Err(error) => all.extend(ids.into_iter().map(|id| (id, Err(error.clone())))),
            }
        }
        all
    }

    /// The volume and its copies. An error if its pool does not answer.
    pub fn volume_and_copies(&self, id: &VolumeId) -> Result<(ListedVolume, Copies)> {
        let pool = self.require_pool_of(id)?;
        let id_of_query = id.clone();
        let found = self.query(pool, move |pool| {
            let id = id_of_query;
            let copies = copies_of(pool, &id)?;
            let state = match pool.catalogue().volume(&id) {
                Ok(None) if copies.is_empty() => {
                    return Err(Error::NoSuchVolume(id.to_string()));
                }
                Ok(None) => VolumeState::Deleted,
                Ok(Some(record)) => VolumeState::Present(Box::new(record)),
                Err(error) => VolumeState::Unreadable(Problem::of(&error)),
            };
            Ok((state, copies))
        });
        let (state, copies) = found??;
        let of_it = |it: &&ListedSnapshot| it.record.source == *id;
        let snapshots = copies.snapshots.iter().filter(of_it).count();
        let snapshots = Some(snapshots).filter(|_| !copies.is_truncated);
        let volume =
            ListedVolume { id: id.clone(), pool: pool.name().to_owned(), state, snapshots };
        Ok((volume, copies))
    }
}

impl VolumeListing {
    fn add(&mut self, pool: &PoolRef, found: Result<Vec<(VolumeId, Result<VolumeRecord>)>>) {
        let mut found = match found {
            Ok(found) => found,
            Err(error) => {
                self.incomplete.push((pool.name().to_owned(), error.to_string()));
                return;
            }
        };
        if !pool.catalogue().is_in_memory() && found.len() > MAX_OF_CLUSTER {
            found.truncate(MAX_OF_CLUSTER);
            let why = format!("only the first {MAX_OF_CLUSTER} volumes of a cluster are listed");
            self.incomplete.push((pool.name().to_owned(), why));
        }
        self.volumes.extend(found.into_iter().map(|(id, record)| ListedVolume {
            id,
            pool: pool.name().to_owned(),
            state: match record {
                Ok(record) => VolumeState::Present(Box::new(record)),
                Err(error) => VolumeState::Unreadable(Problem::of(&error)),
            },
            snapshots: None,
        }));
    }

    /// Snapshots outlive their volume.
    fn add_snapshots(&mut self, pool: &PoolRef, found: Result<Vec<SnapshotRecord>>) {
        let Ok(found) = found else { return };
        let mut counts: BTreeMap<VolumeId, usize> = BTreeMap::new();
        for snapshot in found {
            *counts.entry(snapshot.source).or_default() += 1;
        }
        for volume in self.volumes.iter_mut().filter(|volume| volume.id.pool() == pool.id()) {
            volume.snapshots = Some(counts.remove(&volume.id).unwrap_or(0));
        }
        self.volumes.extend(counts.into_iter().map(|(id, count)| ListedVolume {
            id,
            pool: pool.name().to_owned(),
            state: VolumeState::Deleted,
            snapshots: Some(count),
        }));
    }
}

/// All copies are on the pool of their source.
fn copies_of(pool: &PoolRef, id: &VolumeId) -> Result<Copies> {
    // 0: all of them.
    let limit = if pool.catalogue().is_in_memory() { 0 } else { MAX_OF_CLUSTER };
    let snapshots = pool.catalogue().snapshots(None, limit)?;
    let volumes = pool.catalogue().volumes(None, limit)?;
    let volumes = volumes.into_iter().filter_map(|(_, record)| record.ok()).collect();
    let mut copies = descendants_of(id, snapshots, volumes);
    copies.is_truncated |= limit != 0;
    copies.measure(pool, id);
    Ok(copies)
}

/// Each object once: sources may form a circle if a name was used again.
fn descendants_of(
    id: &VolumeId,
    snapshots: Vec<SnapshotRecord>,
    volumes: Vec<VolumeRecord>,
) -> Copies {
    let mut of_volume: BTreeMap<VolumeId, Vec<SnapshotRecord>> = BTreeMap::new();
    for snapshot in snapshots {
        of_volume.entry(snapshot.source.clone()).or_default().push(snapshot);
    }
    let mut restored: BTreeMap<SnapshotId, Vec<VolumeRecord>> = BTreeMap::new();
    let mut cloned: BTreeMap<VolumeId, Vec<VolumeRecord>> = BTreeMap::new();
    for volume in volumes {
        match volume.source.clone() {
            Some(ContentSource::Snapshot(source)) => {
                restored.entry(source).or_default().push(volume);
            }
            Some(ContentSource::Volume(source)) => cloned.entry(source).or_default().push(volume),
            None => {}
        }
    }
    let mut copies = Copies::default();
    let mut seen = BTreeSet::from([id.clone()]);
    let mut to_visit = vec![id.clone()];
    while let Some(parent) = to_visit.pop() {
        let mut children = cloned.remove(&parent).unwrap_or_default();
        for record in of_volume.remove(&parent).unwrap_or_default() {
            children.extend(restored.remove(&record.id).unwrap_or_default());
            copies.snapshots.push(ListedSnapshot { record, footprint: None });
        }
        for child in children {
            if seen.insert(child.id.clone()) {
                to_visit.push(child.id.clone());
                copies.volumes.push(ListedVolumeCopy { record: child, footprint: None });
            }
        }
    }
    copies.snapshots.sort_by_key(|snapshot| snapshot.record.created);
    copies.volumes.sort_by_key(|volume| volume.record.created);
    copies.truncate();
    copies
}

impl Copies {
    fn is_empty(&self) -> bool {
        self.snapshots.is_empty() && self.volumes.is_empty()
    }

    /// Measures as many as it can in a few seconds, snapshots before volumes: those are what people delete.
    fn measure(&mut self, pool: &PoolRef, id: &VolumeId) {
        let deadline = Instant::now() + MEASURING_TIME;
        let measure = |of: ContentSource| {
            if Instant::now() >= deadline {
                return None;
            }
            pool.changed_blocks().footprint(&of).unwrap_or_else(|error| {
                tracing::debug!(%error, ?of, "cannot measure a volume or snapshot");
                None
            })
        };
        self.footprint = measure(ContentSource::Volume(id.clone()));
        for snapshot in &mut self.snapshots {
            snapshot.footprint = measure(ContentSource::Snapshot(snapshot.record.id.clone()));
        }
        for volume in &mut self.volumes {
            volume.footprint = measure(ContentSource::Volume(volume.record.id.clone()));
        }
    }

    /// Drops the oldest beyond the limit.
    fn truncate(&mut self) {
        let surplus = (self.snapshots.len() + self.volumes.len()).saturating_sub(MAX_COPIES);
        let of_volumes = surplus.min(self.volumes.len());
        self.volumes.drain(..of_volumes);
        let of_snapshots = (surplus - of_volumes).min(self.snapshots.len());
        self.snapshots.drain(..of_snapshots);
        self.is_truncated = surplus > 0;
    }
}
