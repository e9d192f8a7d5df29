//! Which service answers which path.

use std::collections::BTreeMap;
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
use tower::util::BoxCloneSyncService;

use crate::executor::Executor;
use crate::features::Features;
use crate::proto::csi::v0;
use crate::proto::csi::v1::controller_server::ControllerServer;
use crate::proto::csi::v1::group_controller_server::GroupControllerServer;
use crate::proto::csi::v1::identity_server::IdentityServer;
use crate::proto::csi::v1::node_server::NodeServer;
use crate::proto::csi::v1::snapshot_metadata_server::SnapshotMetadataServer;
use crate::proto::reclaimspace::reclaim_space_controller_server::ReclaimSpaceControllerServer;
use crate::proto::reclaimspace::reclaim_space_node_server::ReclaimSpaceNodeServer;
use crate::proto::{identity, volumegroup};
use crate::services::{
    AddonsIdentity, Controller, GroupController, Identity, Node, ReclaimSpace, SnapshotMetadata,
    V0Controller, V0Identity, V0Node, VolumeGroups,
};

pub(crate) type Answering =
    Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

type Served = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// The services that one socket has, by the name that paths begin with.
#[derive(Clone, Default)]
pub(crate) struct Routes {
    services: BTreeMap<&'static str, Served>,
}

impl Routes {
    /// Everything that this instance's mode serves.
    pub(crate) fn csi(executor: &Arc<Executor>, features: &Arc<Features>) -> Self {
        let mut routes = Self::addons(executor, features);
        let (mode, group_snapshots) = (features.mode, features.group_snapshots);
        let (executor, features) = (|| Arc::clone(executor), || Arc::clone(features));
        routes
            .add(v0::identity_server::IdentityServer::new(V0Identity::new(executor(), features())));
        if mode.serves_controller() {
            routes.add(ControllerServer::new(Controller::new(executor(), features())));
            if group_snapshots {
                routes.add(GroupControllerServer::new(GroupController::new(executor())));
            }
            routes.add(SnapshotMetadataServer::new(SnapshotMetadata::new(executor())));
            routes.add(v0::controller_server::ControllerServer::new(V0Controller::new(
                executor(),
                features(),
            )));
        }
        if mode.serves_node() {
            routes.add(NodeServer::new(Node::new(executor(), features())));
            routes.add(v0::node_server::NodeServer::new(V0Node::new(executor(), features())));
        }
        routes
    }

    /// What a CSI-Addons sidecar asks for, and who this is.
    pub(crate) fn addons(executor: &Arc<Executor>, features: &Arc<Features>) -> Self {
        let mut routes = Self::default();
        let mode = features.mode;
        let (executor, features) = (|| Arc::clone(executor), || Arc::clone(features));
        routes.add(IdentityServer::new(Identity::new(executor(), features())));
        routes.add(identity::identity_server::IdentityServer::new(AddonsIdentity::new(
            executor(),
            features(),
        )));
        if mode.serves_controller() {
            let groups = VolumeGroups::new(executor());
            routes.add(volumegroup::controller_server::ControllerServer::new(groups));
            routes.add(ReclaimSpaceControllerServer::new(ReclaimSpace::new(executor())));
        }
        if mode.serves_node() {
            routes.add(ReclaimSpaceNodeServer::new(ReclaimSpace::new(executor())));
        }
        routes
    }

    fn add<S>(&mut self, service: S)
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
        S: NamedService + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        self.services.insert(S::NAME, Served::new(service));
    }
}

impl Service<Request<Body>> for Routes {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Generated services are always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        match self.services.get_mut(service_name(request.uri().path())) {
            Some(service) => service.call(request),
            None => Box::pin(std::future::ready(Ok(not_served()))),
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
