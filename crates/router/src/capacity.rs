//! GetCapacity: of each pool once, however many daemons serve it. An unreachable daemon has none.

use std::collections::BTreeMap;

use orlop_csi::proto::csi::{v0, v1};
use orlop_model::{PoolId, Topology};
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::codegen::http::Response;
use tonic::{Code, Status};

use crate::gather::decoded;
use crate::members::{MemberPool, Members};
use crate::message::{Call, reply};
use crate::peers::PEER_TIMEOUT;
use crate::router::{Controller, Router};
use crate::target::Target;

const POOL: &str = "pool";

impl Router {
    pub(crate) async fn capacity(
        &self,
        members: &Members,
        call: &Call,
    ) -> Result<Response<Body>, Status> {
        let request: v1::GetCapacityRequest = decoded(call)?;
        let asked = Asked::of(&request);
        let pools = asked.pools(members);
        if pools.is_empty() {
            // Which may be a mistake in the request, or none at all.
            return self.here().forward(call.request()).await;
        }
        let total = total(pools, call, &request).await?;
        Ok(reply(&total))
    }

    pub(crate) async fn v0_capacity(
        &self,
        members: &Members,
        call: &Call,
    ) -> Result<Response<Body>, Status> {
        let request: v0::GetCapacityRequest = decoded(call)?;
        let request =
            v1::GetCapacityRequest { parameters: request.parameters, ..Default::default() };
        let pools = Asked::of(&request).pools(members);
        if pools.is_empty() {
            return self.here().forward(call.request()).await;
        }
        let available_capacity = total(pools, call, &request).await?.available_capacity;
        Ok(reply(&v0::GetCapacityResponse { available_capacity }))
    }
}

/// Which pools a request is about.
struct Asked {
    name: Option<String>,
    topology: Option<Topology>,
}

impl Asked {
    fn of(request: &v1::GetCapacityRequest) -> Self {
        let asked = request.accessible_topology.clone().map(|topology| topology.segments);
        // A malformed topology is refused by the daemon that serves the call.
        let topology = asked.and_then(|segments| Topology::parse(segments).ok());
        Self { name: request.parameters.get(POOL).cloned(), topology }
    }

    fn pools(&self, members: &Members) -> BTreeMap<PoolId, (String, Target)> {
        let mut found = BTreeMap::new();
        for member in members.reachable() {
            for pool in member.pools.iter().filter(|pool| self.includes(pool)) {
                found
                    .entry(pool.id.clone())
                    .or_insert_with(|| (pool.name.clone(), member.target.clone()));
            }
        }
        found
    }

    fn includes(&self, pool: &MemberPool) -> bool {
        self.name.as_ref().is_none_or(|name| *name == pool.name)
            && self.topology.as_ref().is_none_or(|asked| {
                pool.topology.is_empty()
                    || pool.topology.is_within(asked)
                    || asked.is_within(&pool.topology)
            })
    }
}

async fn total(
    pools: BTreeMap<PoolId, (String, Target)>,
    call: &Call,
    request: &v1::GetCapacityRequest,
) -> Result<v1::GetCapacityResponse, Status> {
    let mut asking = JoinSet::new();
    for (name, target) in pools.into_values() {
        let mut of_pool = request.clone();
        of_pool.parameters.insert(POOL.to_owned(), name);
        let request = call.beside(of_pool);
        asking.spawn(async move {
            let mut client = Controller::new(target);
            tokio::time::timeout(PEER_TIMEOUT, client.get_capacity(request)).await
        });
    }
    let mut total = v1::GetCapacityResponse::default();
    while let Some(answer) = asking.join_next().await {
        match answer {
            Ok(Ok(Ok(reply))) => add(&mut total, reply.get_ref()),
            // It has just become unreachable, or it hangs.
            Ok(Ok(Err(status))) if status.code() == Code::Unavailable => {}
            Ok(Err(_)) | Err(_) => {}
            Ok(Ok(Err(status))) => return Err(status),
        }
    }
    Ok(total)
}

fn add(total: &mut v1::GetCapacityResponse, pool: &v1::GetCapacityResponse) {
    total.available_capacity = total.available_capacity.saturating_add(pool.available_capacity);
    total.maximum_volume_size = total.maximum_volume_size.max(pool.maximum_volume_size);
    total.minimum_volume_size = match (total.minimum_volume_size, pool.minimum_volume_size) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
}
