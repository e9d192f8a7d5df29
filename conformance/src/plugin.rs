//! The plugin under test: how to reach it, and what it says of itself.

use std::sync::Arc;

use crate::client::Client;
use crate::offers::Offers;
use crate::options::Options;

#[derive(Clone)]
pub struct Plugin {
    client: Client,
    node: Client,
    pub(crate) offers: Arc<Offers>,
    pub(crate) options: Arc<Options>,
}

impl Plugin {
    pub async fn connect(options: Options) -> Result<Self, String> {
        let client = Client::new(&options.socket, options.timeout)?;
        let node_socket = options.node_socket.as_ref().unwrap_or(&options.socket);
        let node = Client::new(node_socket, options.timeout)?;
        let offers = Offers::of(&client, &node).await?;
        Ok(Self { client, node, offers: Arc::new(offers), options: Arc::new(options) })
    }

    pub fn offers(&self) -> &Offers {
        &self.offers
    }

    /// Where the node service answers.
    pub(crate) fn node_client(&self) -> &Client {
        &self.node
    }

    /// Node services may have a socket of their own.
    pub(crate) fn client_of(&self, path: &str) -> &Client {
        let service = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        let is_node = service.ends_with(".Node") || service.ends_with(".ReclaimSpaceNode");
        if is_node { &self.node } else { &self.client }
    }
}
