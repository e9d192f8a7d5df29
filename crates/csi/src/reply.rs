//! From the model to the wire. Strings and maps stay within what a response may hold (GEN-01,
//! GEN-02).

mod details;
mod health;
mod snapshot;
mod usage;

pub use details::{LIMITS_KEY, NAME_KEY};
pub(crate) use details::{with_snapshot_details, with_volume_details};
pub(crate) use health::{storage_health, volume_health};
pub(crate) use snapshot::{group_snapshot, snapshot, with_consistency, with_group_consistency};
pub(crate) use usage::{condition, usage};

use std::collections::BTreeMap;

use orlop_engine::request::{PublishContext, Volume, VolumeStatus};
use orlop_model::{ByteRange, ContentSource, Topology};

use crate::proto::csi::v1;
use crate::proto::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};

/// GEN-01: response strings for which no other limit is given.
pub(crate) const LONGEST_TEXT: usize = 128;
const CUT: &str = "…";

/// The one entry of a publish context.
pub(crate) const READ_ONLY_KEY: &str = "readonly";

pub(crate) fn volume(volume: &Volume) -> v1::Volume {
    v1::Volume {
        capacity_bytes: bytes(volume.record.capacity_bytes),
        volume_id: volume.record.id.to_string(),
        volume_context: volume.context.clone(),
        content_source: volume.record.source.as_ref().map(content_source),
        accessible_topology: accessible_from(&volume.topology),
    }
}

/// VO-11.
fn content_source(source: &ContentSource) -> v1::VolumeContentSource {
    let source = match source {
        ContentSource::Snapshot(id) => {
            Type::Snapshot(SnapshotSource { snapshot_id: id.to_string() })
        }
        ContentSource::Volume(id) => Type::Volume(VolumeSource { volume_id: id.to_string() }),
    };
    v1::VolumeContentSource { r#type: Some(source) }
}

/// A volume whose record cannot be read still has its id; its condition tells the rest.
pub(crate) fn status_volume(status: &VolumeStatus) -> v1::Volume {
    match &status.volume {
        Some(known) => volume(known),
        None => v1::Volume { volume_id: status.id.to_string(), ..Default::default() },
    }
}

pub(crate) fn published_nodes(status: &VolumeStatus) -> Vec<String> {
    let nodes = status.volume.iter().flat_map(|known| known.record.published.keys());
    nodes.map(ToString::to_string).collect()
}

/// CP-19: the same for the same publication, whenever it is asked for.
pub(crate) fn publish_context(context: PublishContext) -> BTreeMap<String, String> {
    BTreeMap::from([(READ_ONLY_KEY.to_owned(), context.read_only.to_string())])
}

/// The wire counts bytes with a sign; nothing real comes near its end.
pub(crate) fn bytes(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(crate) fn topology(topology: &Topology) -> v1::Topology {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    v1::Topology { segments: topology.segments().map(owned).collect() }
}

/// None, where it can be used everywhere.
fn accessible_from(usable: &Topology) -> Vec<v1::Topology> {
    if usable.is_empty() { Vec::new() } else { vec![topology(usable)] }
}

pub(crate) fn block_metadata(range: &ByteRange) -> v1::BlockMetadata {
    v1::BlockMetadata { byte_offset: bytes(range.start), size_bytes: bytes(range.length) }
}

/// At most `longest` bytes, cut between characters and marked where it was cut.
pub(crate) fn shortened(text: &str, longest: usize) -> String {
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

/// What is wrong with something, in at most [`LONGEST_TEXT`] bytes. It ends with a whole clause where it can, for a part of
/// an advice misleads.
pub(crate) fn in_brief(text: &str) -> String {
    if text.len() <= LONGEST_TEXT {
        return text.to_owned();
    }
    let room = LONGEST_TEXT - CUT.len();
    let ends = ["; ", ", "].into_iter().flat_map(|end| text.match_indices(end));
    let last = ends.map(|(at, _)| at).filter(|at| (room / 2..=room).contains(at)).max();
    match last.and_then(|at| text.get(..at)) {
        Some(clauses) => format!("{clauses}{CUT}"),
        None => shortened(text, LONGEST_TEXT),
    }
}

#[cfg(test)]
mod tests;
