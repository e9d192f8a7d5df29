//! What the streams of SnapshotMetadata say, and that they say it by the rules.

use std::ops::Range;

use orlop_tests::*;
use tonic::Streaming;

/// Offsets in an image that is held in memory.
pub(crate) type Bytes = Range<usize>;

pub(crate) trait Message {
    fn into_parts(self) -> (v1::BlockMetadataType, i64, Vec<v1::BlockMetadata>);
}

impl Message for v1::GetMetadataDeltaResponse {
    fn into_parts(self) -> (v1::BlockMetadataType, i64, Vec<v1::BlockMetadata>) {
        (self.block_metadata_type(), self.volume_capacity_bytes, self.block_metadata)
    }
}

impl Message for v1::GetMetadataAllocatedResponse {
    fn into_parts(self) -> (v1::BlockMetadataType, i64, Vec<v1::BlockMetadata>) {
        (self.block_metadata_type(), self.volume_capacity_bytes, self.block_metadata)
    }
}

/// The parameters of the request, and the ranges that were reported.
pub(crate) struct ReportedBlocks {
    pub(crate) start: usize,
    max_results: i32,
    capacity: usize,
    pub(crate) ranges: Vec<Bytes>,
}

impl ReportedBlocks {
    pub(crate) fn new(start: usize, max_results: i32, capacity: usize) -> Self {
        Self { start, max_results, capacity, ranges: Vec::new() }
    }

    /// Takes one message; false at the end of the stream.
    pub(crate) async fn take<M: Message>(&mut self, stream: &mut Streaming<M>) -> bool {
        let Some(message) = stream.message().await.expect("a stream without errors") else {
            return false;
        };
        let (style, capacity, tuples) = message.into_parts();
        assert_eq!(style, v1::BlockMetadataType::VariableLength);
        assert_eq!(usize::try_from(capacity).unwrap(), self.capacity);
        let most = usize::try_from(self.max_results).unwrap();
        assert!(most == 0 || tuples.len() <= most, "{} tuples, not {most}", tuples.len());
        for tuple in &tuples {
            self.add(tuple);
        }
        true
    }

    pub(crate) async fn take_all<M: Message>(&mut self, stream: &mut Streaming<M>) {
        while self.take(stream).await {}
    }

    fn add(&mut self, tuple: &v1::BlockMetadata) {
        let first = usize::try_from(tuple.byte_offset).unwrap();
        let range = first..first + usize::try_from(tuple.size_bytes).unwrap();
        assert!(!range.is_empty(), "an empty range at {first}");
        assert!(range.end > self.start, "{range:?} ends before {}", self.start);
        assert!(range.end <= self.capacity, "{range:?} ends after the volume");
        let is_behind = |last: &Bytes| last.end <= range.start;
        assert!(self.ranges.last().is_none_or(is_behind), "{range:?} after {:?}", self.ranges);
        self.ranges.push(range);
    }

    /// SM-18: where a broken stream is taken up again.
    pub(crate) fn end(&self) -> usize {
        self.ranges.last().map_or(self.start, |range| range.end)
    }
}

pub(crate) async fn open_delta(
    client: &Client,
    base: &str,
    target: &str,
    reported: &ReportedBlocks,
) -> Streaming<v1::GetMetadataDeltaResponse> {
    let request = v1::GetMetadataDeltaRequest {
        base_snapshot_id: base.to_owned(),
        target_snapshot_id: target.to_owned(),
        starting_offset: i64::try_from(reported.end()).unwrap(),
        max_results: reported.max_results,
        ..v1::GetMetadataDeltaRequest::default()
    };
    client.snapshot_metadata().get_metadata_delta(request).await.expect("a stream").into_inner()
}

pub(crate) async fn open_allocated(
    client: &Client,
    snapshot: &str,
    reported: &ReportedBlocks,
) -> Streaming<v1::GetMetadataAllocatedResponse> {
    let request = v1::GetMetadataAllocatedRequest {
        snapshot_id: snapshot.to_owned(),
        starting_offset: i64::try_from(reported.end()).unwrap(),
        max_results: reported.max_results,
        ..v1::GetMetadataAllocatedRequest::default()
    };
    client.snapshot_metadata().get_metadata_allocated(request).await.expect("a stream").into_inner()
}
