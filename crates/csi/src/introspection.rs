//! gRPC's reflection and health services: generic tools such as grpcurl list, describe and make calls by them, without
//! the protocol's files.
//!
//! Only for sockets of this machine. Peers know each other's calls.

mod made_on_demand;

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{self, HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::{v1, v1alpha};
use tonic_reflection::server::Builder;
use tonic_reflection::server::{v1 as v1_server, v1alpha as v1alpha_server};

use crate::proto::FILE_DESCRIPTOR_SET;
use crate::self_check;
pub(crate) use made_on_demand::MadeOnDemand;

const HEALTH: &str = "grpc.health.v1.Health";
const REFLECTION: [&str; 2] =
    ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];

/// As long as Probe may wait for a pool, and a bit.
const HEALTH_CHECK_TIMEOUT: Duration = Duration::from_secs(10);
const WATCH_EVERY: Duration = Duration::from_secs(5);

/// Each asks over a connection to the daemon's own socket, where connections are limited.
const WATCHES: usize = 32;

/// Of both versions, for these services. Each decodes all descriptors, and most daemons are never asked: they need not at
/// each start.
pub(crate) fn reflection(
    services: &[&'static str],
) -> (
    MadeOnDemand<v1_server::ServerReflectionServer<impl v1_server::ServerReflection + use<>>>,
    MadeOnDemand<
        v1alpha_server::ServerReflectionServer<impl v1alpha_server::ServerReflection + use<>>,
    >,
) {
    let refusal = |error| Status::internal(format!("cannot make gRPC reflection: {error}"));
    let (services, same) = (services.to_vec(), services.to_vec());
    (
        MadeOnDemand::by(move || builder(&services).build_v1().map_err(refusal)),
        MadeOnDemand::by(move || builder(&same).build_v1alpha().map_err(refusal)),
    )
}

/// What is served beside: all that is listed has to be there.
fn builder<'a>(services: &[&str]) -> Builder<'a> {
    // Each version of the service would describe itself alone, and both are listed.
    let builder = Builder::configure()
        .include_reflection_service(false)
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(v1::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(v1alpha::FILE_DESCRIPTOR_SET);
    let all = services.iter().copied().chain([HEALTH]).chain(REFLECTION);
    all.fold(builder, |builder, name| builder.with_service_name(name))
}

/// As Probe answers, also for each of the services: none of them works without the others.
#[derive(Clone)]
pub(crate) struct PluginHealth {
    /// Asked as any caller asks, so that a router before the services is heard too.
    socket: PathBuf,
    services: Vec<String>,
    watches: Arc<Semaphore>,
}

impl PluginHealth {
    pub(crate) fn server(socket: &Path, services: &[&str]) -> HealthServer<Self> {
        let services = services.iter().map(|name| (*name).to_owned()).collect();
        let watches = Arc::new(Semaphore::new(WATCHES));
        HealthServer::new(Self { socket: socket.to_owned(), services, watches })
    }

    fn knows(&self, service: &str) -> bool {
        service.is_empty() || self.services.iter().any(|known| known == service)
    }

    async fn ask(&self) -> ServingStatus {
        match self_check::check_ready(&self.socket, HEALTH_CHECK_TIMEOUT).await {
            Ok(_) => ServingStatus::Serving,
            Err(_why) => ServingStatus::NotServing,
        }
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Health for PluginHealth {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        if !self.knows(&service) {
            return Err(Status::not_found("this service is not offered here"));
        }
        Ok(Response::new(answer(self.ask().await)))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    /// The first answer at once, and then each that differs from the one before.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let too_many = |_| {
            Status::resource_exhausted(format!(
                "cannot watch the health: {WATCHES} watches are open already; call Check instead, or \
                 try again later"
            ))
        };
        let permit = Arc::clone(&self.watches).try_acquire_owned().map_err(too_many)?;
        let (send, receive) = mpsc::channel(1);
        let (health, service) = (self.clone(), request.into_inner().service);
        tokio::spawn(async move {
            let _permit = permit;
            let mut last = None;
            loop {
                let status = match health.knows(&service) {
                    true => health.ask().await,
                    false => ServingStatus::ServiceUnknown,
                };
                if last != Some(status) && send.send(Ok(answer(status))).await.is_err() {
                    return;
                }
                last = Some(status);
                tokio::select! {
                    () = send.closed() => return,
                    () = tokio::time::sleep(WATCH_EVERY) => {}
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receive))))
    }
}
