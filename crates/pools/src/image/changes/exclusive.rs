//! How many bytes only one volume or snapshot has: those of extents that the filesystem does not flag as shared.

use std::fs::File;

use orlop_model::Result;
use orlop_sys::extents::{Extent, extents};

use crate::image::failure::cannot;

/// Reading this many takes about a second. What has more extents is not measured.
const MAX_EXTENTS: usize = 200_000;

pub(super) fn exclusive_bytes(data: File) -> Result<Option<u64>> {
    let mut bytes: u64 = 0;
    for (index, extent) in extents(data, 0).enumerate() {
        if index >= MAX_EXTENTS {
            return Ok(None);
        }
        let Extent { length, is_shared, .. } =
            extent.map_err(cannot(|| "map the extents of a volume or snapshot".to_owned()))?;
        if !is_shared {
            bytes = bytes.saturating_add(length);
        }
    }
    Ok(Some(bytes))
}
