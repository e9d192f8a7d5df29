//! What a check needs of the plugin or of the options, and how its absence is reported.

use std::fmt;

use crate::options::Options;
use crate::plugin_features::PluginFeatures;
use crate::wire::csi::v0::controller_service_capability::rpc::Type as V0ControllerRpc;
use crate::wire::csi::v1::controller_service_capability::rpc::Type as ControllerRpc;
use crate::wire::csi::v1::node_service_capability::rpc::Type as NodeRpc;
use crate::wire::csi::v1::plugin_capability::service::Type as PluginService;
use crate::wire::csi::v1::plugin_capability::volume_expansion::Type as Expansion;
use crate::wire::identity::capability::reclaim_space::Type as ReclaimSpace;
use crate::wire::identity::capability::volume_group::Type as VolumeGroup;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    ControllerService,
    NodeService,
    Controller(ControllerRpc),
    /// The rule is about plugins that do not have this.
    NoController(ControllerRpc),
    Node(NodeRpc),
    NoNode(NodeRpc),
    Plugin(PluginService),
    NoPlugin(PluginService),
    Expansion(Expansion),
    /// CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT
    GroupSnapshots,
    V0,
    V0Controller(V0ControllerRpc),
    /// csi.v0 stages.
    V0Stages,
    AddonsIdentity,
    VolumeGroup(VolumeGroup),
    ReclaimSpace(ReclaimSpace),
    /// Block, mount or both can be used on this plugin.
    BlockAccess,
    MountAccess,
    /// The plugin's paths are this process's paths, so that mounts and files can be looked at.
    LocalFiles,
    /// `--break-command`
    Faults,
    /// `--restart-command`
    Restart,
    /// `--logs`
    Logs,
    /// `--other-node`
    OtherNode,
    /// `--other-place`
    OtherPlace,
    /// `--node-endpoint`
    NodeEndpoint,
    /// `--secret`
    Secrets,
    /// `--weak-secret`
    WeakSecrets,
    /// `--mutable-parameter`
    MutableParameters,
    /// `--other-parameter`
    OtherParameters,
    /// No `--snapshots-across`
    SnapshotsApart,
    /// `--filling-parameter`
    FillingParameters,
    /// `--group-parameter`
    GroupParameters,
    /// `--largest-group`
    LargestGroup,
}

impl Need {
    pub fn is_met(self, features: &PluginFeatures, options: &Options) -> bool {
        match self {
            Self::ControllerService => features.controller.is_some(),
            Self::NodeService => features.node.is_some(),
            Self::Controller(rpc) => features.has_controller(rpc),
            Self::NoController(rpc) => {
                features.controller.is_some() && !features.has_controller(rpc)
            }
            Self::Node(rpc) => features.has_node(rpc),
            Self::NoNode(rpc) => features.node.is_some() && !features.has_node(rpc),
            Self::Plugin(service) => features.has_plugin(service),
            Self::NoPlugin(service) => !features.has_plugin(service),
            Self::Expansion(kind) => features.expansion.contains(&kind),
            Self::GroupSnapshots => features.group_snapshots,
            Self::V0 => features.v0,
            Self::V0Controller(rpc) => features.has_v0_controller(rpc),
            Self::V0Stages => features.v0_stages,
            Self::AddonsIdentity => features.addons.is_some(),
            Self::VolumeGroup(kind) => features.has_volume_group(kind),
            Self::ReclaimSpace(kind) => features.has_reclaim_space(kind),
            Self::BlockAccess => options.access.block(),
            Self::MountAccess => options.access.mount(),
            Self::LocalFiles => options.local_files,
            Self::Faults => options.hooks.breaks.is_some() && options.hooks.mends.is_some(),
            Self::Restart => options.hooks.restarts.is_some(),
            Self::Logs => options.hooks.logs.is_some(),
            Self::OtherNode => options.other_node.is_some(),
            Self::OtherPlace => !options.other_place.is_empty(),
            Self::NodeEndpoint => options.node_socket.is_some(),
            Self::Secrets => !options.secrets.is_empty(),
            Self::WeakSecrets => !options.weak_secrets.is_empty(),
            Self::MutableParameters => !options.mutable_parameters.is_empty(),
            Self::OtherParameters => !options.other_parameters.is_empty(),
            Self::SnapshotsApart => !options.snapshots_across,
            Self::FillingParameters => !options.filling_parameters.is_empty(),
            Self::GroupParameters => !options.group_parameters.is_empty(),
            Self::LargestGroup => options.largest_group.is_some(),
        }
    }
}

/// Why the rule does not apply where the need is not met.
impl fmt::Display for Need {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControllerService => formatter.write_str("there is no Controller service"),
            Self::NodeService => formatter.write_str("there is no Node service"),
            Self::Controller(rpc) => not_offered(formatter, "controller", rpc.as_str_name()),
            Self::NoController(rpc) => offered(formatter, "controller", rpc.as_str_name()),
            Self::Node(rpc) => not_offered(formatter, "node", rpc.as_str_name()),
            Self::NoNode(rpc) => offered(formatter, "node", rpc.as_str_name()),
            Self::Plugin(service) => not_offered(formatter, "plugin", service.as_str_name()),
            Self::NoPlugin(service) => offered(formatter, "plugin", service.as_str_name()),
            Self::Expansion(kind) => {
                not_offered(formatter, "plugin", &format!("VolumeExpansion {}", kind.as_str_name()))
            }
            Self::GroupSnapshots => not_offered(
                formatter,
                "group controller",
                "CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT",
            ),
            Self::V0 => formatter.write_str("csi.v0 is not served"),
            Self::V0Controller(rpc) => {
                not_offered(formatter, "csi.v0 controller", rpc.as_str_name())
            }
            Self::V0Stages => not_offered(formatter, "csi.v0 node", "STAGE_UNSTAGE_VOLUME"),
            Self::AddonsIdentity => formatter.write_str("CSI-Addons is not served"),
            Self::VolumeGroup(kind) => {
                not_offered(formatter, "CSI-Addons volume group", kind.as_str_name())
            }
            Self::ReclaimSpace(kind) => {
                not_offered(formatter, "CSI-Addons reclaim space", kind.as_str_name())
            }
            Self::BlockAccess => formatter.write_str("the options exclude block volumes"),
            Self::MountAccess => formatter.write_str("the options exclude mounted volumes"),
            Self::LocalFiles => {
                formatter.write_str("the plugin's paths cannot be seen from here (--remote)")
            }
            Self::Faults => formatter.write_str("needs --break-command and --mend-command"),
            Self::Restart => formatter.write_str("needs --restart-command"),
            Self::Logs => formatter.write_str("needs --logs"),
            Self::OtherNode => formatter.write_str("no second node is known (--other-node)"),
            Self::OtherPlace => formatter.write_str("no second place is known (--other-place)"),
            Self::NodeEndpoint => {
                formatter.write_str("one instance serves everything (--node-endpoint)")
            }
            Self::Secrets => formatter.write_str("no secrets are in use (--secret)"),
            Self::WeakSecrets => {
                formatter.write_str("no secrets with fewer rights are known (--weak-secret)")
            }
            Self::MutableParameters => formatter.write_str("needs --mutable-parameter"),
            Self::OtherParameters => {
                formatter.write_str("no second kind of volume is known (--other-parameter)")
            }
            Self::SnapshotsApart => {
                formatter.write_str("one snapshot can be taken of all kinds of volumes")
            }
            Self::FillingParameters => formatter.write_str(
                "no kind of volume is known that fills the storage (--filling-parameter)",
            ),
            Self::GroupParameters => {
                formatter.write_str("no parameter of volume groups is known (--group-parameter)")
            }
            Self::LargestGroup => {
                formatter.write_str("the limit of a volume group is not known (--largest-group)")
            }
        }
    }
}

fn not_offered(formatter: &mut fmt::Formatter<'_>, whose: &str, what: &str) -> fmt::Result {
    write!(formatter, "the {whose} capability {what} is not offered")
}

fn offered(formatter: &mut fmt::Formatter<'_>, whose: &str, what: &str) -> fmt::Result {
    write!(formatter, "the {whose} capability {what} is offered")
}
