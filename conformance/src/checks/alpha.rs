//! Alpha surfaces (AL): optional, but a plugin that offers them has to keep their rules.

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type as Rpc;
use crate::wire::csi::v1::node_service_capability::rpc::Type as NodeRpc;
use crate::wire::csi::v1::plugin_capability::service::Type::SnapshotMetadataService;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::{
    ControllerGetVolumeRequest, GetCapacityRequest, GetMetadataAllocatedRequest,
    GetSnapshotRequest, NodeExpandVolumeRequest, NodeGetVolumeStatsRequest,
    ValidateVolumeCapabilitiesRequest, Volume, VolumeCondition,
};

pub(super) const SECTION: Section = Section {
    title: "Alpha surfaces",
    service: Service::Protocol,
    needs: &[Need::Controller(Rpc::CreateDeleteVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "alpha-calls-that-are-left-out",
        "calls the alpha methods whose capability is not advertised",
        &["AL-02"],
        run!(left_out),
    ),
    check("alpha-get-volume", "gets a volume", &["AL-03"], run!(get_volume))
        .needs(&[Need::Controller(Rpc::GetVolume)]),
    check(
        "alpha-volume-condition",
        "gets and lists a volume and reads its condition",
        &["AL-04"],
        run!(volume_condition),
    )
    .needs(&[Need::Controller(Rpc::VolumeCondition), Need::Controller(Rpc::GetVolume)]),
    check("alpha-modes", "creates and validates volumes in modes 6 and 7", &["AL-05"], run!(modes))
        .needs(&[Need::Controller(Rpc::SingleNodeMultiWriter)]),
    check("alpha-get-snapshot", "gets a snapshot", &["AL-06"], run!(get_snapshot))
        .needs(&[Need::Controller(Rpc::GetSnapshot), Need::Controller(Rpc::CreateDeleteSnapshot)]),
    check(
        "alpha-snapshot-metadata",
        "streams the allocated blocks of a snapshot",
        &["AL-07"],
        run!(snapshot_metadata),
    )
    .needs(&[Need::Plugin(SnapshotMetadataService), Need::Controller(Rpc::CreateDeleteSnapshot)]),
    check(
        "alpha-minimum-volume-size",
        "creates a volume of the smallest size that GetCapacity names",
        &["AL-08"],
        run!(minimum_volume_size),
    )
    .needs(&[Need::Controller(Rpc::GetCapacity)]),
    check(
        "alpha-secrets-of-node-expansion",
        "expands a published volume with secrets",
        &["AL-09"],
        run!(secrets_of_node_expansion),
    )
    .needs(&[Need::Node(NodeRpc::ExpandVolume)]),
    check(
        "conditions-are-told",
        "reads the condition of a healthy volume from the controller and from the node",
        &["AL-11"],
        run!(conditions_are_reported),
    ),
    check(
        "conditions-are-meaningful",
        "reads the condition of a volume whose storage is away",
        &["AL-11"],
        run!(conditions_are_meaningful),
    )
    .needs(&[
        Need::Controller(Rpc::VolumeCondition),
        Need::Controller(Rpc::GetVolume),
        Need::Faults,
    ])
    .alone(),
];

const UNSEEN: &[(&str, &str)] = &[
    ("AL-01", "A permission: to offer alpha surfaces or not, either is right."),
    (
        "AL-10",
        "It takes a fault that only the node can see, such as a filesystem that turned \
         read-only; no call and no command that suits every plugin causes one.",
    ),
];

async fn left_out(t: &CheckContext) -> Outcome {
    let features = t.features();
    let metadata = features.has_plugin(SnapshotMetadataService);
    let alpha = [
        ("/csi.v1.Controller/ControllerGetVolume", features.has_controller(Rpc::GetVolume)),
        ("/csi.v1.Controller/GetSnapshot", features.has_controller(Rpc::GetSnapshot)),
        ("/csi.v1.SnapshotMetadata/GetMetadataAllocated", metadata),
        ("/csi.v1.SnapshotMetadata/GetMetadataDelta", metadata),
    ];
    if alpha.iter().all(|(_, is_offered)| *is_offered) {
        return t.not_applicable("all alpha calls are offered");
    }
    for (path, _) in alpha.into_iter().filter(|(_, is_offered)| !is_offered) {
        t.expect_code_at(path, Code::Unimplemented).await?;
    }
    Ok(())
}

async fn get_volume(t: &CheckContext) -> Outcome {
    let volume_id = t.volume().await?.volume_id;
    let reply = t.ok(ControllerGetVolumeRequest { volume_id: volume_id.clone() }).await?;
    let same = reply.volume.is_some_and(|volume| volume.volume_id == volume_id);
    t.expect(same, "the volume that was asked for")
}

/// As the controller sees it.
async fn condition_of(t: &CheckContext, volume: &Volume) -> Outcome<Option<VolumeCondition>> {
    let request = ControllerGetVolumeRequest { volume_id: volume.volume_id.clone() };
    Ok(t.ok(request).await?.status.and_then(|status| status.volume_condition))
}

async fn volume_condition(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let condition = condition_of(t, &volume).await?;
    t.expect(condition.is_some(), "a volume_condition, as VOLUME_CONDITION is advertised")?;
    if let Some(entry) = t.listed_as(&volume).await? {
        let condition = entry.status.and_then(|status| status.volume_condition);
        t.expect(condition.is_some(), "a volume_condition in the list as well")?;
    }
    Ok(())
}

async fn modes(t: &CheckContext) -> Outcome {
    for mode in [Mode::SingleNodeSingleWriter, Mode::SingleNodeMultiWriter] {
        let capability = crate::capability::in_mode(&t.capability(), mode);
        let volume = t.volume_for(capability.clone()).await?;
        let request = ValidateVolumeCapabilitiesRequest {
            volume_capabilities: vec![capability],
            ..t.validate(&volume)
        };
        let reply = t.ok(request).await?;
        t.expect(reply.confirmed.is_some(), "the mode to be confirmed, as it is advertised")?;
    }
    Ok(())
}

async fn get_snapshot(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let snapshot_id = t.snapshot(&volume).await?.snapshot_id;
    let request = GetSnapshotRequest { snapshot_id: snapshot_id.clone(), secrets: t.secrets() };
    let found = t.ok(request).await?.snapshot;
    t.expect(found.is_some_and(|it| it.snapshot_id == snapshot_id), "the snapshot asked for")
}

async fn snapshot_metadata(t: &CheckContext) -> Outcome {
    let volume = t.volume_for(t.quick_capability()).await?;
    let snapshot_id = t.snapshot(&volume).await?.snapshot_id;
    let request =
        GetMetadataAllocatedRequest { snapshot_id, secrets: t.secrets(), ..Default::default() };
    let (_, end) = t.stream(request).await?;
    t.expect(end.is_ok(), "a stream that ends with OK")
}

async fn minimum_volume_size(t: &CheckContext) -> Outcome {
    let request = GetCapacityRequest {
        volume_capabilities: vec![t.quick_capability()],
        parameters: t.options().parameters.clone(),
        accessible_topology: None,
    };
    let Some(least) = t.ok(request).await?.minimum_volume_size else {
        return t.not_applicable("GetCapacity names no minimum_volume_size");
    };
    t.expect(least >= 0, "a minimum_volume_size that is not negative")?;
    if least == 0 {
        return t.not_applicable("GetCapacity says 0, which is no size of a volume");
    }
    let mut request = t.new_volume_for(t.quick_capability());
    request.capacity_range = t.range(least, 0);
    t.create(request).await?;
    Ok(())
}

async fn secrets_of_node_expansion(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability.clone()).await?;
    let mut secrets = t.secrets();
    secrets.insert("conformance".to_owned(), "value".to_owned());
    let request = NodeExpandVolumeRequest {
        volume_id: volume.volume_id.clone(),
        volume_path: placed.target.clone(),
        staging_target_path: placed.staging.clone(),
        volume_capability: Some(capability),
        capacity_range: None,
        secrets,
    };
    t.ok(request).await?;
    t.withdrawn(&placed).await
}

fn is_healthy(t: &CheckContext, condition: &VolumeCondition) -> Outcome {
    t.expect(!condition.message.is_empty(), "a message, also of a healthy volume")?;
    t.expect(!condition.abnormal, "abnormal=false of a healthy volume")
}

async fn conditions_are_reported(t: &CheckContext) -> Outcome {
    let features = t.features();
    let by_controller = features.has_controller(Rpc::VolumeCondition);
    let by_node = features.has_node(NodeRpc::VolumeCondition);
    if !by_controller && !by_node {
        return t.not_applicable("VOLUME_CONDITION is not offered");
    }
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    if by_controller && features.has_controller(Rpc::GetVolume) {
        let condition = condition_of(t, &volume).await?;
        is_healthy(t, &t.some(condition, "a volume_condition")?)?;
    }
    if by_node {
        let placed = t.placed(&volume, capability).await?;
        let request = NodeGetVolumeStatsRequest {
            volume_id: volume.volume_id.clone(),
            volume_path: placed.target.clone(),
            ..Default::default()
        };
        let condition = t.ok(request).await?.volume_condition;
        is_healthy(t, &t.some(condition, "a volume_condition")?)?;
        t.withdrawn(&placed).await?;
    }
    Ok(())
}

async fn conditions_are_meaningful(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let request = ControllerGetVolumeRequest { volume_id: volume.volume_id.clone() };
    let answer = t.during_outage(t.ask(request)).await?;
    let Ok(reply) = answer else { return Ok(()) };
    let condition = reply.status.and_then(|status| status.volume_condition);
    let condition = t.some(condition, "a volume_condition")?;
    t.expect(condition.abnormal, "an error, or abnormal=true while the storage is away")?;
    t.expect(!condition.message.is_empty(), "a message that says what is wrong")
}
