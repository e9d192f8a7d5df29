//! orlop.peer.v1.Peer: what a router asks a daemon beyond CSI.

mod group_part;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use orlop_engine::Engine;
use orlop_model::{Error, NodeId, Result, Topology};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use group_part::PartStream;

use super::{Answer, answer, note_name};
use crate::cluster_memory::{ClusterMemory, Resource};
use crate::executor::{Executor, Subject};
use crate::features::Features;
use crate::name_holds::{HoldSession, NameHolds};
use crate::parse;
use crate::proto::peer;

pub(crate) struct Peer {
    executor: Arc<Executor>,
    features: Arc<Features>,
    holds: NameHolds,
    memory: ClusterMemory,
    instance: String,
}

impl Peer {
    pub(crate) fn new(
        executor: Arc<Executor>,
        features: Arc<Features>,
        holds: NameHolds,
        memory: ClusterMemory,
    ) -> Self {
        // Without an instance id, peers cannot distinguish this daemon from another one with the same node id.
        let instance = random_id().unwrap_or_default();
        Self { executor, features, holds, memory, instance }
    }

    /// Answered from memory, so that a hung pool does not make the whole node unreachable.
    fn describe(&self) -> peer::DescribeResponse {
        let (pools, complete) = match self.executor.engine() {
            Ok(engine) => (engine.pool_summaries(), engine.knows_all_pools()),
            Err(_starting) => (Vec::new(), false),
        };
        let pool = |pool: orlop_engine::PoolSummary| peer::Pool {
            id: pool.id.to_string(),
            name: pool.name,
            segments: segments(&pool.topology),
        };
        peer::DescribeResponse {
            node_id: self.features.node.id.to_string(),
            pools: pools.into_iter().map(pool).collect(),
            complete,
            version: self.features.version.clone(),
            members: self.memory.members(),
            verdicts: self.memory.described_verdicts(),
            instance: self.instance.clone(),
        }
    }

    fn forget(&self, request: &peer::ForgetRequest) -> Result<peer::ForgetResponse> {
        let node = request.node_id.parse::<NodeId>()?.to_string();
        let pools = request.pools.iter().map(|pool| pool.parse().map(Resource::Pool));
        let mut resources = pools.collect::<Result<Vec<_>>>()?;
        if !request.pools_only {
            resources.push(Resource::Node(node.clone()));
        }
        resources.iter().for_each(|resource| self.memory.forget(&node, resource));
        Ok(peer::ForgetResponse {})
    }

    async fn hold(&self, request: peer::HoldNameRequest) -> Result<HoldStream> {
        note_name("volume_name", &request.name);
        parse::require([("name", !request.name.is_empty())])?;
        let name = request.name.parse()?;
        let hold = move |engine: &Engine| engine.hold_name(&name);
        let (hold, found) = self.executor.run(Subject::Any, hold).await?;
        let session = self.holds.insert(random_id()?, hold);
        let response = peer::HoldNameResponse {
            session: session.id.clone(),
            volume_id: found.map(String::from).unwrap_or_default(),
        };
        Ok(HoldStream { response: Some(response), _session: session })
    }
}

fn segments(topology: &Topology) -> std::collections::BTreeMap<String, String> {
    topology.segments().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The id of a session. Not a counter: a router may name a session of an earlier daemon.
fn random_id() -> Result<String> {
    let mut bytes = [0; 16];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|errno| {
        Error::failed("generate a random id", std::io::Error::from(errno).to_string())
    })?;
    Ok(bytes[..filled].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// One message, and then none until the caller hangs up.
pub(crate) struct HoldStream {
    response: Option<peer::HoldNameResponse>,
    _session: HoldSession,
}

impl Stream for HoldStream {
    type Item = std::result::Result<peer::HoldNameResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.response.take() {
            Some(response) => Poll::Ready(Some(Ok(response))),
            None => Poll::Pending,
        }
    }
}

#[tonic::async_trait]
impl peer::peer_server::Peer for Peer {
    async fn describe(&self, _: Request<peer::DescribeRequest>) -> Answer<peer::DescribeResponse> {
        answer(Ok(self.describe()))
    }

    async fn forget(&self, request: Request<peer::ForgetRequest>) -> Answer<peer::ForgetResponse> {
        answer(self.forget(&request.into_inner()))
    }

    type TakeGroupPartStream = PartStream;

    async fn take_group_part(
        &self,
        request: Request<Streaming<peer::TakeGroupPartRequest>>,
    ) -> Answer<Self::TakeGroupPartStream> {
        self.take_group_part(request.into_inner()).await.map(Response::new)
    }

    async fn get_group_part(
        &self,
        request: Request<peer::GroupPart>,
    ) -> Answer<peer::TakeGroupPartResponse> {
        answer(self.get_group_part(request.into_inner()).await)
    }

    async fn delete_group_part(
        &self,
        request: Request<peer::GroupPart>,
    ) -> Answer<peer::DeleteGroupPartResponse> {
        answer(self.delete_group_part(request.into_inner()).await)
    }

    type HoldNameStream = HoldStream;

    async fn hold_name(
        &self,
        request: Request<peer::HoldNameRequest>,
    ) -> Answer<Self::HoldNameStream> {
        answer(self.hold(request.into_inner()).await)
    }
}
