//! How many volumes each node has, for its limit (CP-17).

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use orlop_model::{Error, NodeId, Result, VolumeId};

use crate::engine::PoolRef;

/// How many records are read at a time: all at once would be in memory twice.
const PAGE: usize = 256;
/// How old a count may be for nodes that are [`LIMIT_MARGIN`] volumes below their limit: other controllers do not
/// publish as many in that time.
const MAX_COUNT_AGE: Duration = Duration::from_secs(60);
const LIMIT_MARGIN: usize = 100;

/// Which volumes each node has, so that a full node is noticed without reading all records.
/// Rebuilt from the pools at start. Not of shared pools, where it would soon be wrong.
#[derive(Debug, Default)]
pub(crate) struct NodeVolumeCount(Mutex<HashMap<NodeId, HashSet<VolumeId>>>);

impl NodeVolumeCount {
    pub(crate) fn add_all_of(&self, pool: &PoolRef) -> Result<()> {
        each_publication(pool, |node, volume| self.add(node, volume))
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<NodeId, HashSet<VolumeId>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, node: &NodeId, volume: &VolumeId) {
        self.entries().entry(node.clone()).or_default().insert(volume.clone());
    }

    /// Counts the volume in, unless that would be one too many (CP-17).
    pub(crate) fn try_add(&self, node: &NodeId, volume: &VolumeId, max: u32) -> Result<()> {
        let mut entries = self.entries();
        let volumes = entries.entry(node.clone()).or_default();
        let full = u32::try_from(volumes.len()).is_ok_and(|count| max != 0 && count >= max);
        if full && !volumes.contains(volume) {
            return Err(full_node(node, max));
        }
        volumes.insert(volume.clone());
        Ok(())
    }

    pub(crate) fn remove(&self, node: &NodeId, volume: &VolumeId) {
        if let Some(volumes) = self.entries().get_mut(node) {
            volumes.remove(volume);
        }
    }
}

/// The same of shared pools, as it was a while ago. Two controllers may both find room for
/// one more volume; the node itself decides when it stages.
#[derive(Debug, Default)]
pub(crate) struct SharedVolumeCount(Mutex<Option<CountedVolumes>>);

#[derive(Debug)]
struct CountedVolumes {
    at: Instant,
    volumes: HashMap<NodeId, usize>,
}

impl SharedVolumeCount {
    /// Counts one more volume in, unless that would be one too many. `pools` are all of them: a
    /// node's limit is for whatever it has.
    pub(crate) fn try_add<'a>(
        &self,
        node: &NodeId,
        max: u32,
        pools: impl Iterator<Item = &'a PoolRef>,
    ) -> Result<()> {
        let limit = usize::try_from(max).unwrap_or(usize::MAX);
        if max == 0 || self.try_add_remembered(node, limit) {
            return Ok(());
        }
        let (mut volumes, mut complete) = (HashMap::new(), true);
        for pool in pools {
            match each_publication(pool, |node, _| *volumes.entry(node.clone()).or_default() += 1) {
                // Another pool is unreachable, which must not prevent the use of this one.
                Err(Error::Unreachable { .. }) => complete = false,
                counted => counted?,
            }
        }
        let count: &mut usize = volumes.entry(node.clone()).or_default();
        if *count >= limit {
            return Err(full_node(node, max));
        }
        *count += 1;
        *self.counted() = complete.then(|| CountedVolumes { at: Instant::now(), volumes });
        Ok(())
    }

    fn try_add_remembered(&self, node: &NodeId, limit: usize) -> bool {
        let mut counted = self.counted();
        let Some(counted) = counted.as_mut().filter(|it| it.at.elapsed() < MAX_COUNT_AGE) else {
            return false;
        };
        let count = counted.volumes.entry(node.clone()).or_default();
        *count += 1;
        count.saturating_add(LIMIT_MARGIN) <= limit
    }

    fn counted(&self) -> MutexGuard<'_, Option<CountedVolumes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn full_node(node: &NodeId, max: u32) -> Error {
    Error::exhausted(format!(
        "cannot publish another volume to node {node}: it has {max} volumes, which is its limit; \
         unpublish one there, or raise ORLOP_MAX_VOLUMES_PER_NODE"
    ))
}

fn each_publication(pool: &PoolRef, mut found: impl FnMut(&NodeId, &VolumeId)) -> Result<()> {
    let mut last = None;
    loop {
        let page = pool.catalogue().volumes(last.as_ref(), PAGE)?;
        for (id, record) in &page {
            for node in record.iter().flat_map(|record| record.published.keys()) {
                found(node, id);
            }
        }
        match page.into_iter().next_back() {
            Some((id, _)) => last = Some(id),
            None => return Ok(()),
        }
    }
}
