//! The part of a group snapshot that is on one daemon, and how all parts are led through their stages.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::peer;
use orlop_csi::proto::peer::peer_client::PeerClient;
use orlop_csi::proto::peer::take_group_part_response::Stage;
use orlop_model::{GroupSnapshotId, PoolId, VolumeId};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use crate::members::Member;
use crate::message::Call;
use crate::target::Target;

/// The stages that parts wait at for each other.
const STAGES: [Stage; 4] = [Stage::Begun, Stage::Quiesced, Stage::Captured, Stage::Thawed];

/// A call that was interrupted is repeated sooner than this.
const INTERRUPTED_SECONDS: i64 = 3600;

/// For what a node still does for a group that has failed.
const UNDO_TIMEOUT: Duration = Duration::from_secs(10);

/// A part that is being taken. Dropped before it is committed, it is undone.
pub(super) struct Part {
    target: Target,
    pub(super) pool: PoolId,
    /// `None` once the part is not to go on.
    advance: Option<mpsc::Sender<peer::TakeGroupPartRequest>>,
    states: Streaming<peer::TakeGroupPartResponse>,
    pub(super) state: peer::TakeGroupPartResponse,
}

impl Part {
    pub(super) fn existed(&self) -> bool {
        self.state.stage() == Stage::Existed
    }

    /// May it be what an interrupted call has just left? An older one was whole once, and is kept.
    pub(super) fn is_recent(&self) -> bool {
        let group = v1::VolumeGroupSnapshot::decode(self.state.group_snapshot.as_slice());
        let created = group.ok().and_then(|group| group.creation_time).map_or(0, |at| at.seconds);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        i64::try_from(now).unwrap_or(i64::MAX) - created < INTERRUPTED_SECONDS
    }

    async fn go_on(&self) -> Result<(), Status> {
        let ended = || Status::unavailable("a node has ended the call");
        let advance = self.advance.as_ref().ok_or_else(ended)?;
        let step = peer::TakeGroupPartRequest::default();
        advance.send(step).await.map_err(|_| ended())
    }

    /// After `from`, the next one.
    async fn reach(&mut self, from: Stage) -> Result<(), Status> {
        let ended = || Status::unavailable("a node has ended the call");
        self.state = self.states.message().await?.ok_or_else(ended)?;
        let expected = STAGES.iter().skip_while(|stage| **stage != from).nth(1);
        match self.state.stage() == *expected.unwrap_or(&Stage::Committed) {
            true => Ok(()),
            false => Err(Status::internal("a node is at another stage of the group snapshot")),
        }
    }
}

/// All parts, up to where they are committed, or as they were found.
pub(super) async fn prepare(
    homes: Vec<(&Member, &PoolId)>,
    call: &Call,
    request: &v1::CreateVolumeGroupSnapshotRequest,
    pools: &[PoolId],
) -> Result<Vec<Part>, Status> {
    let mut parts = Vec::new();
    for (home, pool) in homes {
        parts.push(begin((home, pool), call, request, pools).await?);
    }
    if parts.iter().any(Part::existed) {
        return Ok(parts);
    }
    for stage in STAGES.into_iter().filter(|stage| *stage != Stage::Thawed) {
        if let Err(status) = advance(&mut parts, stage).await {
            return Err(undo(parts, pools, status).await);
        }
    }
    Ok(parts)
}

/// All parts, once they are prepared.
pub(super) async fn commit(parts: &mut [Part]) -> Result<(), Status> {
    advance(parts, Stage::Thawed).await
}

/// All of them from `stage` to the next one, or until the first one fails.
async fn advance(parts: &mut [Part], stage: Stage) -> Result<(), Status> {
    for part in parts.iter() {
        part.go_on().await?;
    }
    let mut reaching: Vec<_> = parts.iter_mut().map(|part| Box::pin(part.reach(stage))).collect();
    let all = poll_fn(|context| {
        let mut failed = None;
        reaching.retain_mut(|part| match part.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(outcome) => {
                failed = failed.take().or(outcome.err());
                false
            }
        });
        match failed {
            Some(status) => Poll::Ready(Err(status)),
            None if reaching.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    });
    all.await
}

async fn begin(
    (home, pool): (&Member, &PoolId),
    call: &Call,
    request: &v1::CreateVolumeGroupSnapshotRequest,
    pools: &[PoolId],
) -> Result<Part, Status> {
    let is_here = |id: &&String| id.parse::<VolumeId>().is_ok_and(|id| id.pool() == pool);
    let first = peer::TakeGroupPartRequest {
        name: request.name.clone(),
        source_volume_ids: request.source_volume_ids.iter().filter(is_here).cloned().collect(),
        pools: pools.iter().map(ToString::to_string).collect(),
    };
    let (advance, steps) = mpsc::channel(1);
    let ended = || Status::unavailable(format!("node {} has ended the call", home.node));
    advance.send(first).await.map_err(|_| ended())?;
    let mut client = PeerClient::new(home.target.clone());
    let steps = call.in_trace(ReceiverStream::new(steps));
    let mut states = client.take_group_part(steps).await?.into_inner();
    let state = states.message().await?.ok_or_else(ended)?;
    let advance = Some(advance);
    Ok(Part { target: home.target.clone(), pool: pool.clone(), advance, states, state })
}

/// What was committed is deleted; the rest ends with its call. What cannot be deleted now is, by the next
/// call of this name.
pub(super) async fn undo(mut parts: Vec<Part>, pools: &[PoolId], status: Status) -> Status {
    // All of them first, so that no writer waits for another node.
    parts.iter_mut().for_each(|part| drop(part.advance.take()));
    for part in parts {
        let undone = tokio::time::timeout(UNDO_TIMEOUT, undo_part(part, pools)).await;
        let late = |_| Err(Status::unavailable("no answer in time"));
        if let Err(error) = undone.unwrap_or_else(late) {
            tracing::warn!(%error, "cannot remove a part of a group snapshot that was not completed");
        }
    }
    status
}

async fn undo_part(mut part: Part, pools: &[PoolId]) -> Result<(), Status> {
    while let Ok(Some(state)) = part.states.message().await {
        part.state = state;
    }
    if !matches!(part.state.stage(), Stage::Committed | Stage::Existed) {
        return Ok(());
    }
    let unreadable = |_| Status::internal("a node has sent a group snapshot that cannot be read");
    let group = v1::VolumeGroupSnapshot::decode(part.state.group_snapshot.as_slice())
        .map_err(unreadable)?;
    let whole: GroupSnapshotId = group
        .group_snapshot_id
        .parse()
        .map_err(|_| Status::internal("a node has sent a group snapshot without a valid id"))?;
    let request = peer::GroupPart {
        group_snapshot_id: GroupSnapshotId::new(part.pool, whole.digest().clone()).to_string(),
        snapshot_ids: group.snapshots.into_iter().map(|member| member.snapshot_id).collect(),
        pools: pools.iter().map(ToString::to_string).collect(),
    };
    PeerClient::new(part.target).delete_group_part(request).await.map(drop)
}
