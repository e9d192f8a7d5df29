//! The daemon, its pools and its peers.

use std::sync::Arc;
use std::time::Instant;

use orlop_engine::{Engine, PoolFigures, PoolState};
use orlop_model::{HealthReason, PoolSpace};
use serde::Serialize;

use super::{Answered, JSON, OVERVIEW_AGE, Page, json, whole};
use crate::cluster::PeerStatus;

#[derive(Serialize)]
struct Overview<'a> {
    node: &'a str,
    driver: &'a str,
    version: &'a str,
    mode: &'a str,
    /// May changes be made, with the token?
    changes: bool,
    calls_in_flight: usize,
    pools: Vec<PoolView>,
    peers: Option<Peers>,
}

#[derive(Serialize)]
struct PoolView {
    name: String,
    id: Option<String>,
    state: &'static str,
    /// Why it does not serve, or is about to be full.
    problem: Option<String>,
    space: Option<SpaceView>,
    objects: Option<ObjectsView>,
}

/// In bytes; what is not known is null.
#[derive(Serialize)]
struct SpaceView {
    size: Option<u64>,
    free: Option<u64>,
    stored: Option<u64>,
    unshared: Option<u64>,
    floor: Option<u64>,
    promised: Option<u64>,
    reserved: Option<u64>,
    overcommit_percent: Option<u32>,
    available: u64,
}

#[derive(Serialize)]
struct ObjectsView {
    normal_volumes: usize,
    abnormal_volumes: usize,
    with_lost_writes: usize,
    snapshots: usize,
    /// Among them.
    abnormal_snapshots: usize,
}

#[derive(Serialize)]
struct Peers {
    nodes: Vec<NodeView>,
    /// Addresses at which no daemon has answered yet.
    silent: Vec<SilentAddress>,
    /// Unix time.
    certificate_expiry: Option<u64>,
}

#[derive(Serialize)]
struct NodeView {
    node: String,
    answers: bool,
    /// Why it does not.
    why: Option<String>,
    /// `true`: all its pools are known.
    is_complete: bool,
    pools: Vec<NodePool>,
}

#[derive(Serialize)]
struct NodePool {
    id: String,
    name: String,
}

#[derive(Serialize)]
struct SilentAddress {
    address: String,
    why: String,
}

impl Page {
    /// Requests that arrive within [`OVERVIEW_AGE`] get the same answer, so that pools are queried once for all of them.
    pub(super) async fn overview(self: &Arc<Self>) -> Answered {
        let mut kept = self.overview.lock().await;
        let is_fresh = |(at, _): &&(Instant, _)| at.elapsed() < OVERVIEW_AGE;
        if let Some((_, body)) = kept.as_ref().filter(is_fresh) {
            return Ok(whole(JSON, body.clone()));
        }
        let body = self.query(|page, engine| json(&page.gathered(engine))).await?;
        *kept = Some((Instant::now(), body.clone()));
        Ok(whole(JSON, body))
    }

    fn gathered(&self, engine: &Engine) -> Overview<'_> {
        let pools = engine.pool_figures();
        Overview {
            node: &self.about.node,
            driver: &self.about.driver,
            version: &self.about.version,
            mode: self.about.mode,
            changes: self.token.is_some() && self.serves_controller,
            calls_in_flight: self.executor.calls().in_flight(),
            pools: pools.into_iter().map(PoolView::of).collect(),
            peers: self.peers.as_ref().map(Peers::of),
        }
    }
}

impl PoolView {
    fn of(figures: PoolFigures) -> Self {
        Self {
            name: figures.name,
            id: figures.id.map(|id| id.to_string()),
            state: match figures.is_below_floor {
                Some(true) if figures.state == PoolState::Up => "short",
                Some(_) | None => figures.state.as_str(),
            },
            problem: figures.problem,
            space: figures.space.map(SpaceView::of),
            objects: figures.objects.map(|counts| ObjectsView {
                normal_volumes: counts.normal_volumes,
                abnormal_volumes: counts.abnormal_volumes,
                with_lost_writes: counts.volumes_with(HealthReason::WritesLost),
                snapshots: counts.normal_snapshots + counts.abnormal_snapshots,
                abnormal_snapshots: counts.abnormal_snapshots,
            }),
        }
    }
}

impl SpaceView {
    fn of(space: PoolSpace) -> Self {
        Self {
            size: space.size,
            free: space.free,
            stored: space.stored,
            unshared: space
                .stored
                .zip(space.shared)
                .map(|(stored, shared)| stored.saturating_add(shared)),
            floor: space.floor,
            promised: space.promised,
            reserved: space.reserved,
            overcommit_percent: space.overcommit_percent,
            available: space.available,
        }
    }
}

impl Peers {
    fn of(view: &PeerStatus) -> Self {
        let nodes = view.members().into_iter().map(|member| NodeView {
            answers: member.away.is_empty(),
            why: Some(member.away).filter(|why| !why.is_empty()),
            is_complete: !member.incomplete,
            pools: member
                .pools
                .into_iter()
                .map(|it| NodePool { id: it.id, name: it.name })
                .collect(),
            node: member.node_id,
        });
        let silent = view.silent_addresses().into_iter();
        Self {
            nodes: nodes.collect(),
            silent: silent.map(|(address, why)| SilentAddress { address, why }).collect(),
            certificate_expiry: view.certificate_expiry(),
        }
    }
}
