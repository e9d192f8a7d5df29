//! The way of each call.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use http_body_util::BodyExt;
use orlop_csi::proto::csi::{v0, v1};
use orlop_csi::proto::identity;
use orlop_csi::routing::{Scope, scope};
use orlop_csi::self_check::NOT_READY;
use orlop_csi::{Answering, Routes, open_forwarded_stream};
use orlop_model::{NameDigest, ObjectName, PoolId, SnapshotId};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::codegen::http::{HeaderValue, Request, Response};
use tonic::{Code, Status};
use tower::Service;

use crate::members::Members;
use crate::message::{Call, reply};
use crate::peers::{PEER_TIMEOUT, Peers};
use crate::target::Target;
use crate::turns::Turns;

pub(crate) type Controller = v1::controller_client::ControllerClient<Target>;

/// Services whose calls may be for another daemon.
const ROUTED: [&str; 6] = [
    "/csi.v1.Controller/",
    "/csi.v1.GroupController/",
    "/csi.v1.SnapshotMetadata/",
    "/csi.v0.Controller/",
    "/volumegroup.Controller/",
    "/reclaimspace.ReclaimSpaceController/",
];

/// Lists that are merged at once: the memory for them must not depend on the number of callers.
const LISTS: usize = 4;

/// Calls whose answer may be as long as the caller takes to read it.
const STREAMS: &str = "/csi.v1.SnapshotMetadata/";

/// Before the services of a socket: calls for which another daemon may be the right one are forwarded to it.
#[derive(Clone)]
pub struct Router {
    routes: Routes,
    peers: Arc<Peers>,
    /// Has this daemon pools, so that it is ready without any peer?
    has_pools: bool,
    creations: Turns,
    lists: Arc<Semaphore>,
}

impl Router {
    pub fn new(routes: Routes, peers: Arc<Peers>, has_pools: bool) -> Self {
        let lists = Arc::new(Semaphore::new(LISTS));
        Self { routes, peers, has_pools, creations: Turns::default(), lists }
    }

    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    pub(crate) fn creations(&self) -> &Turns {
        &self.creations
    }

    pub(crate) fn lists(&self) -> &Semaphore {
        &self.lists
    }

    async fn route(self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let call = Call::read(request).await?;
        let scope = scope(call.path(), call.message());
        if !self.peers.have_been_asked() && scope != Scope::Here {
            return Err(Status::unavailable(
                "starting: the peers have not been asked yet; try again",
            ));
        }
        let members = self.peers.members().await;
        match scope {
            Scope::Here => self.peers.here().forward(call.request()).await,
            Scope::Pool(pool) => self.to_owner(&members, &pool, &call).await,
            Scope::Snapshot { name, pool } => {
                check_no_other_snapshot(&members, &call, &name, &pool).await?;
                self.to_owner(&members, &pool, &call).await
            }
            Scope::Volume(wanted) => self.create(&members, &call, &wanted).await,
            Scope::VolumeGroup { name, pools } => {
                self.create_volume_group(&members, &call, (&name, &pools)).await
            }
            Scope::GroupSnapshot(pools) => self.create_group(&members, &call, &pools).await,
            Scope::GroupSnapshotParts if call.path().contains("/Delete") => {
                self.delete_group(&members, &call).await
            }
            Scope::GroupSnapshotParts => self.get_group(&members, &call).await,
            Scope::Membership { pool, members: others } => {
                check_one_node(&members, &pool, &others)?;
                self.to_owner(&members, &pool, &call).await
            }
            Scope::Everywhere => self.gather(&members, &call).await,
        }
    }

    pub(crate) async fn to_owner(
        &self,
        members: &Members,
        pool: &PoolId,
        call: &Call,
    ) -> Result<Response<Body>, Status> {
        let forgotten = members.forgotten.get(pool);
        let owner = match (members.owner(pool), forgotten) {
            // Also while other daemons are unreachable: it is known where the pool was.
            (Ok(None) | Err(_), Some(node)) if !members.serves(pool) => {
                return without_pool(call.path(), node);
            }
            (owner, _) => owner?.map(|owner| owner.target.clone()),
        };
        let owner = owner.unwrap_or_else(|| self.peers.here());
        match (&owner, call.path().starts_with(STREAMS)) {
            (Target::Peer(_), true) => forward_stream(owner, call.request()).await,
            (Target::Here(_) | Target::Peer(_) | Target::Nowhere { .. }, _) => {
                owner.forward(call.request()).await
            }
        }
    }

    /// Ready as soon as any daemon can do something (ID-24), and it is known which ones there are.
    async fn probe(self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let why = match self.peers.have_been_asked() {
            false => "the peers have not been asked yet",
            true if self.has_pools => return self.peers.here().forward(request).await,
            true if self.peers.is_any_reachable() => return probed(request.uri().path(), true),
            true => "no peer of ORLOP_PEERS can be reached",
        };
        let answer = probed(request.uri().path(), false);
        let explained = |status: Status| Status::new(status.code(), format!("not ready: {why}"));
        let mut answer = answer.map_err(explained)?;
        answer.headers_mut().insert(NOT_READY, HeaderValue::from_static(why));
        Ok(answer)
    }
}

/// Each identity has its own message. That of csi.v0 cannot say "not ready", so an error does (V0-19).
fn probed(path: &str, ready: bool) -> Result<Response<Body>, Status> {
    let is_v0 = path.starts_with("/csi.v0.");
    match (is_v0, path.starts_with("/csi.v1."), ready) {
        (true, _, true) => Ok(reply(&v0::ProbeResponse {})),
        (true, _, false) => Err(Status::unavailable("not ready")),
        (false, true, _) => Ok(reply(&v1::ProbeResponse { ready: Some(ready) })),
        (false, false, _) => Ok(reply(&identity::ProbeResponse { ready: Some(ready) })),
    }
}

/// The peer sees one connection for all callers of this router, so the stream counts here, until its caller has read
/// it or hung up.
async fn forward_stream(owner: Target, request: Request<Body>) -> Result<Response<Body>, Status> {
    let stream = open_forwarded_stream(&request)?;
    let answer = owner.forward(request).await?;
    Ok(answer.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _open = &stream;
            frame
        }))
    }))
}

/// VG-28: the daemon of the group does not know volumes of others.
fn check_one_node(members: &Members, pool: &PoolId, others: &[PoolId]) -> Result<(), Status> {
    let node_of = |pool: &PoolId| members.all.iter().find(|member| member.serves(pool));
    let Some(home) = node_of(pool) else { return Ok(()) };
    let elsewhere = others.iter().filter(|other| !home.serves(other)).find_map(node_of);
    match elsewhere {
        None => Ok(()),
        Some(other) => Err(Status::invalid_argument(format!(
            "volume_ids: the group is on node {}, and some volumes are on node {}; a group has \
             volumes of one pool",
            home.node, other.node
        ))),
    }
}

/// What was on a pool that is gone for good is gone too: so it is deleted, and nothing else can be done
/// with it.
fn without_pool(path: &str, node: &str) -> Result<Response<Body>, Status> {
    match path.rsplit('/').next().unwrap_or_default() {
        "DeleteVolume" => Ok(reply(&v1::DeleteVolumeResponse {})),
        "DeleteSnapshot" => Ok(reply(&v1::DeleteSnapshotResponse {})),
        "ListSnapshots" => Ok(reply(&v1::ListSnapshotsResponse::default())),
        "ControllerUnpublishVolume" => Ok(reply(&v1::ControllerUnpublishVolumeResponse {})),
        "DeleteVolumeGroupSnapshot" => Ok(reply(&v1::DeleteVolumeGroupSnapshotResponse {})),
        "DeleteVolumeGroup" => {
            Ok(reply(&orlop_csi::proto::volumegroup::DeleteVolumeGroupResponse {}))
        }
        _ => Err(Status::not_found(format!(
            "it was on node {node}, which was forgotten with `orlop node forget`"
        ))),
    }
}

/// A snapshot's id has the pool of its source, so one of the same name from a volume elsewhere would not be
/// met by the call itself (CS-09).
async fn check_no_other_snapshot(
    members: &Members,
    call: &Call,
    name: &str,
    pool: &PoolId,
) -> Result<(), Status> {
    let Ok(parsed) = name.parse::<ObjectName>() else { return Ok(()) };
    let digest = NameDigest::of(&parsed);
    let mut asking = JoinSet::new();
    for member in members.reachable() {
        for other in member.pools.iter().filter(|other| other.id != *pool) {
            let snapshot_id = SnapshotId::new(other.id.clone(), digest.clone()).to_string();
            let request = v1::GetSnapshotRequest { snapshot_id, ..Default::default() };
            let (mut client, request) =
                (Controller::new(member.target.clone()), call.beside(request));
            asking.spawn(async move {
                tokio::time::timeout(PEER_TIMEOUT, client.get_snapshot(request)).await
            });
        }
    }
    while let Some(answer) = asking.join_next().await {
        // What cannot be asked is no reason to refuse: there it would have another id.
        if matches!(answer, Ok(Ok(Ok(_)))) {
            return Err(Status::already_exists(format!(
                "snapshot {name} exists already and differs: it is of another volume"
            )));
        }
    }
    Ok(())
}

impl Service<Request<Body>> for Router {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        let path = request.uri().path();
        let router = self.clone();
        if !self.routes.serves(path) {
            return self.routes.call(request);
        }
        if ROUTED.iter().any(|service| path.starts_with(service)) {
            return Box::pin(async move {
                let peers = Arc::clone(&router.peers);
                let outcome = router.route(request).await;
                if outcome.as_ref().is_err_and(|status| status.code() == Code::Unavailable) {
                    peers.poll_soon();
                }
                Ok(answered(outcome))
            });
        }
        if path.ends_with(".Identity/Probe") {
            return Box::pin(async { Ok(answered(router.probe(request).await)) });
        }
        self.routes.call(request)
    }
}

fn answered(outcome: Result<Response<Body>, Status>) -> Response<Body> {
    outcome.unwrap_or_else(|status| status.into_http())
}
