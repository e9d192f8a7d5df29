//! NodePublishVolume (NP): what has to be refused.

mod effect;
mod repeated;

pub(super) use effect::SECTION as EFFECT;
pub(super) use repeated::SECTION as REPEATED;

use std::path::Path;

use tonic::Code;

use crate::capability::in_no_mode;
use crate::check::{Check, Outcome, Section, Service, blamed, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::NodePublishVolumeRequest;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::CreateDeleteVolume;
use crate::wire::csi::v1::node_service_capability::rpc::Type::StageUnstageVolume;

pub(super) const SECTION: Section = Section {
    title: "NodePublishVolume",
    service: Service::Node,
    needs: &[Need::NodeService, Need::Controller(CreateDeleteVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check("publish-without-volume-id", "leaves out volume_id", &["NP-04"], run!(without_volume_id)),
    check("publish-without-target", "leaves out target_path", &["NP-05"], run!(without_target)),
    check(
        "publish-without-capability",
        "leaves out volume_capability",
        &["NP-06"],
        run!(without_capability),
    ),
    check(
        "publish-without-staging-path",
        "leaves out staging_target_path",
        &["NP-07"],
        run!(without_staging_path),
    )
    .needs(&[Need::Node(StageUnstageVolume)]),
    check(
        "publish-at-relative-path",
        "gives a relative target, and a relative staging path",
        &["NP-08"],
        run!(at_relative_path),
    ),
    check(
        "publish-for-what-nobody-can",
        "asks for an access mode that does not exist",
        &["NP-13", "NP-37"],
        run!(unsupported_capability),
    ),
    check(
        "publish-unknown-volume",
        "publishes a volume that never was, and one that was deleted",
        &["NP-15"],
        run!(unknown_volume),
    ),
    check(
        "publish-beyond-the-volume",
        "asks for a use that ValidateVolumeCapabilities does not confirm",
        &["NP-17"],
        run!(beyond_the_volume),
    ),
    check(
        "publish-with-another-volume-context",
        "changes a value in volume_context",
        &["NP-19"],
        run!(with_another_volume_context),
    ),
    check(
        "publish-what-is-not-staged",
        "names a staging path at which nothing is staged",
        &["NP-37", "NP-38"],
        run!(what_is_not_staged),
    )
    .needs(&[Need::Node(StageUnstageVolume)]),
];

const UNSEEN: &[(&str, &str)] = &[];

/// A request that nothing is wrong with, for a new volume.
async fn request(t: &CheckContext) -> Outcome<NodePublishVolumeRequest> {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let staged = t.staged(&volume, capability).await?;
    t.publish(&staged)
}

/// NP-37.
fn nothing_is_left(t: &CheckContext, target: &str) -> Outcome {
    let target = Path::new(target);
    t.expect(!t.is_mounted(target)?, "no mount after the refusal")?;
    t.expect(!t.exists(target), "nothing at the target after the refusal")
}

async fn without_volume_id(t: &CheckContext) -> Outcome {
    let request = NodePublishVolumeRequest { volume_id: String::new(), ..request(t).await? };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn without_target(t: &CheckContext) -> Outcome {
    let request = NodePublishVolumeRequest { target_path: String::new(), ..request(t).await? };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn without_capability(t: &CheckContext) -> Outcome {
    let request = NodePublishVolumeRequest { volume_capability: None, ..request(t).await? };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn without_staging_path(t: &CheckContext) -> Outcome {
    let staging_target_path = String::new();
    let request = NodePublishVolumeRequest { staging_target_path, ..request(t).await? };
    t.refused(request, Code::FailedPrecondition).await?;
    Ok(())
}

async fn at_relative_path(t: &CheckContext) -> Outcome {
    let relative = "conformance/relative/path".to_owned();
    let request = request(t).await?;
    let target = NodePublishVolumeRequest { target_path: relative.clone(), ..request.clone() };
    t.refused(target, Code::InvalidArgument).await?;
    if t.stages() {
        let staging = NodePublishVolumeRequest { staging_target_path: relative, ..request };
        // Nothing is staged there either.
        t.refused_with(staging, &[Code::InvalidArgument, Code::FailedPrecondition]).await?;
    }
    Ok(())
}

async fn unsupported_capability(t: &CheckContext) -> Outcome {
    let mut request = request(t).await?;
    request.volume_capability = request.volume_capability.as_ref().map(in_no_mode);
    let target = request.target_path.clone();
    let codes = [Code::FailedPrecondition, Code::InvalidArgument];
    blamed("NP-13", t.refused_with(request, &codes).await)?;
    blamed("NP-37", nothing_is_left(t, &target))
}

async fn unknown_volume(t: &CheckContext) -> Outcome {
    let request = NodePublishVolumeRequest {
        volume_id: t.unknown_id(),
        staging_target_path: t.staging_path()?,
        target_path: t.target_path()?,
        volume_capability: Some(t.capability()),
        secrets: t.secrets(),
        ..NodePublishVolumeRequest::default()
    };
    t.refused(request.clone(), Code::NotFound).await?;
    let volume_id = t.deleted_volume().await?;
    t.refused(NodePublishVolumeRequest { volume_id, ..request }, Code::NotFound).await?;
    Ok(())
}

async fn beyond_the_volume(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let beyond = t.beyond(&volume, &capability).await?;
    let staged = t.staged(&volume, capability).await?;
    let volume_capability = Some(beyond);
    let request = NodePublishVolumeRequest { volume_capability, ..t.publish(&staged)? };
    t.refused(request, Code::FailedPrecondition).await?;
    Ok(())
}

async fn with_another_volume_context(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let volume_context = t.other_context(&volume)?;
    let staged = t.staged(&volume, capability).await?;
    let request = NodePublishVolumeRequest { volume_context, ..t.publish(&staged)? };
    t.refused_with(request, &[Code::InvalidArgument, Code::FailedPrecondition]).await?;
    Ok(())
}

async fn what_is_not_staged(t: &CheckContext) -> Outcome {
    let capability = t.capability();
    let volume = t.volume_for(capability.clone()).await?;
    let publish_context = t.attached(&volume, &capability).await?;
    let stage = t.stage(&volume, &capability, &publish_context)?;
    let request = NodePublishVolumeRequest {
        volume_id: stage.volume_id,
        publish_context,
        staging_target_path: stage.staging_target_path,
        target_path: t.target_path()?,
        volume_capability: stage.volume_capability,
        secrets: t.secrets(),
        volume_context: stage.volume_context,
        readonly: false,
    };
    let target = request.target_path.clone();
    blamed("NP-38", t.refused(request, Code::FailedPrecondition).await)?;
    blamed("NP-37", nothing_is_left(t, &target))
}
