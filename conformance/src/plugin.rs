//! The plugin under test: how to reach it, and what it says of itself.

use std::sync::Arc;

use prost::Message;

use crate::client::Client;
use crate::options::Options;
use crate::plugin_features::PluginFeatures;
use crate::wire::Rpc;
use crate::wire::csi::v1::{ProbeRequest, ProbeResponse};

#[derive(Clone)]
pub struct Plugin {
    client: Client,
    node: Client,
    pub(crate) features: Arc<PluginFeatures>,
    pub(crate) options: Arc<Options>,
}

impl Plugin {
    pub async fn connect(options: Options) -> Result<Self, String> {
        let client = Client::new(&options.socket, options.timeout)?;
        let node_socket = options.node_socket.as_ref().unwrap_or(&options.socket);
        let node = Client::new(node_socket, options.timeout)?;
        let features = PluginFeatures::of(&client, &node).await?;
        Ok(Self { client, node, features: Arc::new(features), options: Arc::new(options) })
    }

    /// A plugin that is not running and offers nothing.
    #[cfg(test)]
    pub(crate) fn absent(options: Options) -> Result<Self, String> {
        let client = Client::new(&options.socket, options.timeout)?;
        let (node, features) = (client.clone(), Arc::new(PluginFeatures::default()));
        Ok(Self { client, node, features, options: Arc::new(options) })
    }

    /// Is it there, and ready for calls? Asks Probe and nothing else, so that a restart command can
    /// use it without telling the plugin more than an orchestrator would.
    pub async fn is_ready(options: &Options) -> bool {
        let Ok(client) = Client::new(&options.socket, options.timeout) else {
            return false;
        };
        let answer =
            client.unary(ProbeRequest::PATH, ProbeRequest::default().encode_to_vec()).await;
        let reply = answer.ok().and_then(|(bytes, _)| ProbeResponse::decode(bytes).ok());
        reply.is_some_and(|reply| reply.ready != Some(false))
    }

    pub fn features(&self) -> &PluginFeatures {
        &self.features
    }

    /// Where the node service answers.
    pub(crate) fn node_client(&self) -> &Client {
        &self.node
    }

    /// Node services may have a separate socket.
    pub(crate) fn client_of(&self, path: &str) -> &Client {
        let service = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        let is_node = service.ends_with(".Node") || service.ends_with(".ReclaimSpaceNode");
        if is_node { &self.node } else { &self.client }
    }
}
