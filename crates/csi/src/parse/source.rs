//! What a new volume starts with.

use orlop_model::{ContentSource, Error, Result};

use super::fields::check_length;
use crate::proto::csi::v1;
use crate::proto::csi::v1::volume_content_source::Type;

const FIELD: &str = "volume_content_source";

/// A source that was never issued here does not exist (CV-28, CV-36).
pub(crate) fn content_source(
    source: Option<v1::VolumeContentSource>,
) -> Result<Option<ContentSource>> {
    let Some(source) = source else {
        return Ok(None);
    };
    match source.r#type {
        None => Err(Error::invalid(FIELD, "names neither a snapshot nor a volume")),
        Some(Type::Snapshot(snapshot)) => {
            let id = given(&snapshot.snapshot_id)?.parse()?;
            Ok(Some(ContentSource::Snapshot(id)))
        }
        Some(Type::Volume(volume)) => {
            let id = given(&volume.volume_id)?.parse()?;
            Ok(Some(ContentSource::Volume(id)))
        }
    }
}

fn given(id: &str) -> Result<&str> {
    if id.is_empty() {
        return Err(Error::invalid(FIELD, "has no id"));
    }
    check_length(FIELD, id)?;
    Ok(id)
}
