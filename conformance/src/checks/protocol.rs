//! Protocol and security (PR).

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::wire::csi::v1::plugin_capability::service::Type as PluginService;

pub(super) const SECTION: Section = Section {
    title: "Protocol",
    service: Service::Protocol,
    needs: &[],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "grpc-is-spoken",
        "probes and reads HTTP status, content type and gRPC status off the wire",
        &["PR-01", "PR-02"],
        run!(grpc_is_spoken),
    ),
    check(
        "both-plugins-are-there",
        "asks the node what it can do, and the controller if there is one",
        &["PR-03"],
        run!(both_plugins_are_there),
    ),
    check(
        "one-address-for-all-services",
        "calls a method of each service that the plugin reports, at its one address",
        &["PR-08"],
        run!(one_address_for_all),
    ),
];

const UNSEEN: &[(&str, &str)] = &[
    ("PR-06", "Which address a process was started with cannot be seen at its socket."),
    ("PR-07", "It shows when the plugin is started with another kind of address."),
    ("PR-09", "Whether a controller runs elsewhere, and how it is reached, is deployment."),
    ("PR-10", "What lies behind the socket, and how it is secured, cannot be seen at the socket."),
];

async fn grpc_is_spoken(t: &CheckContext) -> Outcome {
    let ending = t.ending("/csi.v1.Identity/Probe").await?;
    t.expect(ending.http_status == 200, "HTTP status 200")?;
    let is_grpc = ending.content_type.starts_with("application/grpc");
    t.expect(is_grpc, "the content type application/grpc")?;
    let answered = ending.grpc_status.is_some_and(|code| code != "12");
    t.expect(answered, "the service csi.v1.Identity to be there")
}

async fn both_plugins_are_there(t: &CheckContext) -> Outcome {
    t.expect_code_at("/csi.v1.Node/NodeGetCapabilities", Code::Ok).await?;
    if t.features().has_plugin(PluginService::ControllerService) {
        t.expect_code_at("/csi.v1.Controller/ControllerGetCapabilities", Code::Ok).await?;
    }
    Ok(())
}

async fn one_address_for_all(t: &CheckContext) -> Outcome {
    if t.options().node_socket.is_some() {
        return t.not_applicable("two instances serve the plugin (--node-endpoint)");
    }
    let has = |service| t.features().has_plugin(service);
    let methods = [
        ("/csi.v1.Identity/Probe", true),
        ("/csi.v1.Node/NodeGetCapabilities", true),
        ("/csi.v1.Controller/ControllerGetCapabilities", has(PluginService::ControllerService)),
        (
            "/csi.v1.GroupController/GroupControllerGetCapabilities",
            has(PluginService::GroupControllerService),
        ),
        (
            "/csi.v1.SnapshotMetadata/GetMetadataAllocated",
            has(PluginService::SnapshotMetadataService),
        ),
    ];
    for (method, _) in methods.into_iter().filter(|(_, is_reported)| *is_reported) {
        let code = t.code_at(method).await;
        t.expect(code != Code::Unimplemented, "a service that is there, as it is reported")?;
    }
    Ok(())
}
