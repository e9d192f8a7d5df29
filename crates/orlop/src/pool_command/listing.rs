//! What `orlop pool list` and `show` say, for programs and for people.

use std::collections::BTreeMap;

use orlop_model::{Bytes, VolumeRecord};
use orlop_pools::image::{ImagePool, ImagePoolConfig};
use orlop_pools::lvm::{LvmPool, LvmPoolConfig};
use serde::Serialize;

use super::absent;
use crate::config::PoolConfig;
use crate::doctor::Line;
use crate::inspection::Inspection;
use crate::reading::within_timeout;

#[derive(Serialize)]
pub(super) struct ListedPool {
    name: String,
    kind: &'static str,
    /// The directory, the thin pool, or the pool of the Ceph cluster.
    at: String,
    /// Null if there is no pool yet, if it is not here, or for a Ceph cluster, which is not queried.
    pub(super) id: Option<String>,
    /// Of the filesystem or the thin pool that it is on; null where that is not known without its daemon.
    free_bytes: Option<u64>,
    size_bytes: Option<u64>,
    /// Why it cannot be read.
    pub(super) problem: Option<String>,
}

impl ListedPool {
    pub(super) fn of(pool: &PoolConfig) -> Self {
        let read = pool.clone();
        let listed = within_timeout(move || {
            Ok(match &read {
                PoolConfig::Image(image) => Self::of_image(&read, image),
                PoolConfig::Lvm(lvm) => Self::of_lvm(&read, lvm),
                PoolConfig::Rbd(_) => Self::empty(&read),
            })
        });
        listed.unwrap_or_else(|why| {
            let problem = Some(format!("cannot be read: {why}"));
            Self { problem, ..Self::empty(pool) }
        })
    }

    fn empty(pool: &PoolConfig) -> Self {
        let (name, at) = (pool.name().to_owned(), pool.place());
        let kind = pool.kind();
        Self { name, kind, at, id: None, free_bytes: None, size_bytes: None, problem: None }
    }

    fn of_lvm(config: &PoolConfig, pool: &LvmPoolConfig) -> Self {
        let listed = Self::empty(config);
        match LvmPool::id_of(pool) {
            Ok(None) => listed,
            Ok(Some(id)) => {
                let (free_bytes, size_bytes) = LvmPool::space_of(pool).ok().flatten().unzip();
                Self { id: Some(id.to_string()), free_bytes, size_bytes, ..listed }
            }
            Err(error) => Self { problem: Some(format!("cannot be read: {error}")), ..listed },
        }
    }

    fn of_image(config: &PoolConfig, pool: &ImagePoolConfig) -> Self {
        let listed = Self::empty(config);
        let problem = match ImagePool::id_at(&pool.path) {
            Ok(Some(id)) => {
                let (free_bytes, size_bytes) = space(config).unzip();
                return Self { id: Some(id.to_string()), free_bytes, size_bytes, ..listed };
            }
            Ok(None) => absent(pool).map(|before| {
                format!(
                    "absent: pool {} was served here since this machine started; mount its disk",
                    before.id
                )
            }),
            // The others are listed all the same.
            Err(error) => Some(format!("cannot be read: {error}")),
        };
        Self { problem, ..listed }
    }

    pub(super) fn line(&self) -> String {
        let Self { name, kind, at, .. } = self;
        let what = match (&self.id, &self.problem) {
            (Some(id), _) => {
                format!("id {id}{}", space_text(self.free_bytes.zip(self.size_bytes)))
            }
            (None, Some(problem)) => problem.clone(),
            (None, None) if *kind != "rbd" => "no pool yet".to_owned(),
            (None, None) => return format!("{name} {kind} {at}"),
        };
        format!("{name} {kind} {at}: {what}")
    }
}

/// Free and all. As far as it is known: the image of a managed pool is mounted while it is served.
pub(super) fn space(pool: &PoolConfig) -> Option<(u64, u64)> {
    match pool {
        PoolConfig::Image(image) => ImagePool::space_at(&image.path).ok().flatten(),
        PoolConfig::Lvm(lvm) => LvmPool::space_of(lvm).ok().flatten(),
        PoolConfig::Rbd(_) => None,
    }
}

pub(super) fn space_text(space: Option<(u64, u64)>) -> String {
    match space {
        Some((free, total)) => format!(", {} free of {}", Bytes(free), Bytes(total)),
        None => String::new(),
    }
}

#[derive(Serialize)]
pub(super) struct ShownPool<'a> {
    id: String,
    at: String,
    in_use: bool,
    free_bytes: Option<u64>,
    size_bytes: Option<u64>,
    /// The name and place by which it was served last; null if there is no record of it.
    last_served: Option<LastServed<'a>>,
    volumes: Vec<ShownVolume>,
    snapshots: usize,
    findings: &'a [Line],
}

#[derive(Serialize)]
struct LastServed<'a> {
    name: &'a str,
    topology: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct ShownVolume {
    id: String,
    name: String,
    size_bytes: u64,
    published_nodes: Vec<String>,
}

impl<'a> ShownPool<'a> {
    pub(super) fn of(pool: &PoolConfig, inspection: &'a Inspection, findings: &'a [Line]) -> Self {
        let (free_bytes, size_bytes) = space(pool).unzip();
        let last_served = inspection.last_owner.as_ref().map(|owner| LastServed {
            name: &owner.name,
            topology: owner
                .topology
                .segments()
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
        });
        let volume = |volume: &VolumeRecord| ShownVolume {
            id: volume.id.to_string(),
            name: volume.name.as_str().to_owned(),
            size_bytes: volume.capacity_bytes,
            published_nodes: volume.published.keys().map(ToString::to_string).collect(),
        };
        Self {
            id: inspection.id.to_string(),
            at: pool.place(),
            in_use: inspection.in_use,
            free_bytes,
            size_bytes,
            last_served,
            volumes: inspection.volumes.iter().map(volume).collect(),
            snapshots: inspection.snapshots,
            findings,
        }
    }
}
