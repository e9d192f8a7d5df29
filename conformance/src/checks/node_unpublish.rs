//! NodeUnpublishVolume (NN).

use std::fs::File;

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{CheckContext, Placed};
use crate::need::Need;
use crate::wire::csi::v1::NodeUnpublishVolumeRequest;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::CreateDeleteVolume;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;

pub(super) const SECTION: Section = Section {
    title: "NodeUnpublishVolume",
    service: Service::Node,
    needs: &[Need::NodeService, Need::Controller(CreateDeleteVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "unpublish-undoes-publish",
        "publishes and unpublishes, and sees that the volume is not at the target any more",
        &["NN-01", "NN-02"],
        run!(undoes_publish),
    ),
    check(
        "unpublish-removes-the-target",
        "publishes and unpublishes, for each access type, and looks for mounts and the target",
        &["NN-02", "NN-03", "NN-08"],
        run!(removes_the_target),
    )
    .needs(&[Need::LocalFiles]),
    check(
        "unpublish-twice",
        "unpublishes a volume twice, and one that was never published",
        &["NN-04"],
        run!(twice),
    ),
    check(
        "unpublish-without-volume-id",
        "leaves out volume_id",
        &["NN-05"],
        run!(without_volume_id),
    ),
    check("unpublish-without-target", "leaves out target_path", &["NN-06"], run!(without_target)),
    check(
        "unpublish-unknown-volume",
        "unpublishes a volume that never was, at a path where nothing is",
        &["NN-07"],
        run!(unknown_volume),
    ),
    check(
        "unpublish-one-of-two",
        "publishes at two targets, takes one back and uses the other",
        &["NN-10"],
        run!(one_of_two),
    ),
    check(
        "unpublish-while-busy",
        "keeps the target open during the call",
        &["NN-11"],
        run!(while_busy),
    )
    .needs(&[Need::MountAccess, Need::LocalFiles]),
];

const UNSEEN: &[(&str, &str)] = &[];

async fn undoes_publish(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    t.expect(t.is_published(&placed).await?, "the volume at the target")?;
    t.ok(t.unpublish(&placed)).await?;
    t.expect(!t.is_published(&placed).await?, "nothing of the volume at the target any more")
}

async fn removes_the_target(t: &CheckContext) -> Outcome {
    for capability in t.capabilities(Mode::SingleNodeWriter) {
        let volume = t.volume_for(capability.clone()).await?;
        let placed = t.placed(&volume, capability).await?;
        let target = placed.target_path();
        t.expect(t.is_published(&placed).await?, "the volume at the target on this machine")?;
        t.ok(t.unpublish(&placed)).await?;
        t.expect(!t.is_mounted(&target)?, "no mount at the target")?;
        t.expect(!t.exists(&target), "the file or directory at the target to be gone")?;
    }
    Ok(())
}

async fn twice(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let never = NodeUnpublishVolumeRequest {
        volume_id: volume.volume_id.clone(),
        target_path: t.target_path()?,
    };
    t.ok(never).await?;
    let placed = t.placed(&volume, capability).await?;
    t.ok(t.unpublish(&placed)).await?;
    t.ok(t.unpublish(&placed)).await?;
    Ok(())
}

async fn without_volume_id(t: &CheckContext) -> Outcome {
    let target_path = t.target_path()?;
    let request = NodeUnpublishVolumeRequest { volume_id: String::new(), target_path };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn without_target(t: &CheckContext) -> Outcome {
    let volume_id = t.volume().await?.volume_id;
    let request = NodeUnpublishVolumeRequest { volume_id, target_path: String::new() };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

/// The specification asks for NOT_FOUND; nodes that cannot tell say OK, as for a repeat.
async fn unknown_volume(t: &CheckContext) -> Outcome {
    for volume_id in [t.unknown_id(), t.deleted_volume().await?] {
        let request = NodeUnpublishVolumeRequest { volume_id, target_path: t.target_path()? };
        match t.settled(request).await? {
            Ok(_) => {}
            Err(status) if status.code() == Code::NotFound => {}
            Err(_) => return Err(t.failed("NOT_FOUND or OK")),
        }
    }
    Ok(())
}

async fn one_of_two(t: &CheckContext) -> Outcome {
    let modes = [Mode::SingleNodeMultiWriter, Mode::MultiNodeMultiWriter];
    let (volume, capability) = t.volume_in_any(&t.capability(), &modes).await?;
    let gone = t.placed(&volume, capability).await?;
    let request = t.publish(&gone)?;
    let kept = Placed { target: request.target_path.clone(), ..gone.clone() };
    t.ok(request).await?;
    let content = if t.options().local_files { t.fill(&gone)? } else { Vec::new() };
    t.ok(t.unpublish(&gone)).await?;
    t.expect(t.is_published(&kept).await?, "the volume still at its other target")?;
    if t.options().local_files {
        t.holds(&kept, &content)?;
    }
    Ok(())
}

/// Whether a busy mount can be taken away is the plugin's matter; OK means that it was.
async fn while_busy(t: &CheckContext) -> Outcome {
    let capability = t.mount(Mode::SingleNodeWriter);
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    let target = placed.target_path();
    let busy = t.could(File::open(&target), "open", &target)?;
    let answer = t.ask(t.unpublish(&placed)).await?;
    let still_mounted = t.is_mounted(&target)?;
    drop(busy);
    t.expect(answer.is_err() || !still_mounted, "an error while the volume stays mounted")?;
    t.ok(t.unpublish(&placed)).await?;
    t.expect(!t.is_mounted(&target)?, "the volume not to be mounted any more")
}
