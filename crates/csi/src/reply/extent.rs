//! Parts of a volume as a caller sees them.

use orlop_model::ByteRange;

use super::bytes;
use crate::proto::csi::v1;

pub(crate) fn block_metadata(range: &ByteRange) -> v1::BlockMetadata {
    v1::BlockMetadata { byte_offset: bytes(range.start), size_bytes: bytes(range.length) }
}
