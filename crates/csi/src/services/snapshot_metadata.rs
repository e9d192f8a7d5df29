//! csi.v1.SnapshotMetadata: which blocks of a snapshot hold data, and which have changed.

mod pages;

use std::sync::Arc;

use orlop_engine::Engine;
use orlop_engine::request::BlockRanges;
use orlop_model::{PoolId, Result};
use tokio::sync::OwnedSemaphorePermit;
use tonic::Request;

use self::pages::{PageStream, Pages, RangePage};
use super::{Answer, answer, note_snapshot};
use crate::connections::{ConnectionRef, ConnectionStream, InFlight};
use crate::executor::Executor;
use crate::proto::csi::v1;
use crate::{parse, reply};

/// Released when the stream ends.
struct StreamPermits {
    _of_daemon: OwnedSemaphorePermit,
    _of_connection: Option<ConnectionStream>,
}

pub(crate) struct SnapshotMetadata {
    executor: Arc<Executor>,
}

impl SnapshotMetadata {
    pub(crate) fn new(executor: Arc<Executor>) -> Self {
        Self { executor }
    }

    async fn allocated(
        &self,
        connection: Option<ConnectionRef>,
        request: v1::GetMetadataAllocatedRequest,
    ) -> Result<PageStream<v1::GetMetadataAllocatedResponse>> {
        let busy = connection.as_ref().map(InFlight::with);
        note_snapshot(&request.snapshot_id);
        parse::require([("snapshot_id", !request.snapshot_id.is_empty())])?;
        parse::discard_secrets(request.secrets)?;
        let max_ranges = parse::max_results(request.max_results)?;
        let start = parse::starting_offset(request.starting_offset)?;
        let id = parse::snapshot_id("snapshot_id", &request.snapshot_id)?;
        let pool = id.pool().clone();
        let find = move |engine: &Engine| engine.allocated_blocks(&id, start);
        let pages = self.open(connection, pool, max_ranges, find).await?;
        Ok(pages.into_messages(allocated_message, busy))
    }

    async fn delta(
        &self,
        connection: Option<ConnectionRef>,
        request: v1::GetMetadataDeltaRequest,
    ) -> Result<PageStream<v1::GetMetadataDeltaResponse>> {
        let busy = connection.as_ref().map(InFlight::with);
        note_snapshot(&request.target_snapshot_id);
        parse::require([
            ("base_snapshot_id", !request.base_snapshot_id.is_empty()),
            ("target_snapshot_id", !request.target_snapshot_id.is_empty()),
        ])?;
        parse::discard_secrets(request.secrets)?;
        let max_ranges = parse::max_results(request.max_results)?;
        let start = parse::starting_offset(request.starting_offset)?;
        let base = parse::snapshot_id("base_snapshot_id", &request.base_snapshot_id)?;
        let target = parse::snapshot_id("target_snapshot_id", &request.target_snapshot_id)?;
        let pool = target.pool().clone();
        let find = move |engine: &Engine| engine.changed_blocks(&base, &target, start);
        let pages = self.open(connection, pool, max_ranges, find).await?;
        Ok(pages.into_messages(delta_message, busy))
    }

    /// An error here is the answer to the call; a later one ends the stream.
    async fn open(
        &self,
        connection: Option<ConnectionRef>,
        pool: PoolId,
        max_ranges: usize,
        find: impl FnOnce(&Engine) -> Result<BlockRanges> + Send + 'static,
    ) -> Result<Pages> {
        let of_connection = connection.map(|connection| connection.try_open_stream());
        let permits = StreamPermits {
            _of_connection: of_connection.transpose()?,
            _of_daemon: self.executor.try_open_stream()?,
        };
        let blocks = self.executor.step(&pool, find).await?;
        Ok(Pages::new(Arc::clone(&self.executor), pool, permits, blocks, max_ranges))
    }
}

fn connection_of<Message>(request: &Request<Message>) -> Option<ConnectionRef> {
    request.extensions().get().cloned()
}

/// Extents are reported with their own sizes, not as blocks of one size (SM-10).
const BLOCK_METADATA_TYPE: v1::BlockMetadataType = v1::BlockMetadataType::VariableLength;

fn allocated_message(page: &RangePage) -> v1::GetMetadataAllocatedResponse {
    v1::GetMetadataAllocatedResponse {
        block_metadata_type: BLOCK_METADATA_TYPE.into(),
        volume_capacity_bytes: reply::bytes(page.capacity_bytes),
        block_metadata: page.ranges.iter().map(reply::block_metadata).collect(),
    }
}

fn delta_message(page: &RangePage) -> v1::GetMetadataDeltaResponse {
    v1::GetMetadataDeltaResponse {
        block_metadata_type: BLOCK_METADATA_TYPE.into(),
        volume_capacity_bytes: reply::bytes(page.capacity_bytes),
        block_metadata: page.ranges.iter().map(reply::block_metadata).collect(),
    }
}

#[tonic::async_trait]
impl v1::snapshot_metadata_server::SnapshotMetadata for SnapshotMetadata {
    type GetMetadataAllocatedStream = PageStream<v1::GetMetadataAllocatedResponse>;
    type GetMetadataDeltaStream = PageStream<v1::GetMetadataDeltaResponse>;

    async fn get_metadata_allocated(
        &self,
        request: Request<v1::GetMetadataAllocatedRequest>,
    ) -> Answer<Self::GetMetadataAllocatedStream> {
        let connection = connection_of(&request);
        answer(self.allocated(connection, request.into_inner()).await)
    }

    async fn get_metadata_delta(
        &self,
        request: Request<v1::GetMetadataDeltaRequest>,
    ) -> Answer<Self::GetMetadataDeltaStream> {
        let connection = connection_of(&request);
        answer(self.delta(connection, request.into_inner()).await)
    }
}
