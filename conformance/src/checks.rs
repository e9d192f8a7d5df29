//! All checks, a module for each call or subject.

mod access_modes;
mod addons_identity;
mod alpha;
mod capacity_range;
mod controller_capabilities;
mod controller_expand;
mod controller_publish;
mod controller_unpublish;
mod create_snapshot;
mod create_volume;
mod delete_snapshot;
mod delete_volume;
mod general;
mod get_capacity;
mod get_snapshot;
mod get_volume;
mod group_snapshots;
mod identity;
mod list_snapshots;
mod list_volumes;
mod modify_volume;
mod node_capabilities;
mod node_expand;
mod node_faults;
mod node_info;
mod node_publish;
mod node_stage;
mod node_stats;
mod node_unpublish;
mod node_unstage;
mod operation;
mod protocol;
mod reclaim_space;
mod snapshot_message;
mod snapshot_metadata;
mod topology;
mod v0;
mod validate;
mod volume_groups;
mod volume_message;

use crate::check::Chapter;

/// In the order of the sheet, for the most part.
pub fn chapters() -> &'static [&'static Chapter] {
    &[
        &general::fields::CHAPTER,
        &general::required::CHAPTER,
        &general::answers::CHAPTER,
        &general::secrets::CHAPTER,
        &general::overlap::CHAPTER,
        &access_modes::capabilities::CHAPTER,
        &access_modes::modes::CHAPTER,
        &capacity_range::CHAPTER,
        &volume_message::CHAPTER,
        &topology::CHAPTER,
        &snapshot_message::CHAPTER,
        &alpha::CHAPTER,
        &identity::CHAPTER,
        &create_volume::CHAPTER,
        &create_volume::again::CHAPTER,
        &create_volume::copies::CHAPTER,
        &delete_volume::CHAPTER,
        &controller_publish::CHAPTER,
        &controller_unpublish::CHAPTER,
        &validate::CHAPTER,
        &list_volumes::CHAPTER,
        &get_volume::CHAPTER,
        &modify_volume::CHAPTER,
        &get_capacity::CHAPTER,
        &controller_capabilities::CHAPTER,
        &create_snapshot::CHAPTER,
        &delete_snapshot::CHAPTER,
        &list_snapshots::CHAPTER,
        &get_snapshot::CHAPTER,
        &controller_expand::CHAPTER,
        &controller_expand::GROWING,
        &node_stage::CHAPTER,
        &node_unstage::CHAPTER,
        &node_publish::CHAPTER,
        &node_publish::SECOND,
        &node_publish::EFFECT,
        &node_unpublish::CHAPTER,
        &node_stats::CHAPTER,
        &node_capabilities::CHAPTER,
        &node_info::CHAPTER,
        &node_expand::CHAPTER,
        &node_faults::CHAPTER,
        &group_snapshots::CAPABILITIES,
        &group_snapshots::CHAPTER,
        &group_snapshots::MEMBERS,
        &group_snapshots::INSTANT,
        &group_snapshots::DELETING,
        &group_snapshots::GETTING,
        &snapshot_metadata::CHAPTER,
        &snapshot_metadata::COVERAGE,
        &protocol::CHAPTER,
        &operation::CHAPTER,
        &v0::IDENTITY,
        &v0::MESSAGES,
        &v0::REQUESTS,
        &v0::CONTROLLER,
        &v0::CONTROLLER_ERRORS,
        &v0::NODE,
        &volume_groups::LIFE,
        &volume_groups::MEMBERSHIP,
        &volume_groups::REFUSALS,
        &volume_groups::LISTING,
        &volume_groups::BROKEN,
        &addons_identity::CHAPTER,
        &reclaim_space::CHAPTER,
    ]
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
