//! All ways in which the plugin can break the rules, a module for each call or subject.

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

use csi_conformance::wire::csi::v1::controller_service_capability::rpc::Type as ControllerRpc;
use csi_conformance::wire::csi::v1::plugin_capability::service::Type as PluginService;
use csi_conformance::wire::csi::v1::{
    ControllerGetCapabilitiesRequest, GetPluginCapabilitiesRequest,
};

use crate::interceptor::Interceptor;
use crate::violation::Violation;

/// Ids of volumes that never were are not made of a pool's and a volume's part.
fn unknown(volume_id: &str) -> bool {
    volume_id.starts_with("nobody")
}

pub(crate) fn violations() -> impl Iterator<Item = &'static Violation> {
    let all: &[&'static [Violation]] = &[
        access_modes::ALL,
        capacity_range::ALL,
        volume_message::ALL,
        topology::ALL,
        snapshot_message::ALL,
        alpha::ALL,
        identity::ALL,
        create_volume::ALL,
        create_volume::copies::ALL,
        delete_volume::ALL,
        controller_publish::ALL,
        controller_unpublish::ALL,
        validate::ALL,
        list_volumes::ALL,
        get_volume::ALL,
        modify_volume::ALL,
        get_capacity::ALL,
        controller_capabilities::ALL,
        create_snapshot::ALL,
        delete_snapshot::ALL,
        list_snapshots::ALL,
        get_snapshot::ALL,
        controller_expand::ALL,
        node_stage::ALL,
        node_unstage::ALL,
        node_publish::ALL,
        node_unpublish::ALL,
        node_stats::ALL,
        node_capabilities::ALL,
        node_info::ALL,
        node_expand::ALL,
        group_snapshots::ALL,
        snapshot_metadata::ALL,
        protocol::ALL,
        operation::ALL,
        v0::MESSAGES,
        v0::BEHAVIOUR,
        v0::ERRORS,
        volume_groups::CALLS,
        volume_groups::ERRORS,
        addons_identity::ALL,
        reclaim_space::ALL,
        volume_health::ALL,
        node_health::ALL,
        snapshot_accessibility::ALL,
    ];
    general::ALL.iter().chain(all).copied().flatten()
}

/// Does not advertise what it has.
fn without_controller(hidden: &'static [ControllerRpc]) -> Interceptor {
    use csi_conformance::wire::csi::v1::controller_service_capability::Type;
    Interceptor::default().reply::<ControllerGetCapabilitiesRequest>(move |_, reply| {
        reply.capabilities.retain(|entry| match &entry.r#type {
            Some(Type::Rpc(rpc)) => !hidden.contains(&rpc.r#type()),
            None => true,
        });
    })
}

fn without_plugin(hidden: PluginService) -> Interceptor {
    use csi_conformance::wire::csi::v1::plugin_capability::Type;
    Interceptor::default().reply::<GetPluginCapabilitiesRequest>(move |_, reply| {
        reply.capabilities.retain(|entry| match &entry.r#type {
            Some(Type::Service(service)) => service.r#type() != hidden,
            Some(Type::VolumeExpansion(_)) | None => true,
        });
    })
}
