//! GetCapacity: what can really be promised.

use orlop_model::{ALLOCATION_UNIT, CapabilitySet, Error, Result};

use crate::create::smallest_volume;
use crate::engine::{Engine, PoolRef};
use crate::request::{CapacityAnswer, CapacityQuery};

impl Engine {
    /// A pool or a topology that is not here has room for nothing; that is an answer, not an error,
    /// as the orchestrator asks every node about every class. Nor is there room on a pool that is
    /// away: with an error, the orchestrator would go on with what it knew before. A pool that
    /// fails does not keep the others from being counted.
    pub fn capacity(&self, query: &CapacityQuery) -> Result<CapacityAnswer> {
        let capabilities = query.capabilities.clone().map(|wanted| self.with_default(wanted));
        let encryption = query.parameters.encryption;
        let minimum_volume = match &capabilities {
            Some(wanted) => smallest_volume(wanted, encryption),
            None => ALLOCATION_UNIT,
        };
        let mut answer = CapacityAnswer { available: 0, maximum_volume: 0, minimum_volume };
        if !capabilities.as_ref().is_none_or(|wanted| self.offers(wanted)) {
            return Ok(answer);
        }
        let mut failed = Ok(());
        let mut known = false;
        for pool in self.pools().values().filter(|pool| fits(pool, query)) {
            let parameters = query.parameters.clone();
            match self
                .query(pool, move |pool| pool.provisioner().capacity_for(&parameters))
                .and_then(|answer| answer)
            {
                Ok(capacity) => {
                    known = true;
                    answer.available = answer.available.saturating_add(capacity.available_bytes);
                    answer.maximum_volume = answer.maximum_volume.max(capacity.largest_volume);
                }
                Err(error) => {
                    tracing::warn!(
                        pool = pool.name(),
                        %error,
                        "cannot read the capacity of a pool; it is reported as full"
                    );
                    if matches!(error, Error::Unreachable { .. }) {
                        known = true;
                    } else {
                        failed = Err(error);
                    }
                }
            }
        }
        if !known {
            failed?;
        }
        answer.available = steady(answer.available);
        answer.maximum_volume = steady(answer.maximum_volume);
        Ok(answer)
    }

    fn with_default(&self, capabilities: CapabilitySet) -> CapabilitySet {
        match self.host().filesystems().first() {
            Some(default) => capabilities.with_default_fs(*default),
            None => capabilities,
        }
    }

    fn offers(&self, capabilities: &CapabilitySet) -> bool {
        !capabilities.wants_mount()
            || capabilities.fs().is_some_and(|fs| self.host().filesystems().contains(&fs))
    }
}

/// Rounded down to at most a part in 2048, so that orchestrators which publish the figure do not have
/// to do so at every poll: a few blocks of metadata more or less change nothing. Never below a MiB,
/// in which volumes are measured, nor above a GiB.
fn steady(bytes: u64) -> u64 {
    const BITS_KEPT: u32 = 11;
    let step = 1 << bytes.checked_ilog2().unwrap_or(0).saturating_sub(BITS_KEPT).clamp(20, 30);
    bytes / step * step
}

fn fits(pool: &PoolRef, query: &CapacityQuery) -> bool {
    let named = query.parameters.pool.as_deref().is_none_or(|name| pool.name() == name);
    let reachable = query
        .topology
        .as_ref()
        .is_none_or(|asked| pool.topology().is_empty() || pool.topology().is_within(asked));
    named && reachable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_capacity_is_never_more_and_barely_less() {
        const MIB: u64 = 1 << 20;
        for bytes in [0, 1, MIB - 1, MIB, 5 * MIB + 7, 1 << 31, (1 << 37) + 12345, u64::MAX] {
            let rounded = steady(bytes);
            assert!(
                rounded <= bytes && bytes - rounded < MIB.max(bytes / 2048 + 1),
                "{bytes}: {rounded}"
            );
            assert_eq!(steady(rounded), rounded);
            assert_eq!(rounded % ALLOCATION_UNIT, 0);
        }
        let terabytes = 3 << 40;
        assert_eq!(steady(terabytes + 4096), steady(terabytes + 900 * MIB));
    }
}
