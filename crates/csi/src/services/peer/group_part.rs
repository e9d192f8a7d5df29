//! This daemon's part of a group snapshot over several nodes. A router takes all parts through the same stages.

use std::collections::BTreeSet;
use std::sync::mpsc as blocking;
use std::time::Duration;

use orlop_engine::Engine;
use orlop_engine::request::{CreateGroupSnapshot, GroupSnapshot, GroupStage};
use orlop_model::{Error, GroupSnapshotId, PoolId, Result};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::Peer;
use crate::executor::{Executor, Subject};
use crate::proto::peer;
use crate::proto::peer::take_group_part_response::Stage;
use crate::services::note_group;
use crate::services::note_name;
use crate::{parse, reply, status};

/// How long this daemon waits for the router between two stages: its writers may be frozen.
const STAGE_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) type PartStream =
    ReceiverStream<std::result::Result<peer::TakeGroupPartResponse, Status>>;

/// A part that exists already, as a request names it.
struct ParsedPart {
    id: GroupSnapshotId,
    members: BTreeSet<String>,
    pools: BTreeSet<PoolId>,
}

impl Peer {
    pub(super) async fn take_group_part(
        &self,
        mut steps: Streaming<peer::TakeGroupPartRequest>,
    ) -> std::result::Result<PartStream, Status> {
        let first = steps.message().await?.ok_or_else(|| {
            Status::cancelled("the call ended before it named a part of a group snapshot")
        })?;
        let (wanted, pools) = parse_part(&first).map_err(|error| status::from_error(&error))?;
        let subject = wanted.sources.first().map(|id| Subject::Pool(id.pool().clone()));
        let (states, answers) = mpsc::channel(1);
        let (advance, may_advance) = blocking::channel();
        // When this task ends, `may_advance` fails, and the snapshot is rolled back.
        let reader = states.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    step = steps.message() => match step {
                        Ok(Some(_)) if advance.send(()).is_ok() => {}
                        Ok(_) | Err(_) => return,
                    },
                    () = reader.closed() => return,
                }
            }
        });
        let reports = states.clone();
        let wait_at_stage = move |stage| {
            let state =
                peer::TakeGroupPartResponse { stage: to_proto(stage).into(), ..Default::default() };
            let router_lost = || {
                Error::failed(
                    "take a group snapshot",
                    "the router that coordinates it has disconnected or stopped responding",
                )
            };
            reports.blocking_send(Ok(state)).map_err(|_| router_lost())?;
            may_advance.recv_timeout(STAGE_TIMEOUT).map_err(|_| router_lost())
        };
        let executor = std::sync::Arc::clone(&self.executor);
        let take = move |engine: &Engine| engine.create_group_part(&wanted, &pools, wait_at_stage);
        tokio::spawn(async move {
            let taken = executor.run(subject.unwrap_or(Subject::Any), take).await;
            let last = match taken {
                Ok((group, true)) => Ok(to_response(&executor, &group, Stage::Existed)),
                Ok((group, false)) => Ok(to_response(&executor, &group, Stage::Committed)),
                Err(error) => Err(status::from_error(&error)),
            };
            // A router that is gone gets the outcome when it calls again.
            let _ = states.send(last).await;
        });
        Ok(ReceiverStream::new(answers))
    }

    pub(super) async fn get_group_part(
        &self,
        request: peer::GroupPart,
    ) -> Result<peer::TakeGroupPartResponse> {
        let ParsedPart { id, members, pools } = parse_known_part(&request)?;
        let subject = Subject::Pool(id.pool().clone());
        let get = move |engine: &Engine| engine.group_part(&id, &members, &pools);
        let group = self.executor.run(subject, get).await?;
        Ok(to_response(&self.executor, &group, Stage::Existed))
    }

    pub(super) async fn delete_group_part(
        &self,
        request: peer::GroupPart,
    ) -> Result<peer::DeleteGroupPartResponse> {
        let ParsedPart { id, members, pools } = parse_known_part(&request)?;
        let subject = Subject::Pool(id.pool().clone());
        let delete = move |engine: &Engine| engine.delete_group_part(&id, &members, &pools);
        self.executor.run(subject, delete).await?;
        Ok(peer::DeleteGroupPartResponse {})
    }
}

fn parse_part(
    request: &peer::TakeGroupPartRequest,
) -> Result<(CreateGroupSnapshot, BTreeSet<PoolId>)> {
    note_name("group_name", &request.name);
    let sources = parse::volume_ids("source_volume_ids", &request.source_volume_ids)?;
    let wanted = CreateGroupSnapshot { name: request.name.parse()?, sources };
    Ok((wanted, parse_pools(&request.pools)?))
}

fn parse_known_part(request: &peer::GroupPart) -> Result<ParsedPart> {
    note_group(&request.group_snapshot_id);
    Ok(ParsedPart {
        id: parse::group_snapshot_id(&request.group_snapshot_id)?,
        members: request.snapshot_ids.iter().cloned().collect(),
        pools: parse_pools(&request.pools)?,
    })
}

fn parse_pools(pools: &[String]) -> Result<BTreeSet<PoolId>> {
    pools.iter().map(|pool| pool.parse()).collect()
}

fn to_proto(stage: GroupStage) -> Stage {
    match stage {
        GroupStage::Begun => Stage::Begun,
        GroupStage::Quiesced => Stage::Quiesced,
        GroupStage::Captured => Stage::Captured,
        GroupStage::Thawed => Stage::Thawed,
    }
}

fn to_response(
    executor: &Executor,
    group: &GroupSnapshot,
    stage: Stage,
) -> peer::TakeGroupPartResponse {
    let topology = executor.topology_of(group.record.id.pool());
    let guarantee = |member: &orlop_model::SnapshotRecord| {
        (member.id.to_string(), member.consistency.as_str().to_owned())
    };
    peer::TakeGroupPartResponse {
        stage: stage.into(),
        group_snapshot: reply::group_snapshot(group, &topology).encode_to_vec(),
        consistency: group.members.iter().map(guarantee).collect(),
    }
}
