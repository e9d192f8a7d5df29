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
mod node_health;
mod node_info;
mod node_publish;
mod node_stage;
mod node_stats;
mod node_unpublish;
mod node_unstage;
mod operation;
mod protocol;
mod reclaim_space;
mod snapshot_accessibility;
mod snapshot_message;
mod snapshot_metadata;
mod topology;
mod v0;
mod validate;
mod volume_groups;
mod volume_health;
mod volume_message;

use crate::check::Section;

/// In the order of the sheet, for the most part.
pub fn sections() -> &'static [&'static Section] {
    &[
        &general::fields::SECTION,
        &general::required::SECTION,
        &general::answers::SECTION,
        &general::secrets::SECTION,
        &general::overlap::SECTION,
        &access_modes::capabilities::SECTION,
        &access_modes::modes::SECTION,
        &capacity_range::SECTION,
        &volume_message::SECTION,
        &topology::SECTION,
        &snapshot_message::SECTION,
        &alpha::SECTION,
        &identity::SECTION,
        &create_volume::SECTION,
        &create_volume::repeated::SECTION,
        &create_volume::copies::SECTION,
        &delete_volume::SECTION,
        &controller_publish::SECTION,
        &controller_unpublish::SECTION,
        &validate::SECTION,
        &list_volumes::SECTION,
        &get_volume::SECTION,
        &modify_volume::SECTION,
        &get_capacity::SECTION,
        &controller_capabilities::SECTION,
        &create_snapshot::SECTION,
        &delete_snapshot::SECTION,
        &list_snapshots::SECTION,
        &get_snapshot::SECTION,
        &controller_expand::SECTION,
        &controller_expand::GROWING,
        &node_stage::SECTION,
        &node_unstage::SECTION,
        &node_publish::SECTION,
        &node_publish::REPEATED,
        &node_publish::EFFECT,
        &node_unpublish::SECTION,
        &node_stats::SECTION,
        &node_capabilities::SECTION,
        &node_info::SECTION,
        &node_expand::SECTION,
        &node_faults::SECTION,
        &group_snapshots::CAPABILITIES,
        &group_snapshots::SECTION,
        &group_snapshots::MEMBERS,
        &group_snapshots::INSTANT,
        &group_snapshots::DELETING,
        &group_snapshots::GETTING,
        &snapshot_metadata::SECTION,
        &snapshot_metadata::COVERAGE,
        &protocol::SECTION,
        &operation::SECTION,
        &v0::IDENTITY,
        &v0::MESSAGES,
        &v0::REQUESTS,
        &v0::CONTROLLER,
        &v0::CONTROLLER_ERRORS,
        &v0::NODE,
        &volume_groups::LIFECYCLE,
        &volume_groups::MEMBERSHIP,
        &volume_groups::REFUSALS,
        &volume_groups::LISTING,
        &volume_groups::FAILURES,
        &addons_identity::SECTION,
        &reclaim_space::SECTION,
        &volume_health::SECTION,
        &volume_health::LISTING,
        &node_health::SECTION,
        &node_health::STORAGE,
        &snapshot_accessibility::SECTION,
        &snapshot_accessibility::STRICTER,
    ]
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
