//! CreateVolume: on the daemon that suits best, and never on two.
//!
//! The name is held on every daemon that can be reached while its volume is looked for and created, so no
//! two routers create it at the same time. A daemon that is unreachable, or whose pools are not all known, may have
//! the volume; unless the wanted topology excludes that, the call is refused until it is back.

use std::cmp::Reverse;

use orlop_csi::SESSION;
use orlop_csi::proto::peer::peer_client::PeerClient;
use orlop_csi::proto::peer::{HoldNameRequest, HoldNameResponse};
use orlop_csi::routing::Creation;
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::codegen::http::{HeaderValue, Response};
use tonic::{Code, Status, Streaming};

use crate::members::{Member, Members};
use crate::message::Call;
use crate::peers::PEER_TIMEOUT;
use crate::router::{Controller, Router};
use crate::target::Target;

/// A daemon on which the name is held, for as long as this lives.
struct Held {
    node: String,
    target: Target,
    /// `None`: it does not suit the volume.
    rank: Option<usize>,
    session: String,
    has_volume: bool,
    _stream: Streaming<HoldNameResponse>,
}

impl Router {
    pub(crate) async fn create(
        &self,
        members: &Members,
        call: &Call,
        wanted: &Creation,
    ) -> Result<Response<Body>, Status> {
        let is_alone = members.all.len() == 1 && members.silent.is_empty();
        if is_alone || wanted.name.is_empty() {
            return self.forward_here(call).await;
        }
        let _turn = self.creations().wait(members.best_for(wanted)).await?;
        let held = hold_everywhere(members, call, wanted).await?;
        if let Some(owner) = held.iter().find(|held| held.has_volume) {
            members.check_no_copies(&owner.node)?;
            return owner.forward(call).await;
        }
        check_candidates_are_there(members, wanted)?;
        let held = without_copies(held, members)?;
        let (mut full, mut too_small) = (None, None);
        // All of them stay held until the call is answered.
        for candidate in rank(&held, call, wanted).await {
            let response = candidate.forward(call).await?;
            match refused(&response) {
                // It has made nothing, so another one may.
                Some(Code::ResourceExhausted) => full = Some(response),
                Some(Code::OutOfRange) => too_small = Some(response),
                Some(_) | None => return Ok(response),
            }
        }
        // What may be possible later is the milder answer.
        match full.or(too_small) {
            Some(response) => Ok(response),
            None => {
                // This daemon refuses it, and would wait for its own name.
                drop(held);
                self.forward_here(call).await
            }
        }
    }

    async fn forward_here(&self, call: &Call) -> Result<Response<Body>, Status> {
        self.here().forward(call.request()).await
    }
}

impl Held {
    async fn forward(&self, call: &Call) -> Result<Response<Body>, Status> {
        let mut request = call.request();
        let session = HeaderValue::from_str(&self.session)
            .map_err(|_| Status::internal("a peer has sent a session that is not text"))?;
        request.headers_mut().insert(SESSION, session);
        self.target.clone().forward(request).await
    }
}

/// Without a rank for daemons that serve a copy of a pool, unless no others suit the volume.
fn without_copies(mut held: Vec<Held>, members: &Members) -> Result<Vec<Held>, Status> {
    let mut refusal = None;
    for candidate in held.iter_mut().filter(|held| held.rank.is_some()) {
        if let Err(status) = members.check_no_copies(&candidate.node) {
            candidate.rank = None;
            refusal = Some(status);
        }
    }
    match refusal {
        Some(status) if held.iter().all(|held| held.rank.is_none()) => Err(status),
        Some(_) | None => Ok(held),
    }
}

/// On the first daemon before all others: of two routers, one gets no further than that. Daemons without
/// pools have no volumes; among them are routers, which others may not know.
async fn hold_everywhere(
    members: &Members,
    call: &Call,
    wanted: &Creation,
) -> Result<Vec<Held>, Status> {
    let has_pools = |member: &&Member| !member.complete || !member.pools.is_empty();
    let mut reachable: Vec<&Member> = members.reachable().filter(has_pools).collect();
    reachable.sort_by(|one, other| one.node.cmp(&other.node));
    let mut held = Vec::new();
    let mut rest = reachable.into_iter();
    for first in rest.by_ref() {
        let outcome = hold(first.clone(), call.clone(), wanted.clone()).await;
        held.extend(required(first, outcome, wanted)?);
        if !held.is_empty() {
            break;
        }
    }
    let mut holding = JoinSet::new();
    for member in rest {
        let (member, call, wanted) = (member.clone(), call.clone(), wanted.clone());
        holding.spawn(async move { (hold(member.clone(), call, wanted).await, member) });
    }
    while let Some(outcome) = holding.join_next().await {
        let (outcome, member) =
            outcome.map_err(|error| Status::internal(format!("cannot call a peer: {error}")))?;
        held.extend(required(&member, outcome, wanted)?);
    }
    Ok(held)
}

/// Does not wait for a member that cannot take the volume, as it may hang.
async fn hold(member: Member, call: Call, wanted: Creation) -> Result<Held, Status> {
    let suits = member.rank(&wanted).is_some();
    let holding = hold_name(member, call, wanted);
    if suits {
        return holding.await;
    }
    let late = |_| Status::unavailable("no answer in time");
    tokio::time::timeout(PEER_TIMEOUT, holding).await.map_err(late)?
}

async fn hold_name(member: Member, call: Call, wanted: Creation) -> Result<Held, Status> {
    let request = call.beside(HoldNameRequest { name: wanted.name.clone() });
    let mut stream = PeerClient::new(member.target.clone()).hold_name(request).await?.into_inner();
    let ended = || Status::unavailable(format!("node {} has ended the call", member.node));
    let answer = stream.message().await?.ok_or_else(ended)?;
    Ok(Held {
        rank: member.rank(&wanted),
        node: member.node,
        target: member.target,
        session: answer.session,
        has_volume: !answer.volume_id.is_empty(),
        _stream: stream,
    })
}

/// A daemon that does not suit the volume need not be asked, but while it is busy with this name, another
/// call may be creating the volume.
fn required(
    member: &Member,
    outcome: Result<Held, Status>,
    wanted: &Creation,
) -> Result<Option<Held>, Status> {
    match outcome {
        Ok(held) => Ok(Some(held)),
        Err(status) if status.code() == Code::Aborted || member.may_have(wanted) => Err(status),
        Err(status) => {
            tracing::debug!(node = member.node, %status, "cannot ask a node whether it has a volume of this name");
            Ok(None)
        }
    }
}

fn check_candidates_are_there(members: &Members, wanted: &Creation) -> Result<(), Status> {
    let doing = || format!("tell whether volume {} exists", orlop_model::id::shown(&wanted.name));
    if let Some(missing) = members.unreachable().find(|member| member.may_have(wanted)) {
        return Err(missing.refusal(&doing()));
    }
    // A daemon that has not said what it serves may have the volume, unless the request excludes that.
    let is_excluded = match (&wanted.source, &wanted.topology) {
        (Some(source), _) => members.serves(source),
        (None, Some(topology)) => members.are_all_nodes_of(topology),
        (None, None) => false,
    };
    if is_excluded { Ok(()) } else { members.check_all_known(&doing()) }
}

/// The best first.
async fn rank<'a>(held: &'a [Held], call: &Call, wanted: &Creation) -> Vec<&'a Held> {
    let mut candidates: Vec<(usize, i64, &Held)> =
        held.iter().filter_map(|held| Some((held.rank?, 0, held))).collect();
    if candidates.len() > 1 {
        let mut asking = JoinSet::new();
        for (index, (_, _, held)) in candidates.iter().enumerate() {
            let mut client = Controller::new(held.target.clone());
            let request = call.beside(wanted.capacity.clone());
            asking.spawn(async move {
                let asked = client.get_capacity(request);
                (index, tokio::time::timeout(PEER_TIMEOUT, asked).await)
            });
        }
        while let Some(answer) = asking.join_next().await {
            // A member that cannot report its capacity is tried last, and its answer says what is wrong.
            if let Ok((index, Ok(Ok(capacity)))) = answer
                && let Some(candidate) = candidates.get_mut(index)
            {
                candidate.1 = capacity.into_inner().available_capacity;
            }
        }
    }
    candidates.sort_by_key(|(rank, free, _)| (*rank, Reverse(*free)));
    candidates.into_iter().map(|(_, _, held)| held).collect()
}

/// The code of a call that failed at once, which its headers have.
fn refused(response: &Response<Body>) -> Option<Code> {
    let status = Status::from_header_map(response.headers())?;
    Some(status.code()).filter(|code| *code != Code::Ok)
}
