//! NodeStageVolume (NS).

use std::path::PathBuf;

use tonic::Code;

use crate::capability::{block, in_no_mode};
use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{CheckContext, Placed};
use crate::need::Need;
use crate::options::Pairs;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteVolume, PublishReadonly,
};
use crate::wire::csi::v1::node_service_capability::rpc::Type::StageUnstageVolume;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::{
    ControllerPublishVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnstageVolumeRequest,
};

pub(super) const SECTION: Section = Section {
    title: "NodeStageVolume",
    service: Service::Node,
    needs: &[Need::Node(StageUnstageVolume), Need::Controller(CreateDeleteVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "stage-twice",
        "stages a volume, then again with the same arguments, and counts the mounts",
        &["NS-01", "NS-03"],
        run!(twice),
    ),
    check(
        "stage-in-a-ready-directory",
        "stages in a directory that it made, and uses the volume on this machine",
        &["NS-02", "NS-08"],
        run!(in_a_ready_directory),
    )
    .needs(&[Need::LocalFiles]),
    check("stage-without-volume-id", "leaves out volume_id", &["NS-04"], run!(without_volume_id)),
    check("stage-without-path", "leaves out staging_target_path", &["NS-05"], run!(without_path)),
    check(
        "stage-without-capability",
        "leaves out volume_capability",
        &["NS-06"],
        run!(without_capability),
    ),
    check("stage-at-relative-path", "gives a relative path", &["NS-07"], run!(at_relative_path)),
    check(
        "stage-at-long-path",
        "stages and unstages at a path of 128 bytes",
        &["NS-09", "NU-08"],
        run!(at_long_path),
    ),
    check(
        "stage-for-what-nobody-can",
        "asks for an access mode that does not exist",
        &["NS-10"],
        run!(unsupported_capability),
    ),
    check(
        "stage-unknown-volume",
        "stages a volume that never was, and one that was deleted",
        &["NS-11"],
        run!(unknown_volume),
    ),
    check(
        "stage-again-for-another-access-type",
        "stages a volume that is staged as a mount as a device, at the same path",
        &["NS-12"],
        run!(again_for_another_access_type),
    )
    .needs(&[Need::BlockAccess, Need::MountAccess]),
    check(
        "stage-beyond-the-volume",
        "asks for a use that ValidateVolumeCapabilities does not confirm",
        &["NS-13"],
        run!(beyond_the_volume),
    ),
    check(
        "stage-with-another-volume-context",
        "changes a value in volume_context",
        &["NS-14"],
        run!(with_another_volume_context),
    ),
    check(
        "stage-with-publish-context",
        "hands on what ControllerPublishVolume returned, for writing and for reading only",
        &["NS-15"],
        run!(with_publish_context),
    ),
    check(
        "stage-keeps-data",
        "writes to a volume, takes it away, stages it elsewhere and compares",
        &["NS-16"],
        run!(keeps_data),
    )
    .needs(&[Need::MountAccess, Need::LocalFiles]),
    check(
        "stage-without-directory",
        "stages at a path whose directory is not there and, if that is OK, publishes from it",
        &["NS-18"],
        run!(without_directory),
    )
    .needs(&[Need::LocalFiles]),
    check(
        "stage-once-publish-twice",
        "stages once, publishes at two targets, takes both back and unstages once",
        &["NS-19"],
        run!(once_publish_twice),
    ),
];

const UNSEEN: &[(&str, &str)] = &[];

/// A request that nothing is wrong with, for a new volume that is not attached.
async fn request(t: &CheckContext) -> Outcome<NodeStageVolumeRequest> {
    let capability = t.capability();
    let volume = t.volume_for(capability.clone()).await?;
    let publish_context = t.attached(&volume, &capability).await?;
    t.stage(&volume, &capability, &publish_context)
}

async fn twice(t: &CheckContext) -> Outcome {
    let request = request(t).await?;
    let path = PathBuf::from(&request.staging_target_path);
    t.ok(request.clone()).await?;
    let mounts = t.mounts_below(&path)?;
    t.ok(request).await?;
    t.expect(t.mounts_below(&path)? == mounts, "no further mount at the staging path")
}

async fn in_a_ready_directory(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let placed = t.placed(&volume, t.capability()).await?;
    let content = t.fill(&placed)?;
    t.holds(&placed, &content)?;
    t.expect(placed.staging_path().is_dir(), "the staging directory to be there")
}

async fn without_volume_id(t: &CheckContext) -> Outcome {
    let request = NodeStageVolumeRequest { volume_id: String::new(), ..request(t).await? };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn without_path(t: &CheckContext) -> Outcome {
    let staging_target_path = String::new();
    let request = NodeStageVolumeRequest { staging_target_path, ..request(t).await? };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn without_capability(t: &CheckContext) -> Outcome {
    let request = NodeStageVolumeRequest { volume_capability: None, ..request(t).await? };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn at_relative_path(t: &CheckContext) -> Outcome {
    let staging_target_path = "conformance/relative/path".to_owned();
    let request = NodeStageVolumeRequest { staging_target_path, ..request(t).await? };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn at_long_path(t: &CheckContext) -> Outcome {
    let staging_target_path = t.long_staging_path()?;
    let request = NodeStageVolumeRequest { staging_target_path, ..request(t).await? };
    let unstage = NodeUnstageVolumeRequest {
        volume_id: request.volume_id.clone(),
        staging_target_path: request.staging_target_path.clone(),
    };
    t.ok(request).await?;
    t.ok(unstage).await?;
    Ok(())
}

async fn unsupported_capability(t: &CheckContext) -> Outcome {
    let mut request = request(t).await?;
    request.volume_capability = request.volume_capability.as_ref().map(in_no_mode);
    t.refused_with(request, &[Code::FailedPrecondition, Code::InvalidArgument]).await?;
    Ok(())
}

async fn unknown_volume(t: &CheckContext) -> Outcome {
    let request = NodeStageVolumeRequest {
        volume_id: t.unknown_id(),
        staging_target_path: t.staging_path()?,
        volume_capability: Some(t.capability()),
        secrets: t.secrets(),
        ..NodeStageVolumeRequest::default()
    };
    t.refused(request.clone(), Code::NotFound).await?;
    let volume_id = t.deleted_volume().await?;
    t.refused(NodeStageVolumeRequest { volume_id, ..request }, Code::NotFound).await?;
    Ok(())
}

async fn again_for_another_access_type(t: &CheckContext) -> Outcome {
    let volume = t.volume_for_both().await?;
    let mounted = t.mount(Mode::SingleNodeWriter);
    let publish_context = t.attached(&volume, &mounted).await?;
    let request = t.stage(&volume, &mounted, &publish_context)?;
    t.ok(request.clone()).await?;
    let other = NodeStageVolumeRequest {
        volume_capability: Some(block(Mode::SingleNodeWriter)),
        ..request.clone()
    };
    t.refused(other, Code::AlreadyExists).await?;
    t.ok(request).await?;
    Ok(())
}

async fn beyond_the_volume(t: &CheckContext) -> Outcome {
    let capability = t.capability();
    let volume = t.volume_for(capability.clone()).await?;
    let beyond = t.beyond(&volume, &capability).await?;
    let publish_context = t.attached(&volume, &capability).await?;
    let request = t.stage(&volume, &beyond, &publish_context)?;
    t.refused(request, Code::FailedPrecondition).await?;
    Ok(())
}

async fn with_another_volume_context(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let volume_context = t.other_context(&volume)?;
    let publish_context = t.attached(&volume, &t.capability()).await?;
    let request = t.stage(&volume, &t.capability(), &publish_context)?;
    let request = NodeStageVolumeRequest { volume_context, ..request };
    t.refused_with(request, &[Code::InvalidArgument, Code::FailedPrecondition]).await?;
    Ok(())
}

/// The values are the plugin's own. That they are used shows where they say "read only".
async fn with_publish_context(t: &CheckContext) -> Outcome {
    let capability = t.capability();
    let volume = t.volume_for(capability.clone()).await?;
    if !t.attaches() {
        let request = t.stage(&volume, &capability, &Pairs::new())?;
        t.ok(request).await?;
        return Ok(());
    }
    let placed = t.placed(&volume, capability.clone()).await?;
    if !t.features().has_controller(PublishReadonly) || !t.options().local_files {
        return Ok(());
    }
    t.expect(t.is_writable(&placed.target_path()), "a volume attached for writing to be writable")?;
    t.withdrawn(&placed).await?;
    let attach =
        ControllerPublishVolumeRequest { readonly: true, ..t.attach(&volume, &capability) };
    let publish_context = t.ok(attach).await?.publish_context;
    let stage = t.stage(&volume, &capability, &publish_context)?;
    let staged = Placed { publish_context, staging: stage.staging_target_path.clone(), ..placed };
    t.ok(stage).await?;
    let publish = t.publish(&staged)?;
    let target = PathBuf::from(&publish.target_path);
    t.ok(publish).await?;
    t.expect(!t.is_writable(&target), "a volume attached read-only not to be writable")
}

async fn keeps_data(t: &CheckContext) -> Outcome {
    let capability = t.mount(Mode::SingleNodeWriter);
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability.clone()).await?;
    let content = t.fill(&placed)?;
    let again = t.stage(&volume, &capability, &placed.publish_context)?;
    let staging_target_path = placed.staging.clone();
    t.ok(NodeStageVolumeRequest { staging_target_path, ..again }).await?;
    t.holds(&placed, &content)?;
    t.withdrawn(&placed).await?;
    let placed = t.placed(&volume, capability).await?;
    t.holds(&placed, &content)
}

async fn without_directory(t: &CheckContext) -> Outcome {
    let request = request(t).await?;
    let path = PathBuf::from(&request.staging_target_path);
    t.could(std::fs::remove_dir(&path), "remove", &path)?;
    if t.settled(request.clone()).await?.is_err() {
        return t.expect(t.mounts_below(&path)? == 0, "no mount after the refusal");
    }
    let publish = NodePublishVolumeRequest {
        volume_id: request.volume_id,
        publish_context: request.publish_context,
        staging_target_path: request.staging_target_path,
        target_path: t.target_path()?,
        volume_capability: request.volume_capability,
        secrets: request.secrets,
        volume_context: request.volume_context,
        readonly: false,
    };
    t.ok(publish).await?;
    Ok(())
}

async fn once_publish_twice(t: &CheckContext) -> Outcome {
    let modes =
        [Mode::SingleNodeMultiWriter, Mode::MultiNodeMultiWriter, Mode::MultiNodeReaderOnly];
    let (volume, capability) = t.volume_in_any(&t.quick_capability(), &modes).await?;
    let staged = t.staged(&volume, capability).await?;
    let mut published = Vec::new();
    for _ in 0..2 {
        let request = t.publish(&staged)?;
        published.push(Placed { target: request.target_path.clone(), ..staged.clone() });
        t.ok(request).await?;
    }
    for placed in &published {
        t.ok(t.unpublish(placed)).await?;
    }
    t.ok(t.unstage(&staged)).await?;
    t.expect(t.mounts_below(&staged.staging_path())? == 0, "nothing to be staged any more")?;
    // A plugin that counted would still hold the volume.
    if t.attaches() {
        t.ok(t.detach(&volume)).await?;
    }
    t.ok(t.delete(&volume)).await?;
    Ok(())
}
