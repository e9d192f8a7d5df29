//! Which pool has the volume of a name, and which takes a new one.

use std::cmp::Reverse;

use orlop_model::{
    CapabilitySet, ContentSource, Error, NameDigest, PoolId, Result, TopologyRequirement, VolumeId,
    VolumeParameters, VolumeRecord,
};

use crate::engine::{Engine, PoolRef};
use crate::request::CreateVolume;
use crate::sharing::sharing;

/// What limits the choice.
pub(crate) struct Wanted<'a> {
    pub(crate) parameters: &'a VolumeParameters,
    pub(crate) topology: Option<&'a TopologyRequirement>,
    /// A copy stays on the pool of its source: extents are shared within a pool only.
    pub(crate) source_pool: Option<&'a PoolRef>,
    pub(crate) capabilities: &'a CapabilitySet,
}

impl Engine {
    /// Where something of a certain name may be. If it is known to belong to one pool, others that
    /// would have to be asked over a network are not: they may be away, and who else names things
    /// there is beyond this daemon anyway.
    pub(crate) fn homes(&self, belongs: impl Fn(&PoolRef) -> bool) -> Vec<&PoolRef> {
        self.pools()
            .values()
            .filter(|pool| pool.catalogue().is_in_memory() || belongs(pool))
            .collect()
    }

    /// Pools whose answers come from memory.
    pub(crate) fn local_pools(&self) -> impl Iterator<Item = &PoolRef> {
        self.pools().values().filter(|pool| pool.catalogue().is_in_memory())
    }

    /// Names decide ids, so a name is looked for by asking each pool for the one id it could
    /// have there. `pool` is the one it is to be on, if that is known.
    pub(crate) fn find_volume(
        &self,
        digest: &NameDigest,
        pool: Option<&str>,
    ) -> Result<Option<(&PoolRef, VolumeRecord)>> {
        let belongs = |name: &str| pool.is_none_or(|wanted| wanted == name);
        for pool in self.homes(|pool| belongs(pool.name())) {
            let id = VolumeId::new(pool.id().clone(), digest.clone());
            if let Some(record) = pool.catalogue().volume(&id)? {
                return Ok(Some((pool, record)));
            }
        }
        self.check_none_absent(belongs).map(|()| None)
    }

    /// Pools that may take the volume, the best first: by the caller's order of preference,
    /// then by free space.
    pub(crate) fn candidates(&self, wanted: &Wanted<'_>) -> Result<Vec<PoolRef>> {
        let mut ranked: Vec<(usize, PoolRef)> = Vec::new();
        for pool in able_pools(self.named_pools(wanted)?, wanted.capabilities)? {
            let rank = match wanted.topology {
                Some(topology) if !pool.topology().is_empty() => topology.rank(pool.topology()),
                Some(_) | None => Some(0),
            };
            ranked.extend(rank.map(|rank| (rank, pool)));
        }
        if ranked.is_empty() {
            // TP-17
            return Err(Error::exhausted(
                "cannot place the volume: no pool that fits the parameters can be reached from \
                 the topology that is asked for"
                    .to_owned(),
            ));
        }
        let answer = |(_, pool): &(usize, PoolRef)| self.check_answers(pool.id());
        if let Some(Err(error)) = ranked.iter().map(answer).find(Result::is_err) {
            ranked.retain(|candidate| answer(candidate).is_ok());
            if ranked.is_empty() {
                return Err(error);
            }
        }
        // Where there is no choice, no pool has to be asked.
        if ranked.len() > 1 {
            ranked.sort_by_cached_key(|(rank, pool)| {
                (*rank, Reverse(self.free_space(pool, wanted.parameters)))
            });
        }
        Ok(ranked.into_iter().map(|(_, pool)| pool).collect())
    }

    /// A pool that cannot tell is tried last; creating there then says what is wrong with it.
    fn free_space(&self, pool: &PoolRef, parameters: &VolumeParameters) -> u64 {
        let parameters = parameters.clone();
        let capacity = self
            .query(pool, move |pool| pool.provisioner().capacity_for(&parameters))
            .and_then(|answer| answer);
        capacity.map_or(0, |capacity| capacity.available_bytes)
    }

    /// On which pool a new volume will be, where no pool has to be asked for that.
    pub fn certain_home(&self, request: &CreateVolume) -> Option<PoolId> {
        let of_source = request.source.as_ref().map(ContentSource::pool);
        let named = |name: &String| {
            self.pools().values().find(|pool| pool.name() == name).map(|pool| pool.id())
        };
        let only = || self.pools().keys().next().filter(|_| self.pools().len() == 1);
        of_source
            .or_else(|| request.parameters.pool.as_ref().and_then(named))
            .or_else(only)
            .cloned()
    }

    /// On which pool a new volume will most likely be.
    pub fn likely_home(&self, request: &CreateVolume) -> Option<PoolId> {
        let digest = NameDigest::of(&request.name);
        for pool in self.local_pools() {
            let id = VolumeId::new(pool.id().clone(), digest.clone());
            if let Ok(Some(_)) = pool.catalogue().volume(&id) {
                return Some(pool.id().clone());
            }
        }
        let wanted = Wanted {
            parameters: &request.parameters,
            topology: request.topology.as_ref(),
            source_pool: None,
            capabilities: &request.capabilities,
        };
        // What is wrong is for the creation itself to say.
        let candidates = self.candidates(&wanted).unwrap_or_default();
        candidates.first().map(|pool| pool.id().clone())
    }

    fn named_pools(&self, wanted: &Wanted<'_>) -> Result<Vec<PoolRef>> {
        let name = wanted.parameters.pool.as_deref();
        let fits = |pool: &&PoolRef| name.is_none_or(|name| pool.name() == name);
        if let Some(source) = wanted.source_pool {
            check_same_pool(source, wanted.parameters)?;
            return Ok(vec![PoolRef::clone(source)]);
        }
        let pools: Vec<_> = self.pools().values().filter(fits).cloned().collect();
        if pools.is_empty() {
            // Other nodes may have it, so the orchestrator is to try there, not to give up.
            let name = name.map_or_else(String::new, |name| format!(" named {name}"));
            let here: Vec<_> = self.pools().values().map(|pool| pool.name()).collect();
            return Err(Error::exhausted(format!(
                "cannot place the volume: this node has no pool{name}; its pools are: {}",
                here.join(", ")
            )));
        }
        Ok(pools)
    }
}

pub(crate) fn check_same_pool(source: &PoolRef, wanted: &VolumeParameters) -> Result<()> {
    if wanted.pool.as_ref().is_none_or(|name| name == source.name()) {
        return Ok(());
    }
    Err(Error::invalid(
        "volume_content_source",
        format!("is on pool {}; a copy cannot be made on another pool", source.name()),
    ))
}

/// A filesystem that two nodes mount at once, one of them to write, is destroyed by it. Where a
/// volume stays on one node that cannot happen; where it can go to several, the mode is refused.
fn able_pools(pools: Vec<PoolRef>, capabilities: &CapabilitySet) -> Result<Vec<PoolRef>> {
    let written_by_many = capabilities.iter().any(|capability| {
        let mode = capability.mode;
        !capability.is_block() && mode.is_multi_node() && !mode.is_read_only()
    });
    if !written_by_many {
        return Ok(pools);
    }
    let able: Vec<_> =
        pools.into_iter().filter(|pool| sharing(pool).allows_many_mounted_writers()).collect();
    if able.is_empty() {
        return Err(Error::invalid(
            "volume_capabilities",
            "asks for a filesystem that several nodes mount while one or more of them write; on a \
             pool that nodes share, that is offered for raw block access only",
        ));
    }
    Ok(able)
}
