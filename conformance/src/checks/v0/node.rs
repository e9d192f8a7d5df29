//! What the node does, and how it refuses.

use std::path::Path;

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{CheckContext, V0Placed};
use crate::need::Need;
use crate::options::Pairs;
use crate::wire::csi::v0::controller_service_capability::rpc::Type as ControllerRpc;
use crate::wire::csi::v0::volume_capability::access_mode::Mode;
use crate::wire::csi::v0::{NodePublishVolumeRequest, NodeStageVolumeRequest, Volume};

pub(in crate::checks) const SECTION: Section = Section {
    title: "csi.v0: node",
    service: Service::V0,
    needs: &[Need::V0, Need::V0Controller(ControllerRpc::CreateDeleteVolume)],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "v0-target-made-before",
        "publishes at a directory that exists, and looks at the mounts then and afterwards",
        &["V0-28", "V0-29"],
        run!(target_made_before),
    )
    .needs(&[Need::LocalFiles, Need::MountAccess]),
    check(
        "v0-long-paths",
        "publishes at a path of 128 bytes, and at one that is longer",
        &["V0-30"],
        run!(long_paths),
    ),
    check(
        "v0-stage-errors",
        "stages an unknown volume, in another way, and in a mode that the volume lacks",
        &["V0-39"],
        run!(stage_errors),
    )
    .needs(&[Need::V0Stages]),
    check(
        "v0-unstage-unknown",
        "unstages a volume that does not exist",
        &["V0-40"],
        run!(unstage_unknown),
    )
    .needs(&[Need::V0Stages]),
    check(
        "v0-publish-errors",
        "publishes an unknown volume, one that is not staged, in another way, and twice",
        &["V0-41"],
        run!(publish_errors),
    ),
    check(
        "v0-unpublish-unknown",
        "unpublishes a volume that does not exist",
        &["V0-42"],
        run!(unpublish_unknown),
    ),
    check(
        "v0-second-publish",
        "publishes again at the same target, with other secrets, and at another target",
        &["V0-44"],
        run!(second_publish),
    ),
    check(
        "v0-second-publish-of-many",
        "publishes a volume for many nodes at two targets",
        &["V0-44"],
        run!(second_publish_of_many),
    ),
];

const WRITER: Mode = Mode::SingleNodeWriter;

async fn target_made_before(t: &CheckContext) -> Outcome {
    let volume = t.v0_volume().await?;
    let placed = t.v0_placed(&volume, t.v0_capability(WRITER)).await?;
    let target = placed.target_path();
    t.expect(t.is_mounted(&target)?, "the volume at the target")?;
    t.write_file(&target.join("file"), b"content")?;
    t.ok(t.v0_unpublish(&placed)).await?;
    t.expect(!t.is_mounted(&target)?, "nothing mounted at the target any more")?;
    t.expect(!t.exists(&target.join("file")), "no file of the volume at the target any more")?;
    // The caller made the directory, so it may be there still, and can be used again.
    t.made_directory(&target)?;
    t.ok(t.v0_publish(&placed)).await?;
    t.expect(t.read_file(&target.join("file"))? == b"content", "what was written before")
}

async fn long_paths(t: &CheckContext) -> Outcome {
    let (staging_dir, target_dir) = (&t.options().staging_dir, &t.options().target_dir);
    let volume = t.v0_volume().await?;
    let capability = t.v0_capability(WRITER);
    let mut placed = t.v0_attached(&volume, capability).await?;
    if t.features().v0_stages {
        placed.staging = t.path_of_length(staging_dir, 128)?;
        t.made_directory(Path::new(&placed.staging))?;
        t.ok(t.v0_stage(&placed)).await?;
    }
    placed.target = t.path_of_length(target_dir, 128)?;
    t.made_directory(Path::new(&placed.target))?;
    t.ok(t.v0_publish(&placed)).await?;
    t.ok(t.v0_unpublish(&placed)).await?;
    let longer = V0Placed { target: t.path_of_length(target_dir, 129)?, ..placed.clone() };
    t.made_directory(Path::new(&longer.target))?;
    match t.settled(t.v0_publish(&longer)).await? {
        Ok(_) => Ok(()),
        Err(status) => t.expect(
            status.code() == Code::InvalidArgument,
            "INVALID_ARGUMENT, if a path of 129 bytes is refused",
        ),
    }
}

fn unknown(t: &CheckContext) -> Outcome<V0Placed> {
    let volume = Volume { id: t.unknown_id(), ..Volume::default() };
    let capability = t.v0_capability(WRITER);
    let (staging, target) = (t.staging_path()?, t.v0_target(&capability)?);
    Ok(V0Placed { volume, capability, publish_info: Pairs::new(), staging, target })
}

async fn stage_errors(t: &CheckContext) -> Outcome {
    t.refused(t.v0_stage(&unknown(t)?), Code::NotFound).await?;
    let volume = t.v0_volume().await?;
    let mut placed = t.v0_attached(&volume, t.v0_capability(WRITER)).await?;
    let request = t.v0_stage(&placed);
    let many = t.v0_capability(Mode::MultiNodeMultiWriter);
    if !t.ok(t.v0_validate(&volume, &[&many])).await?.supported {
        let request = NodeStageVolumeRequest { volume_capability: Some(many), ..request.clone() };
        t.refused(request, Code::FailedPrecondition).await?;
    }
    let (first, second) = tokio::join!(t.ask(request.clone()), t.ask(request.clone()));
    for answer in [first?, second?] {
        let copes = answer.is_ok() || answer.is_err_and(|it| it.code() == Code::Aborted);
        t.expect(copes, "OK or ABORTED for each of two calls at once")?;
    }
    t.ok(request).await?;
    placed.capability = t.v0_capability(Mode::SingleNodeReaderOnly);
    t.refused(t.v0_stage(&placed), Code::AlreadyExists).await?;
    Ok(())
}

/// NOT_FOUND by the table; OK by the rule that what is not there needs no undoing (open point 3).
async fn unstage_unknown(t: &CheckContext) -> Outcome {
    match t.settled(t.v0_unstage(&unknown(t)?)).await? {
        Ok(_) => Ok(()),
        Err(status) => t.expect(status.code() == Code::NotFound, "NOT_FOUND or OK"),
    }
}

async fn unpublish_unknown(t: &CheckContext) -> Outcome {
    match t.settled(t.v0_unpublish(&unknown(t)?)).await? {
        Ok(_) => Ok(()),
        Err(status) => t.expect(status.code() == Code::NotFound, "NOT_FOUND or OK"),
    }
}

async fn publish_errors(t: &CheckContext) -> Outcome {
    t.refused(t.v0_publish(&unknown(t)?), Code::NotFound).await?;
    let volume = t.v0_volume().await?;
    let mut placed = t.v0_staged(&volume, t.v0_capability(WRITER)).await?;
    placed.target = t.v0_target(&placed.capability)?;
    let request = t.v0_publish(&placed);
    if t.features().v0_stages {
        let unstaged =
            NodePublishVolumeRequest { staging_target_path: String::new(), ..request.clone() };
        t.refused(unstaged, Code::FailedPrecondition).await?;
    }
    let many = t.v0_capability(Mode::MultiNodeMultiWriter);
    if !t.ok(t.v0_validate(&volume, &[&many])).await?.supported {
        let request = NodePublishVolumeRequest { volume_capability: Some(many), ..request.clone() };
        t.refused(request, Code::FailedPrecondition).await?;
    }
    t.ok(request.clone()).await?;
    let readonly = NodePublishVolumeRequest { readonly: true, ..request };
    t.refused(readonly, Code::AlreadyExists).await?;
    let elsewhere = V0Placed { target: t.v0_target(&placed.capability)?, ..placed };
    t.refused(t.v0_publish(&elsewhere), Code::FailedPrecondition).await?;
    Ok(())
}

async fn second_publish(t: &CheckContext) -> Outcome {
    let volume = t.v0_volume().await?;
    let placed = t.v0_placed(&volume, t.v0_capability(WRITER)).await?;
    let request = t.v0_publish(&placed);
    t.ok(request.clone()).await?;
    let mut node_publish_secrets = request.node_publish_secrets.clone();
    node_publish_secrets.insert("conformance".to_owned(), "another".to_owned());
    t.ok(NodePublishVolumeRequest { node_publish_secrets, ..request.clone() }).await?;
    let readonly = NodePublishVolumeRequest { readonly: true, ..request };
    t.refused(readonly, Code::AlreadyExists).await?;
    let elsewhere = V0Placed { target: t.v0_target(&placed.capability)?, ..placed };
    t.refused(t.v0_publish(&elsewhere), Code::FailedPrecondition).await?;
    Ok(())
}

async fn second_publish_of_many(t: &CheckContext) -> Outcome {
    let many = t.v0_capability(Mode::MultiNodeMultiWriter);
    let Ok(reply) = t.settled(t.v0_new_volume_for(many.clone())).await? else {
        return t.not_applicable("there are no volumes of MULTI_NODE_MULTI_WRITER");
    };
    let volume = t.some(reply.volume, "a volume in the reply")?;
    let placed = t.v0_placed(&volume, many).await?;
    let elsewhere = V0Placed { target: t.v0_target(&placed.capability)?, ..placed };
    t.ok(t.v0_publish(&elsewhere)).await?;
    Ok(())
}
