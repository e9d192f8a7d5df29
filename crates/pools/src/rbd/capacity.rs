//! How much space there is.
//!
//! Ceph is thin by nature, and several processes give out its space at once, so no sum of promises
//! is kept: a single volume may not be larger than what is free now, and that is all.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{ALLOCATION_UNIT, Error, PoolCapacity, PoolInfo, Provisioning, Reason, Result};
use orlop_sys::ceph::IoCtx;
use serde::Deserialize;

use super::session::Session;
use crate::shortage::{Change, Shortage};

/// Quotas are in the details only.
const USAGE: &str = r#"{"prefix": "df", "detail": "detail", "format": "json"}"#;
/// A full pool has space again when it has this much, not as soon as a single object was removed.
const RECOVERED_BYTES: u64 = 64 << 20;
/// A manager tells the monitors of new pools every five seconds.
const FIRST_REPORT_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
#[derive(Deserialize)]
struct ClusterUsage {
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
    let usage: ClusterUsage = serde_json::from_slice(answer)?;
    let ours = usage.pools.into_iter().find(|usage| usage.name == pool);
    Ok(ours.map(|usage| usage.stats.available()))
}

/// A pool that the monitors do not count yet has hardly been written to.
pub(super) fn is_full(io: &IoCtx) -> orlop_sys::Result<bool> {
    let answer = io.cluster().monitor_command(USAGE)?;
    Ok(matches!(available_to(io.pool(), &answer), Ok(Some(0))))
}

#[derive(Debug)]
pub(super) struct RbdCapacity {
    session: Arc<Session>,
    info: Arc<PoolInfo>,
    shortage: Shortage,
}

impl RbdCapacity {
    pub(super) fn new(session: &Arc<Session>, info: &Arc<PoolInfo>) -> Self {
        Self { session: Arc::clone(session), info: Arc::clone(info), shortage: Shortage::default() }
    }

    pub(super) fn was_full(&self) -> bool {
        self.shortage.is_on()
    }

    pub(super) fn available(&self) -> Result<u64> {
        self.counted()?.ok_or_else(|| self.not_counted())
    }

    /// As [`Self::available`], for calls: a Ceph pool may have been made just now.
    fn available_once_counted(&self) -> Result<u64> {
        let deadline = Instant::now() + FIRST_REPORT_TIMEOUT.min(self.session.operation_timeout());
        loop {
            match self.counted()? {
                Some(available) => return Ok(available),
                None if Instant::now() < deadline => thread::sleep(POLL_INTERVAL),
                None => return Err(self.not_counted()),
            }
        }
    }

    /// `None`: the answer does not name the pool.
    fn counted(&self) -> Result<Option<u64>> {
        let asking = || self.asking_for_space();
        let answer = self.session.ask(asking, |io| io.cluster().monitor_command(USAGE))?;
        let available = available_to(self.session.ceph_pool(), &answer);
        let available = available.map_err(|error| Error::failed(asking(), Reason::of(error)))?;
        available.into_iter().for_each(|available| self.note_shortage(available));
        Ok(available)
    }

    fn not_counted(&self) -> Error {
        let reason = format!(
            "the Ceph cluster does not report on the pool {} yet; it does a few seconds after the \
             pool was made, if its manager (ceph-mgr) is up",
            self.session.ceph_pool()
        );
        Error::unreachable(self.asking_for_space(), reason)
    }

    fn asking_for_space(&self) -> String {
        format!("read the free space of pool {}", self.info.name)
    }

    fn note_shortage(&self, available: u64) {
        let pool = &self.info.name;
        match self.shortage.note(available == 0, available >= RECOVERED_BYTES) {
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

    /// For a start on a pool that is full already. A cluster that does not answer is reported by the
    /// circuit breaker.
    pub(super) fn report_shortage(&self) {
        if let Err(error) = self.available() {
            tracing::debug!(%error, "cannot read the free space of the Ceph pool");
        }
    }

    pub(super) fn largest(&self, provisioning: Provisioning) -> Result<PoolCapacity> {
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
        Err(Error::exhausted(format!(
            "cannot allocate {bytes} bytes in pool {}: it has {available} bytes free; delete \
             volumes or snapshots, raise its quota or give the cluster more space",
            self.info.name
        )))
    }

    /// For what takes next to nothing, but not nothing. librbd would take a snapshot of an image in
    /// a full pool, but without its map of objects, and all that asks for changes would be slow.
    pub(super) fn check_not_full(&self) -> Result<()> {
        self.check_fits(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_quota_limits_the_capacity() {
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
