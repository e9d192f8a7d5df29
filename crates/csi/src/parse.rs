//! From the wire to the model, once: what comes out of here cannot be wrong.
//!
//! Every call checks in the same order (open point 8 of the requirements): first that all
//! required fields are there, then that values are legal, last whether ids name anything.

mod capability;
mod context;
mod creation;
mod fields;
mod ids;
mod paging;
mod parameters;

pub(crate) use capability::{
    capability, capability_in_use, capability_set, capability_set_to_validate,
};
pub(crate) use context::{inline_volume, publish_context, volume_context};
pub(crate) use creation::{content_source, place, topology_requirement};
pub(crate) use fields::{capacity_range, check_length, discard_secrets, optional_path, require};
pub(crate) use ids::{
    group_snapshot_id, issued_group_snapshot, issued_snapshot, issued_volume, issued_volume_group,
    optional_node, snapshot_id, volume_group_id, volume_id, volume_ids, volume_path, volume_ref,
};
pub(crate) use paging::{max_entries, max_results, page_token, starting_offset};
pub(crate) use parameters::{
    capacity_parameters, check_snapshot_parameters, mutable_parameters, volume_group_parameters,
    volume_parameters,
};

#[cfg(test)]
mod tests;
