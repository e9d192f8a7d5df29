//! Volume groups of CSI-Addons, each of which is on one pool.

use std::collections::BTreeMap;

use orlop_csi::proto::volumegroup::ControllerGetVolumeGroupRequest;
use orlop_csi::proto::volumegroup::controller_client::ControllerClient;
use orlop_model::{NameDigest, ObjectName, PoolId, VolumeGroupId};
use tokio::task::JoinSet;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::Response;

use crate::members::{Member, Members};
use crate::message::Call;
use crate::peers::PEER_TIMEOUT;
use crate::router::Router;

impl Router {
    /// `pools` are those of the members.
    pub(crate) async fn create_volume_group(
        &self,
        members: &Members,
        call: &Call,
        (name, pools): (&str, &[PoolId]),
    ) -> Result<Response<Body>, Status> {
        let found = find_group(members, call, name).await;
        let elsewhere = found.iter().find(|(pool, _)| !pools.contains(pool));
        match (pools, elsewhere) {
            ([], Some((_, home))) => home.target.clone().forward(call.request()).await,
            ([], None) => self.create_empty_group(members, call, name).await,
            (_, Some((_, home))) => Err(Status::already_exists(format!(
                "volume group {} exists already and differs: it is on node {}, and not on the pool \
                 of these volumes",
                orlop_model::id::shown(name),
                home.node
            ))),
            ([only], None) => self.to_owner(members, only, call).await,
            (_, None) => self.to_one_owner(members, pools, call).await,
        }
    }

    /// On this daemon, or the first one that has pools.
    async fn create_empty_group(
        &self,
        members: &Members,
        call: &Call,
        name: &str,
    ) -> Result<Response<Body>, Status> {
        let name = orlop_model::id::shown(name);
        members.require_all(&format!("tell whether volume group {name} exists"))?;
        let home = members.reachable().find(|member| !member.pools.is_empty());
        let target = home.map_or_else(|| self.here(), |home| home.target.clone());
        target.forward(call.request()).await
    }

    /// GG-27: volumes of one group are on one pool.
    async fn to_one_owner(
        &self,
        members: &Members,
        pools: &[PoolId],
        call: &Call,
    ) -> Result<Response<Body>, Status> {
        let mut owners: Vec<&Member> = Vec::new();
        for pool in pools {
            owners.extend(members.owner(pool)?);
        }
        owners.dedup_by(|one, other| one.node == other.node);
        match owners.as_slice() {
            [first, second, ..] => Err(Status::failed_precondition(format!(
                "cannot group these volumes: some are on node {} and some on node {}; a group has \
                 volumes of one pool",
                first.node, second.node
            ))),
            [only] => only.target.clone().forward(call.request()).await,
            [] => self.here().forward(call.request()).await,
        }
    }
}

/// Groups of this name, by their pools, on all daemons that can be asked.
async fn find_group(members: &Members, call: &Call, name: &str) -> BTreeMap<PoolId, Member> {
    // An invalid name is refused by the daemon that the call is forwarded to.
    let Ok(parsed) = name.parse::<ObjectName>() else { return BTreeMap::new() };
    let digest = NameDigest::of(&parsed);
    let mut asking = JoinSet::new();
    for member in members.reachable() {
        for pool in &member.pools {
            let id = VolumeGroupId::new(pool.id.clone(), digest.clone());
            let volume_group_id = id.to_string();
            let request = ControllerGetVolumeGroupRequest { volume_group_id, ..Default::default() };
            let mut client = ControllerClient::new(member.target.clone());
            let (request, pool, member) = (call.beside(request), pool.id.clone(), member.clone());
            asking.spawn(async move {
                let asked = client.controller_get_volume_group(request);
                let answer = tokio::time::timeout(PEER_TIMEOUT, asked).await;
                matches!(answer, Ok(Ok(_))).then_some((pool, member))
            });
        }
    }
    asking.join_all().await.into_iter().flatten().collect()
}
