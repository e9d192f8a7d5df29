//! gRPC's reflection and health, as generic tools use them.

use orlop_csi::Mode;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use crate::plugin::{Plugin, Setup, code};

async fn asked(plugin: &Plugin, question: MessageRequest) -> MessageResponse {
    let request = ServerReflectionRequest { message_request: Some(question), ..Default::default() };
    let mut client = ServerReflectionClient::new(plugin.channel());
    let answer = client.server_reflection_info(tokio_stream::once(request)).await.unwrap();
    let answer = answer.into_inner().message().await.unwrap();
    answer.and_then(|answer: ServerReflectionResponse| answer.message_response).unwrap()
}

async fn listed(plugin: &Plugin) -> Vec<String> {
    let answer = asked(plugin, MessageRequest::ListServices(String::new())).await;
    let MessageResponse::ListServicesResponse(list) = answer else { panic!("{answer:?}") };
    list.service.into_iter().map(|service| service.name).collect()
}

async fn health(plugin: &Plugin, service: &str) -> Result<ServingStatus, tonic::Status> {
    let request = HealthCheckRequest { service: service.to_owned() };
    let answer = HealthClient::new(plugin.channel()).check(request).await?;
    Ok(answer.into_inner().status())
}

#[tokio::test]
async fn services_of_the_mode_are_listed_and_described() {
    for (mode, controller, node) in
        [(Mode::All, true, true), (Mode::Controller, true, false), (Mode::Node, false, true)]
    {
        let setup = Setup { mode, introspection: true, ..Setup::default() };
        let plugin = Plugin::with(setup).await;
        let names = listed(&plugin).await;
        let has = |name: &str| names.iter().any(|listed| listed == name);
        assert!(has("csi.v1.Identity") && has("grpc.health.v1.Health"), "{names:?}");
        assert_eq!(has("csi.v1.Controller"), controller, "{names:?}");
        assert_eq!(has("csi.v1.Node"), node, "{names:?}");
        assert!(!has("orlop.peer.v1.Peer") && !has("pluginregistration.Registration"), "{names:?}");
        for name in names {
            let described =
                asked(&plugin, MessageRequest::FileContainingSymbol(name.clone())).await;
            let MessageResponse::FileDescriptorResponse(files) = described else {
                panic!("{name}: {described:?}")
            };
            assert!(!files.file_descriptor_proto.is_empty(), "{name}");
        }
    }
}

#[tokio::test]
async fn health_is_as_probe_says() {
    let plugin = Plugin::with(Setup { introspection: true, ..Setup::default() }).await;
    for service in ["", "csi.v1.Identity", "csi.v1.Node"] {
        assert_eq!(health(&plugin, service).await.unwrap(), ServingStatus::Serving, "{service}");
    }
    assert_eq!(code(health(&plugin, "csi.v1.Nothing").await), Code::NotFound);
    let starting = Setup { introspection: true, ready: false, ..Setup::default() };
    let plugin = Plugin::with(starting).await;
    assert_eq!(health(&plugin, "").await.unwrap(), ServingStatus::NotServing);
}

#[tokio::test]
async fn watch_answers_at_once_and_does_not_keep_a_stop_waiting() {
    let mut plugin = Plugin::with(Setup { introspection: true, ..Setup::default() }).await;
    let mut client = HealthClient::new(plugin.connect().await);
    let watched = client.watch(HealthCheckRequest::default()).await.unwrap();
    let mut watched = watched.into_inner();
    let first = watched.message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);
    let unknown = HealthCheckRequest { service: "csi.v1.Nothing".to_owned() };
    let mut other = client.watch(unknown).await.unwrap().into_inner();
    let first = other.message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::ServiceUnknown);
    plugin.stop();
    (&mut plugin.serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn watches_beyond_the_limit_are_refused() {
    let plugin = Plugin::with(Setup { introspection: true, ..Setup::default() }).await;
    let mut client = HealthClient::new(plugin.connect().await);
    let mut watches = Vec::new();
    let refusal = loop {
        match client.watch(HealthCheckRequest::default()).await {
            Ok(watch) => watches.push(watch),
            Err(refusal) => break refusal,
        }
        assert!(watches.len() <= 32, "{} watches", watches.len());
    };
    assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal}");
    assert_eq!(health(&plugin, "").await.unwrap(), ServingStatus::Serving);
}

#[tokio::test]
async fn neither_is_offered_where_it_is_turned_off() {
    let plugin = Plugin::start().await;
    assert_eq!(code(health(&plugin, "").await), Code::Unimplemented);
    let request = ServerReflectionRequest::default();
    let mut client = ServerReflectionClient::new(plugin.channel());
    let refused = client.server_reflection_info(tokio_stream::once(request)).await;
    assert_eq!(code(refused), Code::Unimplemented);
}
