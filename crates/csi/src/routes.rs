//! Which service answers which path.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tower::Service;

use crate::dispatch::Core;
use crate::offers::Offers;
use crate::proto::csi::v1::controller_server::ControllerServer;
use crate::proto::csi::v1::identity_server::IdentityServer;
use crate::proto::csi::v1::node_server::NodeServer;
use crate::services::{Controller, Identity, Node};

pub(crate) type Answering =
    Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// The services that this instance registers.
#[derive(Clone)]
pub(crate) struct Routes {
    identity: IdentityServer<Identity>,
    controller: Option<ControllerServer<Controller>>,
    node: Option<NodeServer<Node>>,
}

impl Routes {
    pub(crate) fn new(core: &Arc<Core>, offers: &Arc<Offers>) -> Self {
        let parts = || (Arc::clone(core), Arc::clone(offers));
        let controller = |(core, offers)| ControllerServer::new(Controller::new(core, offers));
        let node = |(core, offers)| NodeServer::new(Node::new(core, offers));
        let (core, offers) = parts();
        Self {
            identity: IdentityServer::new(Identity::new(core, offers.clone())),
            controller: offers.mode.serves_controller().then(|| controller(parts())),
            node: offers.mode.serves_node().then(|| node(parts())),
        }
    }
}

impl Service<Request<Body>> for Routes {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        match (service_name(request.uri().path()), &mut self.controller, &mut self.node) {
            (IdentityServer::<Identity>::NAME, _, _) => self.identity.call(request),
            (ControllerServer::<Controller>::NAME, Some(controller), _) => controller.call(request),
            (NodeServer::<Node>::NAME, _, Some(node)) => node.call(request),
            _ => Box::pin(std::future::ready(Ok(not_served()))),
        }
    }
}

/// `/package.Service/Method`
fn service_name(path: &str) -> &str {
    let mut parts = path.trim_start_matches('/').split('/');
    parts.next().unwrap_or_default()
}

fn not_served() -> Response<Body> {
    Status::unimplemented("no such service here; this instance's mode says which ones it has")
        .into_http()
}
