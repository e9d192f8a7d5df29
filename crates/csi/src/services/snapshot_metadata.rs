//! csi.v1.SnapshotMetadata: which blocks of a snapshot hold data, and which have changed.

mod pages;

use std::pin::Pin;
use std::sync::Arc;

use orlop_engine::Engine;
use orlop_engine::request::BlockRanges;
use orlop_model::{PoolId, Result};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Status};

use self::pages::{Pages, RangePage};
use super::{Answer, answer, note_snapshot};
use crate::connections::InFlight;
use crate::executor::Executor;
use crate::proto::csi::v1;
use crate::{parse, reply};

type Unkept<Message> = ReceiverStream<std::result::Result<Message, Status>>;
type Messages<Message> =
    Pin<Box<dyn Stream<Item = std::result::Result<Message, Status>> + Send + 'static>>;

pub(crate) struct SnapshotMetadata {
    executor: Arc<Executor>,
}

impl SnapshotMetadata {
    pub(crate) fn new(executor: Arc<Executor>) -> Self {
        Self { executor }
    }

    async fn allocated(
        &self,
        request: v1::GetMetadataAllocatedRequest,
    ) -> Result<Unkept<v1::GetMetadataAllocatedResponse>> {
        note_snapshot(&request.snapshot_id);
        parse::require([("snapshot_id", !request.snapshot_id.is_empty())])?;
        parse::discard_secrets(request.secrets)?;
        let most = parse::max_results(request.max_results)?;
        let start = parse::starting_offset(request.starting_offset)?;
        let id = parse::snapshot_id("snapshot_id", &request.snapshot_id)?;
        let pages = self
            .open(id.pool().clone(), most, move |engine| engine.allocated_blocks(&id, start))
            .await?;
        Ok(pages.into_messages(allocated_message))
    }

    async fn delta(
        &self,
        request: v1::GetMetadataDeltaRequest,
    ) -> Result<Unkept<v1::GetMetadataDeltaResponse>> {
        note_snapshot(&request.target_snapshot_id);
        parse::require([
            ("base_snapshot_id", !request.base_snapshot_id.is_empty()),
            ("target_snapshot_id", !request.target_snapshot_id.is_empty()),
        ])?;
        parse::discard_secrets(request.secrets)?;
        let most = parse::max_results(request.max_results)?;
        let start = parse::starting_offset(request.starting_offset)?;
        let base = parse::snapshot_id("base_snapshot_id", &request.base_snapshot_id)?;
        let target = parse::snapshot_id("target_snapshot_id", &request.target_snapshot_id)?;
        let pool = target.pool().clone();
        let find = move |engine: &Engine| engine.changed_blocks(&base, &target, start);
        let pages = self.open(pool, most, find).await?;
        Ok(pages.into_messages(delta_message))
    }

    /// What is wrong from the start is the call's answer; what goes wrong later ends the stream.
    async fn open(
        &self,
        pool: PoolId,
        most: usize,
        find: impl FnOnce(&Engine) -> Result<BlockRanges> + Send + 'static,
    ) -> Result<Pages> {
        let place = self.executor.try_open_stream()?;
        let blocks = self.executor.step(&pool, find).await?;
        Ok(Pages::new(Arc::clone(&self.executor), pool, place, blocks, most))
    }
}

fn busy_with<Message>(request: &Request<Message>) -> Option<InFlight> {
    request.extensions().get().map(InFlight::with)
}

/// A connection is not silent while a caller reads a stream on it, however slowly. Streams are few;
/// of other calls only those that are being answered keep theirs.
fn kept_by<Message: Send + 'static>(
    stream: Unkept<Message>,
    busy: Option<InFlight>,
) -> Messages<Message> {
    Box::pin(stream.map(move |message| {
        let _held = &busy;
        message
    }))
}

/// Extents have the sizes that they have (SM-10).
const STYLE: v1::BlockMetadataType = v1::BlockMetadataType::VariableLength;

fn allocated_message(page: &RangePage) -> v1::GetMetadataAllocatedResponse {
    v1::GetMetadataAllocatedResponse {
        block_metadata_type: STYLE.into(),
        volume_capacity_bytes: reply::bytes(page.capacity_bytes),
        block_metadata: page.ranges.iter().map(reply::block_metadata).collect(),
    }
}

fn delta_message(page: &RangePage) -> v1::GetMetadataDeltaResponse {
    v1::GetMetadataDeltaResponse {
        block_metadata_type: STYLE.into(),
        volume_capacity_bytes: reply::bytes(page.capacity_bytes),
        block_metadata: page.ranges.iter().map(reply::block_metadata).collect(),
    }
}

#[tonic::async_trait]
impl v1::snapshot_metadata_server::SnapshotMetadata for SnapshotMetadata {
    type GetMetadataAllocatedStream = Messages<v1::GetMetadataAllocatedResponse>;
    type GetMetadataDeltaStream = Messages<v1::GetMetadataDeltaResponse>;

    async fn get_metadata_allocated(
        &self,
        request: Request<v1::GetMetadataAllocatedRequest>,
    ) -> Answer<Self::GetMetadataAllocatedStream> {
        let busy = busy_with(&request);
        let stream = self.allocated(request.into_inner()).await;
        answer(stream.map(|stream| kept_by(stream, busy)))
    }

    async fn get_metadata_delta(
        &self,
        request: Request<v1::GetMetadataDeltaRequest>,
    ) -> Answer<Self::GetMetadataDeltaStream> {
        let busy = busy_with(&request);
        let stream = self.delta(request.into_inner()).await;
        answer(stream.map(|stream| kept_by(stream, busy)))
    }
}
