//! Calls below the level of messages: by the path of a method, and how they end on the wire.

use prost::Message;
use prost::bytes::Bytes;
use tonic::Code;

use super::{Answer, CheckContext, code_name, code_of};
use crate::call_log::render_status;
use crate::check::Outcome;
use crate::client::Ending;
use crate::wire::{Rpc, methods_of};

impl CheckContext {
    /// Paths of all methods of the csi.v1 services that the plugin says it has.
    pub fn methods(&self) -> Vec<String> {
        use crate::wire::csi::v1::plugin_capability::service::Type;
        let features = self.features();
        let services = [
            ("csi.v1.Identity", true),
            ("csi.v1.Controller", features.controller.is_some()),
            ("csi.v1.Node", features.node.is_some()),
            ("csi.v1.GroupController", features.has_plugin(Type::GroupControllerService)),
            ("csi.v1.SnapshotMetadata", features.has_plugin(Type::SnapshotMetadataService)),
        ];
        let offered = services.into_iter().filter(|(_, is_offered)| *is_offered);
        offered.flat_map(|(service, _)| methods_of(service)).collect()
    }

    /// The code with which a method that need not exist answers an empty message.
    pub async fn code_at(&self, path: &str) -> Code {
        let answer = self.plugin.client_of(path).unary(path, Vec::new()).await;
        self.note(path, "{}".to_owned(), answer_text(&answer));
        code_of(&answer)
    }

    /// Is there such a method, whatever it says?
    pub async fn is_served(&self, path: &str) -> bool {
        self.code_at(path).await != Code::Unimplemented
    }

    pub async fn expect_code_at(&self, path: &str, code: Code) -> Outcome {
        let answered = self.code_at(path).await;
        self.expect(answered == code, code_name(code))
    }

    /// How a call with an empty message ends on the wire.
    pub async fn ending(&self, path: &str) -> Outcome<Ending> {
        let ending = self.plugin.client_of(path).ending(path).await;
        self.note(path, "{}".to_owned(), format!("{ending:?}"));
        ending.map_err(|_| self.failed("a call that comes to an end"))
    }

    /// The same call at the endpoint of the node service.
    pub async fn ask_at_node<R: Rpc>(&self, request: R) -> Outcome<Answer<R::Reply>> {
        let answer = self.plugin.node_client().unary(R::PATH, request.encode_to_vec()).await;
        self.note(R::PATH, "{} (at the node's endpoint)".to_owned(), answer_text(&answer));
        match answer {
            Ok((bytes, _)) => match R::Reply::decode(bytes) {
                Ok(reply) => Ok(Ok(reply)),
                Err(_) => Err(self.failed(R::REPLY)),
            },
            Err(status) => Ok(Err(status)),
        }
    }
}

fn answer_text<T>(answer: &Answer<(Bytes, T)>) -> String {
    match answer {
        Ok((bytes, _)) => format!("OK, {} bytes", bytes.len()),
        Err(status) => render_status(status),
    }
}
