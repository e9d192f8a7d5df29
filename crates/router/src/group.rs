//! Group snapshots over several pools: all parts are led through their stages together, so that no writer of
//! any part writes between the first and the last capture. All parts are committed, or none remains.

mod part;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::peer;
use orlop_csi::proto::peer::peer_client::PeerClient;
use orlop_model::{Consistency, GroupSnapshotId, PoolId, SnapshotId};
use prost::Message;
use tonic::body::Body;
use tonic::codegen::http::{HeaderValue, Response};
use tonic::{Code, Status};
use tracing::Instrument;

use crate::gather::decoded;
use crate::members::{Member, Members};
use crate::message::{Call, reply};
use crate::router::Router;
use part::{Part, commit, prepare, undo};

const CONSISTENCY: &str = "orlop-consistency";
/// gRPC clients refuse headers of more than 8 or 16 KiB. Of more members than this, only the least is reported that holds
/// for all of them, in the name of the group, as a daemon without peers does.
const MAX_CONSISTENCY_VALUES: usize = 64;
/// How often the nodes of a group that is being taken are looked for.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

impl Router {
    pub(crate) async fn create_group(
        &self,
        members: &Members,
        call: &Call,
        pools: &[PoolId],
    ) -> Result<Response<Body>, Status> {
        let request: v1::CreateVolumeGroupSnapshotRequest = decoded(call)?;
        let mut homes = Vec::new();
        for pool in pools {
            homes.push((required_owner(members, pool)?, pool));
        }
        // In the same order by every router: of two, one gets no further than the first part.
        homes.sort_by(|(one, of_one), (other, of_other)| {
            (&one.node, of_one).cmp(&(&other.node, of_other))
        });
        if let Some([(home, one), (_, other)]) = same_home(&homes) {
            return Err(Status::failed_precondition(format!(
                "cannot take a group snapshot: node {} has some of the volumes on pool {one} and \
                 some on pool {other}; a group holds volumes of only one pool of each node",
                home.node
            )));
        }
        let nodes: BTreeSet<String> = homes.iter().map(|(home, _)| home.node.clone()).collect();
        let _turn = self.creations().wait(nodes.clone()).await?;
        let parts = tokio::select! {
            prepared = prepare(homes, call, &request, pools) => prepared?,
            // The parts end with their calls, and none is committed yet.
            refusal = self.lost(&nodes) => return Err(refusal),
        };
        let ending = tokio::spawn(end(parts, pools.to_vec()).in_current_span());
        let interrupted =
            |error| Status::internal(format!("cannot end the group snapshot: {error}"));
        let parts = ending.await.map_err(interrupted)??;
        Ok(merged(parts.iter().map(|part| &part.state), pools))
    }

    /// Returns once one of these nodes does not answer: the filesystems of the others must not stay frozen for as long
    /// as its connection takes to fail.
    async fn lost(&self, nodes: &BTreeSet<String>) -> Status {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            self.peers().poll_soon();
            let members = self.peers().members().await;
            let mut away = members.all.iter().filter(|member| member.unreachable.is_some());
            if let Some(lost) = away.find(|member| nodes.contains(&member.node)) {
                return lost.refusal("take a group snapshot");
            }
        }
    }

    pub(crate) async fn get_group(
        &self,
        members: &Members,
        call: &Call,
    ) -> Result<Response<Body>, Status> {
        let request: v1::GetVolumeGroupSnapshotRequest = decoded(call)?;
        let parts = known_parts(&request.group_snapshot_id, &request.snapshot_ids);
        let Some(parts) = parts else {
            return self.to_owner_of(members, &request.group_snapshot_id, call).await;
        };
        let mut states = Vec::new();
        for (pool, part) in &parts {
            let target = required_owner(members, pool)?.target.clone();
            let asked = PeerClient::new(target).get_group_part(call.beside(part.clone())).await;
            states.push(asked?.into_inner());
        }
        let pools: Vec<PoolId> = parts.into_keys().collect();
        let group_snapshot = Some(united(&states, &pools));
        Ok(reply(&v1::GetVolumeGroupSnapshotResponse { group_snapshot }))
    }

    pub(crate) async fn delete_group(
        &self,
        members: &Members,
        call: &Call,
    ) -> Result<Response<Body>, Status> {
        let request: v1::DeleteVolumeGroupSnapshotRequest = decoded(call)?;
        let parts = known_parts(&request.group_snapshot_id, &request.snapshot_ids);
        let Some(parts) = parts else {
            return self.to_owner_of(members, &request.group_snapshot_id, call).await;
        };
        // All of them are asked first: if the list is wrong, nothing is deleted.
        let mut homes = Vec::new();
        for (pool, part) in &parts {
            if members.is_gone(pool) {
                continue;
            }
            let target = required_owner(members, pool)?.target.clone();
            let mut client = PeerClient::new(target.clone());
            match client.get_group_part(call.beside(part.clone())).await {
                // Deleted before; or its members are those of the list, and one of them is lost.
                Err(status) if matches!(status.code(), Code::NotFound | Code::DataLoss) => {}
                asked => drop(asked?),
            }
            homes.push((target, part));
        }
        for (target, part) in homes {
            PeerClient::new(target).delete_group_part(call.beside(part.clone())).await?;
        }
        Ok(reply(&v1::DeleteVolumeGroupSnapshotResponse {}))
    }

    async fn to_owner_of(
        &self,
        members: &Members,
        group: &str,
        call: &Call,
    ) -> Result<Response<Body>, Status> {
        match group.parse::<GroupSnapshotId>() {
            Ok(id) => self.to_owner(members, id.pool(), call).await,
            Err(_) => self.here().forward(call.request()).await,
        }
    }
}

/// Commits all parts, or leaves none, whether or not the caller still waits.
async fn end(mut parts: Vec<Part>, pools: Vec<PoolId>) -> Result<Vec<Part>, Status> {
    if parts.iter().any(Part::existed) {
        return with_existing(parts, &pools).await;
    }
    match commit(&mut parts).await {
        Ok(()) => Ok(parts),
        Err(status) => Err(undo(parts, &pools, status).await),
    }
}

/// The same call before this one made all of it, or was interrupted between two commits.
async fn with_existing(parts: Vec<Part>, pools: &[PoolId]) -> Result<Vec<Part>, Status> {
    if parts.iter().all(Part::existed) {
        return Ok(parts);
    }
    if let Some(part) = parts.iter().find(|part| part.existed() && !part.is_recent()) {
        return Err(Status::data_loss(format!(
            "group snapshot on pool {} was completed more than an hour ago, and parts of it on \
             other pools are missing; restore them, or delete the group snapshot",
            part.pool
        )));
    }
    let interrupted = Status::aborted(
        "an earlier attempt at this group snapshot was interrupted, and what it left has been \
         removed; try again",
    );
    Err(undo(parts, pools, interrupted).await)
}

/// GG-27: two parts of one daemon would wait for each other.
fn same_home<'a, 'b>(
    homes: &'b [(&'a Member, &'a PoolId)],
) -> Option<[&'b (&'a Member, &'a PoolId); 2]> {
    let is_same =
        |pair: &&[(&Member, &PoolId)]| matches!(pair, [one, other] if one.0.node == other.0.node);
    match homes.windows(2).find(is_same) {
        Some([one, other]) => Some([one, other]),
        Some(_) | None => None,
    }
}

fn required_owner<'a>(members: &'a Members, pool: &PoolId) -> Result<&'a Member, Status> {
    let unknown = || Status::not_found(format!("no node serves pool {pool}"));
    members.owner(pool)?.ok_or_else(unknown)
}

/// By pool, if there are several: the ids of members name them. The part on the group's own pool is the first that is
/// deleted, so no member may name it any more where a deletion was interrupted.
fn known_parts(group: &str, members: &[String]) -> Option<BTreeMap<PoolId, peer::GroupPart>> {
    let group = group.parse::<GroupSnapshotId>().ok()?;
    let empty = |pool: &PoolId| peer::GroupPart {
        group_snapshot_id: GroupSnapshotId::new(pool.clone(), group.digest().clone()).to_string(),
        ..Default::default()
    };
    let mut parts = BTreeMap::from([(group.pool().clone(), empty(group.pool()))]);
    for member in members {
        let pool = member.parse::<SnapshotId>().ok()?.pool().clone();
        let part = parts.entry(pool).or_insert_with_key(empty);
        part.snapshot_ids.push(member.clone());
    }
    if parts.len() < 2 {
        return None;
    }
    let pools: Vec<String> = parts.keys().map(ToString::to_string).collect();
    parts.values_mut().for_each(|part| part.pools.clone_from(&pools));
    Some(parts)
}

/// A group of all parts' members, as old as the oldest of them.
fn united(states: &[peer::TakeGroupPartResponse], pools: &[PoolId]) -> v1::VolumeGroupSnapshot {
    let decode = |state: &peer::TakeGroupPartResponse| {
        v1::VolumeGroupSnapshot::decode(state.group_snapshot.as_slice()).unwrap_or_default()
    };
    let mut whole = v1::VolumeGroupSnapshot { ready_to_use: true, ..Default::default() };
    let mut ids = BTreeSet::new();
    for part in states.iter().map(decode) {
        ids.insert(part.group_snapshot_id);
        whole.snapshots.extend(part.snapshots);
        let time = |time: &Option<_>| time.map(|it: prost_types::Timestamp| (it.seconds, it.nanos));
        if time(&whole.creation_time).is_none_or(|so_far| time(&part.creation_time) < Some(so_far))
        {
            whole.creation_time = part.creation_time;
        }
    }
    debug_assert!(ids.len() == 1 && !pools.is_empty());
    whole.group_snapshot_id = ids.into_iter().next().unwrap_or_default();
    whole
}

fn merged<'a>(
    states: impl Iterator<Item = &'a peer::TakeGroupPartResponse>,
    pools: &[PoolId],
) -> Response<Body> {
    let states: Vec<_> = states.cloned().collect();
    let group_snapshot = united(&states, pools);
    let id = group_snapshot.group_snapshot_id.clone();
    let group_snapshot = Some(group_snapshot);
    let mut response = reply(&v1::CreateVolumeGroupSnapshotResponse { group_snapshot });
    let members = || states.iter().flat_map(|state| &state.consistency);
    let guarantees: Vec<(&str, &str)> = match members().count() > MAX_CONSISTENCY_VALUES {
        false => members().map(|(id, guarantee)| (id.as_str(), guarantee.as_str())).collect(),
        true => vec![(&id, least(members().map(|(_, guarantee)| guarantee.as_str())))],
    };
    for (id, guarantee) in guarantees {
        if let Ok(value) = HeaderValue::from_str(&format!("{id}={guarantee}")) {
            response.headers_mut().append(CONSISTENCY, value);
        }
    }
    response
}

/// What holds for all of them.
fn least<'a>(guarantees: impl Iterator<Item = &'a str>) -> &'static str {
    let given: BTreeSet<&str> = guarantees.collect();
    let from_least = [Consistency::Alone, Consistency::Crash, Consistency::Filesystem];
    let least = from_least.into_iter().find(|guarantee| given.contains(guarantee.as_str()));
    least.unwrap_or_default().as_str()
}
