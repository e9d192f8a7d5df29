//! What the plugin says that it offers, asked once at the beginning.

use crate::client::Client;
use crate::wire::csi::v0::controller_service_capability::rpc::Type as V0ControllerRpc;
use crate::wire::csi::v1::controller_service_capability::rpc::Type as ControllerRpc;
use crate::wire::csi::v1::group_controller_service_capability::rpc::Type as GroupRpc;
use crate::wire::csi::v1::node_service_capability::rpc::Type as NodeRpc;
use crate::wire::csi::v1::plugin_capability::service::Type as PluginService;
use crate::wire::csi::v1::plugin_capability::volume_expansion::Type as Expansion;
use crate::wire::csi::v1::{self, NodeGetInfoResponse};
use crate::wire::identity::capability::Type as Addon;
use crate::wire::identity::capability::reclaim_space::Type as ReclaimSpace;
use crate::wire::identity::capability::volume_group::Type as VolumeGroup;
use crate::wire::{Rpc, csi::v0, identity};
use prost::Message;
use tonic::Code;

/// `None` for a service that is not served.
#[derive(Debug, Clone, Default)]
pub struct PluginFeatures {
    pub name: String,
    pub version: String,
    pub plugin: Vec<PluginService>,
    pub expansion: Vec<Expansion>,
    pub controller: Option<Vec<ControllerRpc>>,
    pub node: Option<Vec<NodeRpc>>,
    pub node_info: NodeGetInfoResponse,
    pub group_snapshots: bool,
    pub v0: bool,
    pub v0_controller: Vec<V0ControllerRpc>,
    pub v0_stages: bool,
    pub addons: Option<Vec<Addon>>,
}

impl PluginFeatures {
    pub fn has_plugin(&self, service: PluginService) -> bool {
        self.plugin.contains(&service)
    }

    pub fn has_controller(&self, rpc: ControllerRpc) -> bool {
        self.controller.as_ref().is_some_and(|offered| offered.contains(&rpc))
    }

    pub fn has_node(&self, rpc: NodeRpc) -> bool {
        self.node.as_ref().is_some_and(|offered| offered.contains(&rpc))
    }

    pub fn has_v0_controller(&self, rpc: V0ControllerRpc) -> bool {
        self.v0_controller.contains(&rpc)
    }

    pub fn has_volume_group(&self, kind: VolumeGroup) -> bool {
        self.addons
            .iter()
            .flatten()
            .any(|addon| matches!(addon, Addon::VolumeGroup(offered) if offered.r#type() == kind))
    }

    pub fn has_reclaim_space(&self, kind: ReclaimSpace) -> bool {
        self.addons
            .iter()
            .flatten()
            .any(|addon| matches!(addon, Addon::ReclaimSpace(offered) if offered.r#type() == kind))
    }

    /// Asks. A plugin that cannot even say who it is, is no plugin.
    pub(crate) async fn of(client: &Client, node: &Client) -> Result<Self, String> {
        let info = ask(client, v1::GetPluginInfoRequest::default()).await?;
        let info = info.ok_or("GetPluginInfo is not implemented")?;
        let mut features =
            Self { name: info.name, version: info.vendor_version, ..Self::default() };
        features.read_plugin_capabilities(client).await?;
        features.read_controller(client).await?;
        features.read_node(node).await?;
        features.v0 = ask(client, v0::GetPluginInfoRequest::default()).await?.is_some();
        features.read_v0(client, node).await?;
        let addons = ask(client, identity::GetCapabilitiesRequest::default()).await?;
        features.addons = addons
            .map(|reply| reply.capabilities.into_iter().filter_map(|entry| entry.r#type).collect());
        Ok(features)
    }

    async fn read_plugin_capabilities(&mut self, client: &Client) -> Result<(), String> {
        use v1::plugin_capability::Type;
        let reply = ask(client, v1::GetPluginCapabilitiesRequest::default()).await?;
        for entry in reply.into_iter().flat_map(|reply| reply.capabilities) {
            match entry.r#type {
                Some(Type::Service(service)) => self.plugin.push(service.r#type()),
                Some(Type::VolumeExpansion(kind)) => self.expansion.push(kind.r#type()),
                None => {}
            }
        }
        Ok(())
    }

    async fn read_controller(&mut self, client: &Client) -> Result<(), String> {
        use v1::controller_service_capability::Type;
        use v1::group_controller_service_capability::Type as Group;
        let reply = ask(client, v1::ControllerGetCapabilitiesRequest::default()).await?;
        self.controller = reply.map(|reply| {
            let entries = reply.capabilities.into_iter().filter_map(|entry| entry.r#type);
            entries.map(|Type::Rpc(rpc)| rpc.r#type()).collect()
        });
        let reply = ask(client, v1::GroupControllerGetCapabilitiesRequest::default()).await?;
        let groups = reply.into_iter().flat_map(|reply| reply.capabilities);
        self.group_snapshots = groups
            .filter_map(|entry| entry.r#type)
            .any(|Group::Rpc(rpc)| rpc.r#type() == GroupRpc::CreateDeleteGetVolumeGroupSnapshot);
        Ok(())
    }

    async fn read_v0(&mut self, client: &Client, node: &Client) -> Result<(), String> {
        use v0::controller_service_capability::Type;
        use v0::node_service_capability::{Type as NodeType, rpc::Type as NodeRpc};
        if !self.v0 {
            return Ok(());
        }
        let reply = ask(client, v0::ControllerGetCapabilitiesRequest::default()).await?;
        let entries = reply.into_iter().flat_map(|reply| reply.capabilities);
        self.v0_controller =
            entries.filter_map(|entry| entry.r#type).map(|Type::Rpc(rpc)| rpc.r#type()).collect();
        let reply = ask(node, v0::NodeGetCapabilitiesRequest::default()).await?;
        let entries = reply.into_iter().flat_map(|reply| reply.capabilities);
        self.v0_stages = entries
            .filter_map(|entry| entry.r#type)
            .any(|NodeType::Rpc(rpc)| rpc.r#type() == NodeRpc::StageUnstageVolume);
        Ok(())
    }

    async fn read_node(&mut self, node: &Client) -> Result<(), String> {
        use v1::node_service_capability::Type;
        let reply = ask(node, v1::NodeGetCapabilitiesRequest::default()).await?;
        self.node = reply.map(|reply| {
            let entries = reply.capabilities.into_iter().filter_map(|entry| entry.r#type);
            entries.map(|Type::Rpc(rpc)| rpc.r#type()).collect()
        });
        let info = ask(node, v1::NodeGetInfoRequest::default()).await?;
        self.node_info = info.unwrap_or_default();
        Ok(())
    }
}

/// `None`: not implemented.
async fn ask<R: Rpc>(client: &Client, request: R) -> Result<Option<R::Reply>, String> {
    match client.unary(R::PATH, request.encode_to_vec()).await {
        Ok((reply, _)) => R::Reply::decode(reply).map(Some).map_err(|error| error.to_string()),
        Err(status) if status.code() == Code::Unimplemented => Ok(None),
        Err(status) => Err(format!("{}: {:?} {}", R::PATH, status.code(), status.message())),
    }
}
