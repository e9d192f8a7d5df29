//! The ranges that a stream of either call reported, and the form that all streams have.

use crate::check::{Outcome, blamed};
use crate::check_context::CheckContext;
use crate::wire::Rpc;
use crate::wire::csi::v1::{
    BlockMetadata, BlockMetadataType, GetMetadataAllocatedRequest, GetMetadataAllocatedResponse,
    GetMetadataDeltaRequest, GetMetadataDeltaResponse, Snapshot, Volume,
};

pub(super) fn allocated(t: &CheckContext, snapshot: &Snapshot) -> GetMetadataAllocatedRequest {
    GetMetadataAllocatedRequest {
        snapshot_id: snapshot.snapshot_id.clone(),
        secrets: t.secrets(),
        ..GetMetadataAllocatedRequest::default()
    }
}

pub(super) fn delta(
    t: &CheckContext,
    base: &Snapshot,
    target: &Snapshot,
) -> GetMetadataDeltaRequest {
    GetMetadataDeltaRequest {
        base_snapshot_id: base.snapshot_id.clone(),
        target_snapshot_id: target.snapshot_id.clone(),
        secrets: t.secrets(),
        ..GetMetadataDeltaRequest::default()
    }
}

/// A whole stream that has to end well.
pub(super) async fn reported<R: Rpc>(t: &CheckContext, request: R) -> Outcome<ReportedRanges>
where
    ReportedRanges: From<Vec<R::Reply>>,
{
    let (messages, end) = t.stream(request).await?;
    t.expect(end.is_ok(), "a stream that ends with OK")?;
    Ok(messages.into())
}

#[derive(Debug, Clone)]
pub(super) struct Message {
    kind: i32,
    capacity: i64,
    pub(super) ranges: Vec<BlockMetadata>,
}

#[derive(Debug, Clone)]
pub(super) struct ReportedRanges {
    pub(super) messages: Vec<Message>,
}

impl From<Vec<GetMetadataAllocatedResponse>> for ReportedRanges {
    fn from(messages: Vec<GetMetadataAllocatedResponse>) -> Self {
        let message = |it: GetMetadataAllocatedResponse| Message {
            kind: it.block_metadata_type,
            capacity: it.volume_capacity_bytes,
            ranges: it.block_metadata,
        };
        Self { messages: messages.into_iter().map(message).collect() }
    }
}

impl From<Vec<GetMetadataDeltaResponse>> for ReportedRanges {
    fn from(messages: Vec<GetMetadataDeltaResponse>) -> Self {
        let message = |it: GetMetadataDeltaResponse| Message {
            kind: it.block_metadata_type,
            capacity: it.volume_capacity_bytes,
            ranges: it.block_metadata,
        };
        Self { messages: messages.into_iter().map(message).collect() }
    }
}

impl ReportedRanges {
    pub(super) fn capacity(&self) -> Option<i64> {
        self.messages.first().map(|message| message.capacity)
    }

    pub(super) fn ranges(&self) -> impl Iterator<Item = &BlockMetadata> {
        self.messages.iter().flat_map(|message| &message.ranges)
    }

    /// Starts and ends, with neighbours as one.
    pub(super) fn coverage(&self) -> Vec<(i64, i64)> {
        merged(self.ranges().map(|range| (range.byte_offset, end_of(range))).collect())
    }

    pub(super) fn covers(&self, start: i64, length: i64) -> bool {
        let end = start.saturating_add(length);
        self.coverage().iter().any(|(from, to)| *from <= start && end <= *to)
    }

    /// Each rule fails with its own row.
    pub(super) fn check_form(
        &self,
        t: &CheckContext,
        volume: &Volume,
        most: Option<i32>,
    ) -> Outcome {
        self.check_messages(t, volume)?;
        self.check_ranges(t)?;
        let Some(most) = most.and_then(|most| usize::try_from(most).ok()) else { return Ok(()) };
        let fits = self.messages.iter().all(|message| message.ranges.len() <= most);
        blamed("SM-13", t.expect(fits, format!("at most {most} ranges in a message")))
    }

    fn check_messages(&self, t: &CheckContext, volume: &Volume) -> Outcome {
        let known = [BlockMetadataType::FixedLength, BlockMetadataType::VariableLength];
        for message in &self.messages {
            let is_known = known.iter().any(|kind| i32::from(*kind) == message.kind);
            blamed("SM-07", t.expect(is_known, "block_metadata_type to be set in each message"))?;
            let whole = message.capacity == volume.capacity_bytes;
            let first = self.capacity() == Some(message.capacity);
            blamed("SM-12", t.expect(first, "the same volume_capacity_bytes in all messages"))?;
            let expected = format!("volume_capacity_bytes to be {}", volume.capacity_bytes);
            blamed("SM-11", t.expect(whole, expected))?;
        }
        let mut kinds = self.messages.iter().map(|message| message.kind);
        let first = kinds.next();
        let one = kinds.all(|kind| Some(kind) == first);
        blamed("SM-08", t.expect(one, "the same block_metadata_type in all messages"))
    }

    fn check_ranges(&self, t: &CheckContext) -> Outcome {
        let mut before: Option<(usize, &BlockMetadata)> = None;
        for (number, message) in self.messages.iter().enumerate() {
            for range in &message.ranges {
                blamed(
                    "SM-05",
                    t.expect(range.size_bytes > 0, "size_bytes above 0 in each range"),
                )?;
                let counts = range.byte_offset >= 0;
                blamed("SM-06", t.expect(counts, "no byte_offset below 0"))?;
                if let Some((of, last)) = before {
                    // Between messages it is the rule of SM-04.
                    let apart = of != number;
                    let rises = range.byte_offset > last.byte_offset;
                    let row = if apart { "SM-04" } else { "SM-02" };
                    blamed(row, t.expect(rises, "byte_offset to rise from range to range"))?;
                    let row = if apart { "SM-04" } else { "SM-03" };
                    let clear = end_of(last) <= range.byte_offset;
                    blamed(row, t.expect(clear, "ranges that do not overlap"))?;
                }
                before = Some((number, range));
            }
        }
        self.check_fixed(t)
    }

    fn check_fixed(&self, t: &CheckContext) -> Outcome {
        let fixed = i32::from(BlockMetadataType::FixedLength);
        if self.messages.first().is_none_or(|message| message.kind != fixed) {
            return Ok(());
        }
        let mut sizes = self.ranges().map(|range| range.size_bytes);
        let first = sizes.next();
        let same = sizes.all(|size| Some(size) == first);
        blamed("SM-09", t.expect(same, "one size for all ranges of FIXED_LENGTH"))
    }
}

pub(super) fn end_of(range: &BlockMetadata) -> i64 {
    range.byte_offset.saturating_add(range.size_bytes)
}

pub(super) fn merged(mut ranges: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    ranges.sort_unstable();
    let mut merged: Vec<(i64, i64)> = Vec::new();
    for (start, end) in ranges {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            Some(_) | None => merged.push((start, end)),
        }
    }
    merged
}

/// What of it is behind an offset.
pub(super) fn from_offset(coverage: &[(i64, i64)], offset: i64) -> Vec<(i64, i64)> {
    let behind = coverage.iter().filter(|(_, end)| *end > offset);
    behind.map(|(start, end)| ((*start).max(offset), *end)).collect()
}
