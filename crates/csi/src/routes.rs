//! Which service answers which path.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tower::Service;
use tower::util::BoxCloneSyncService;

use crate::cluster_memory::ClusterMemory;
use crate::executor::Executor;
use crate::features::Features;
use crate::introspection::{self, PluginHealth};
use crate::name_holds::{NameHolds, with_hold};
use crate::proto::csi::v0;
use crate::proto::csi::v1::controller_server::ControllerServer;
use crate::proto::csi::v1::group_controller_server::GroupControllerServer;
use crate::proto::csi::v1::identity_server::IdentityServer;
use crate::proto::csi::v1::node_server::NodeServer;
use crate::proto::csi::v1::snapshot_metadata_server::SnapshotMetadataServer;
use crate::proto::encryptionkeyrotation::encryption_key_rotation_controller_server::EncryptionKeyRotationControllerServer;
use crate::proto::monitor::monitor_server::MonitorServer;
use crate::proto::peer::peer_server::PeerServer;
use crate::proto::pluginregistration::registration_server::RegistrationServer;
use crate::proto::reclaimspace::reclaim_space_controller_server::ReclaimSpaceControllerServer;
use crate::proto::reclaimspace::reclaim_space_node_server::ReclaimSpaceNodeServer;
use crate::proto::{identity, volumegroup};
use crate::services::{
    AddonsIdentity, Controller, GroupController, Identity, KeyRotation, KubeletCall, Monitor, Node,
    Peer, ReclaimSpace, RegisteredPlugin, Registration, SnapshotMetadata, V0Controller, V0Identity,
    V0Node, VolumeGroups,
};

/// What comes of a call.
pub type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

type Served = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// The services that one socket has, by the name that paths begin with.
#[derive(Clone, Default)]
pub struct Routes {
    services: BTreeMap<&'static str, Served>,
    /// For calls that run under a name that their router holds.
    holds: NameHolds,
}

impl Routes {
    /// Everything that this instance's mode serves.
    pub fn csi(executor: &Arc<Executor>, features: &Arc<Features>) -> Self {
        let mut routes = Self::addons(executor, features);
        let (mode, group_snapshots) = (features.mode, features.group_snapshots);
        let (executor, features) = (|| Arc::clone(executor), || Arc::clone(features));
        routes
            .add(v0::identity_server::IdentityServer::new(V0Identity::new(executor(), features())));
        routes.add(MonitorServer::new(Monitor::new(executor(), features())));
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
    pub fn addons(executor: &Arc<Executor>, features: &Arc<Features>) -> Self {
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
            routes.add(EncryptionKeyRotationControllerServer::new(KeyRotation::new(executor())));
        }
        routes
    }

    /// What kubelet asks on the socket in its directory for plugins; `heard` gets what it said.
    pub fn registration(plugin: RegisteredPlugin, heard: watch::Sender<KubeletCall>) -> Self {
        let mut routes = Self::default();
        routes.add(RegistrationServer::new(Registration::new(plugin, heard)));
        routes
    }

    /// With gRPC's reflection of all that is here, and health; `socket` is where both are served.
    #[must_use]
    pub fn with_introspection(mut self, socket: &Path) -> Self {
        let services: Vec<&str> = self.services.keys().copied().collect();
        let (v1, v1alpha) = introspection::reflection(&services);
        let health = PluginHealth::server(socket, &services);
        self.add(v1);
        self.add(v1alpha);
        self.add(health);
        self
    }

    /// Is there a service of this path here?
    pub fn serves(&self, path: &str) -> bool {
        self.services.contains_key(service_name(path))
    }

    /// With what routers ask, among them the one of this daemon.
    #[must_use]
    pub fn with_peer(
        mut self,
        executor: &Arc<Executor>,
        features: &Arc<Features>,
        memory: &ClusterMemory,
    ) -> Self {
        let holds = self.holds.clone();
        let peer = Peer::new(Arc::clone(executor), Arc::clone(features), holds, memory.clone());
        self.add(PeerServer::new(peer));
        self
    }

    /// What other daemons may call: all that a controller does, and nothing of a node or for people and tools.
    #[must_use]
    pub fn for_peers(&self) -> Self {
        let is_of_node = |name: &str| {
            name.ends_with(".Node")
                || name == "reclaimspace.ReclaimSpaceNode"
                || name.starts_with("encryptionkeyrotation.")
        };
        let is_for_tools =
            |name: &str| name.starts_with("grpc.") || name.starts_with("orlop.monitor.");
        let is_for_peers = |name: &str| !is_of_node(name) && !is_for_tools(name);
        let services = self.services.iter().filter(|(name, _)| is_for_peers(name));
        let services = services.map(|(name, service)| (*name, service.clone())).collect();
        Self { services, holds: self.holds.clone() }
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
        let Some(service) = self.services.get_mut(service_name(request.uri().path())) else {
            return Box::pin(std::future::ready(Ok(not_served())));
        };
        match self.holds.take(request.headers()) {
            Ok(None) => service.call(request),
            Ok(hold) => Box::pin(with_hold(hold, service.call(request))),
            Err(gone) => Box::pin(std::future::ready(Ok(gone.into_http()))),
        }
    }
}

/// `/package.Service/Method`
fn service_name(path: &str) -> &str {
    let mut parts = path.trim_start_matches('/').split('/');
    parts.next().unwrap_or_default()
}

fn not_served() -> Response<Body> {
    Status::unimplemented("this service is not offered here; ORLOP_MODE decides which ones are")
        .into_http()
}
