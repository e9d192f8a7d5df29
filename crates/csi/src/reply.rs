//! From the model to the wire. Strings and maps stay within what a response may hold (GEN-01,
//! GEN-02).

mod snapshot;
mod usage;
mod volume;

pub(crate) use snapshot::{group_snapshot, snapshot, with_consistency, with_group_consistency};
pub(crate) use usage::{condition, usage};
pub(crate) use volume::{READ_ONLY_KEY, publish_context, published_nodes, status_volume, volume};

use orlop_model::{ByteRange, Topology};

use crate::proto::csi::v1;

/// GEN-01: response strings without a limit of their own.
pub(crate) const LONGEST_TEXT: usize = 128;

/// The wire counts bytes with a sign; nothing real comes near its end.
pub(crate) fn bytes(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(crate) fn topology(place: &Topology) -> v1::Topology {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    v1::Topology { segments: place.segments().map(owned).collect() }
}

pub(crate) fn block_metadata(range: &ByteRange) -> v1::BlockMetadata {
    v1::BlockMetadata { byte_offset: bytes(range.start), size_bytes: bytes(range.length) }
}

/// At most `longest` bytes, cut between characters and marked where it was cut.
pub(crate) fn shortened(text: &str, longest: usize) -> String {
    const CUT: &str = "…";
    if text.len() <= longest {
        return text.to_owned();
    }
    let room = longest.saturating_sub(CUT.len());
    let mut kept = text.chars();
    while kept.as_str().len() > room {
        kept.next_back();
    }
    format!("{}{CUT}", kept.as_str())
}

#[cfg(test)]
mod tests;
