//! How much room there is, and is all well?
//!
//! Ceph is thin by nature, and several processes give out its room at once, so no sum of promises
//! is kept: a single volume may not be larger than what is free now, and that is all.

use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{
    ALLOCATION_UNIT, Condition, Error, Health, PoolCapacity, Provisioning, Result, StorageProbe,
    VolumeId,
};
use orlop_sys::ceph::Access;
use serde::Deserialize;

use super::marker;
use super::pulse::Beat;
use super::store::Store;
use crate::shortage::Change;

/// Quotas are in the details only.
const USAGE: &str = r#"{"prefix": "df", "detail": "detail", "format": "json"}"#;
/// A full pool has room again when it has this much, not as soon as a single object was removed.
const PLENTY: u64 = 64 << 20;
/// A manager tells the monitors of new pools every five seconds.
const COUNTING: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);
/// The least that every user may ask.
const VERSION: &str = r#"{"prefix": "version"}"#;

#[derive(Deserialize)]
struct Usage {
    pools: Vec<PoolUsage>,
}

#[derive(Deserialize)]
struct PoolUsage {
    name: String,
    stats: Stats,
}

#[derive(Deserialize)]
struct Stats {
    /// What can still be written by clients: replication, and the stores that fill up first, are
    /// reckoned in.
    max_avail: u64,
    #[serde(default)]
    stored: u64,
    #[serde(default)]
    objects: u64,
    /// 0: none.
    #[serde(default)]
    quota_bytes: u64,
    #[serde(default)]
    quota_objects: u64,
}

impl Stats {
    fn available(&self) -> u64 {
        if self.quota_objects > 0 && self.objects >= self.quota_objects {
            return 0;
        }
        match self.quota_bytes {
            0 => self.max_avail,
            quota => self.max_avail.min(quota.saturating_sub(self.stored)),
        }
    }
}

/// `None`: the answer does not name the pool.
pub(crate) fn available_to(pool: &str, answer: &[u8]) -> serde_json::Result<Option<u64>> {
    let usage: Usage = serde_json::from_slice(answer)?;
    let ours = usage.pools.into_iter().find(|usage| usage.name == pool);
    Ok(ours.map(|usage| usage.stats.available()))
}

impl Beat for Store {
    fn beat(&self) -> Result<()> {
        // Comes by often enough, also where nobody asks for a volume's condition.
        self.attachments.keep_logs_short();
        self.examine()?;
        if self.attachments.serves_node() {
            self.keep_node_known();
        }
        Ok(())
    }
}

impl Health for Store {
    /// Quick, also when nobody answers.
    fn check(&self) -> Result<()> {
        self.connection.pulse.health()
    }

    /// The connection to the cluster notices it itself.
    fn storage_probe(&self) -> Option<&dyn StorageProbe> {
        None
    }

    fn condition(&self, id: &VolumeId) -> Result<Condition> {
        self.condition_within(id, &self.available())
    }

    /// How much room there is, is asked once for all of them.
    fn conditions(&self, ids: &[VolumeId]) -> Vec<Condition> {
        let available = self.available();
        let abnormal = |error: Error| Condition::abnormal(error.to_string());
        let within = |id| self.condition_within(id, &available).unwrap_or_else(abnormal);
        ids.iter().map(within).collect()
    }
}

impl Store {
    /// Asks the object stores, then the monitors: without either, little can be done.
    fn examine(&self) -> Result<()> {
        let checking = || format!("check pool {}", self.info.name);
        match marker::read(&self.connection)? {
            Some(id) if id == self.info.id => {}
            Some(id) => {
                let reason = format!("its id was {} and is now {id}", self.info.id);
                return Err(Error::failed(checking(), reason));
            }
            None => {
                return Err(Error::failed(checking(), "its mark is gone; was the pool made anew?"));
            }
        }
        self.check_records(checking)?;
        self.connection.ask_anyway(checking, |io| io.cluster().monitor_command(VERSION)).map(drop)
    }

    fn available(&self) -> Result<u64> {
        self.counted()?.ok_or_else(|| self.not_counted())
    }

    /// As [`Self::available`], for calls: a Ceph pool may have been made just now.
    fn available_once_counted(&self) -> Result<u64> {
        let deadline = Instant::now() + COUNTING.min(self.attachments.timeout());
        loop {
            match self.counted()? {
                Some(available) => return Ok(available),
                None if Instant::now() < deadline => thread::sleep(PAUSE),
                None => return Err(self.not_counted()),
            }
        }
    }

    /// `None`: the answer does not name the pool.
    fn counted(&self) -> Result<Option<u64>> {
        let asking = || self.asking_for_room();
        let answer = self.ask(asking, |io| io.cluster().monitor_command(USAGE))?;
        let available = available_to(self.connection.pool(), &answer);
        let available = available.map_err(|error| Error::failed(asking(), error))?;
        available.into_iter().for_each(|available| self.note_shortage(available));
        Ok(available)
    }

    fn not_counted(&self) -> Error {
        let reason = format!(
            "the Ceph cluster does not report on the pool {} yet; it does a few seconds after the \
             pool was made, if its manager (ceph-mgr) is up",
            self.connection.pool()
        );
        Error::Unreachable { doing: self.asking_for_room(), reason }
    }

    fn asking_for_room(&self) -> String {
        format!("ask how much room pool {} has", self.info.name)
    }

    fn note_shortage(&self, available: u64) {
        let pool = &self.info.name;
        match self.shortage.note(available == 0, available >= PLENTY) {
            Some(Change::Begun) => tracing::warn!(
                pool,
                "the Ceph pool is full: nothing is made or grown on it, and writes to its volumes \
                 wait or fail; free some of its space, raise its quota or give the cluster more"
            ),
            Some(Change::Over) => {
                tracing::info!(pool, available, "the Ceph pool has free space again");
            }
            None => {}
        }
    }

    /// For a start on a pool that is full already. That it cannot be asked is told by others.
    pub(super) fn look_at_room(&self) {
        if let Err(error) = self.available() {
            tracing::debug!(%error, "cannot read the free space of the Ceph pool");
        }
    }

    pub(super) fn capacity(&self, provisioning: Provisioning) -> Result<PoolCapacity> {
        let available_bytes = match provisioning {
            Provisioning::Thin => self.available_once_counted()?,
            Provisioning::Thick => 0,
        };
        let largest_volume = available_bytes / ALLOCATION_UNIT * ALLOCATION_UNIT;
        Ok(PoolCapacity { available_bytes, largest_volume })
    }

    pub(super) fn check_fits(&self, bytes: u64) -> Result<()> {
        let available = self.available_once_counted()?;
        if bytes <= available {
            return Ok(());
        }
        Err(Error::Exhausted(format!(
            "pool {} has {available} bytes free, {bytes} are asked for",
            self.info.name
        )))
    }

    /// The cluster keeps what is written to a full pool waiting until there is room.
    pub(super) fn check_takes_writes(&self) -> Result<()> {
        if self.available()? > 0 {
            return Ok(());
        }
        Err(Error::Exhausted(format!(
            "pool {} is full, and what is written to it waits; free some of its space, raise its \
             quota or give the cluster more",
            self.info.name
        )))
    }

    /// For what takes next to nothing, but not nothing. librbd would make a snapshot of an image in
    /// a full pool, but without its map of objects, and all that asks for changes would be slow.
    pub(super) fn check_any_room(&self) -> Result<()> {
        self.check_fits(1)
    }

    fn condition_within(&self, id: &VolumeId, available: &Result<u64>) -> Result<Condition> {
        let abnormal = |error: &Error| Ok(Condition::abnormal(error.to_string()));
        let known = match self.known(id) {
            Ok(Some(known)) => known,
            Ok(None) => return Err(Error::NoSuchVolume(id.to_string())),
            Err(unwell) => return abnormal(&unwell),
        };
        let looking = || format!("look at volume {id}");
        let size = self.ask(looking, |io| {
            io.open_image_by_id(&known.image_id, None, Access::ReadOnly)?.size()
        });
        match size {
            Ok(size) if size < known.record.capacity_bytes => {
                return Ok(Condition::abnormal(format!(
                    "its image has {size} bytes, its record promises {}",
                    known.record.capacity_bytes
                )));
            }
            Ok(_) => {}
            Err(unwell) => return abnormal(&unwell),
        }
        match available {
            Ok(0) => Ok(Condition::abnormal("the Ceph pool is full")),
            Ok(_) => Ok(Condition::healthy("the image is there, with room to write")),
            Err(unwell) => abnormal(unwell),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_counts_where_it_is_the_smaller() {
        let of = |stats: &str| serde_json::from_str::<Stats>(stats).unwrap().available();
        assert_eq!(of(r#"{"max_avail": 100, "stored": 7}"#), 100);
        assert_eq!(of(r#"{"max_avail": 100, "stored": 7, "quota_bytes": 0}"#), 100);
        assert_eq!(of(r#"{"max_avail": 100, "stored": 7, "quota_bytes": 50}"#), 43);
        assert_eq!(of(r#"{"max_avail": 10, "stored": 7, "quota_bytes": 50}"#), 10);
        assert_eq!(of(r#"{"max_avail": 10, "stored": 70, "quota_bytes": 50}"#), 0);
        assert_eq!(of(r#"{"max_avail": 10, "objects": 7, "quota_objects": 0}"#), 10);
        assert_eq!(of(r#"{"max_avail": 10, "objects": 7, "quota_objects": 8}"#), 10);
        assert_eq!(of(r#"{"max_avail": 10, "objects": 8, "quota_objects": 8}"#), 0);
    }
}
