//! NodeUnstageVolume (NU).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::NodeUnstageVolumeRequest;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::CreateDeleteVolume;
use crate::wire::csi::v1::node_service_capability::rpc::Type::StageUnstageVolume;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;

pub(super) const SECTION: Section = Section {
    title: "NodeUnstageVolume",
    service: Service::Node,
    needs: &[Need::Node(StageUnstageVolume), Need::Controller(CreateDeleteVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "unstage-undoes-stage",
        "stages and unstages, and sees that the volume cannot be published from there any more",
        &["NU-01", "NU-02"],
        run!(undoes_stage),
    ),
    check(
        "unstage-leaves-no-mount",
        "stages and unstages, and looks for the volume's device in this machine's mounts",
        &["NU-02", "NU-07"],
        run!(leaves_no_mount),
    )
    .needs(&[Need::MountAccess, Need::LocalFiles]),
    check(
        "unstage-twice",
        "unstages a volume twice, and one that was never staged",
        &["NU-03"],
        run!(twice),
    ),
    check("unstage-without-volume-id", "leaves out volume_id", &["NU-04"], run!(without_volume_id)),
    check("unstage-without-path", "leaves out staging_target_path", &["NU-05"], run!(without_path)),
    check(
        "unstage-unknown-volume",
        "unstages a volume that never was, at a path where nothing is",
        &["NU-06"],
        run!(unknown_volume),
    ),
    check(
        "unstage-and-the-directory",
        "looks for the staging directory after the call, and calls again without it",
        &["NU-09"],
        run!(and_the_directory),
    )
    .needs(&[Need::LocalFiles]),
    check(
        "unstage-while-busy",
        "keeps the staging directory open during the call",
        &["NU-10"],
        run!(while_busy),
    )
    .needs(&[Need::MountAccess, Need::LocalFiles]),
];

const UNSEEN: &[(&str, &str)] = &[];

async fn undoes_stage(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let staged = t.staged(&volume, capability).await?;
    t.ok(t.unstage(&staged)).await?;
    let published = t.settled(t.publish(&staged)?).await?;
    t.expect(published.is_err(), "an error, as nothing is staged any more")
}

async fn leaves_no_mount(t: &CheckContext) -> Outcome {
    let capability = t.mount(Mode::SingleNodeWriter);
    let volume = t.volume_for(capability.clone()).await?;
    let everywhere = Path::new("/");
    let before = t.devices_below(everywhere)?;
    let placed = t.placed(&volume, capability).await?;
    let devices = t.devices_below(&placed.target_path())?;
    t.expect(!devices.is_empty(), "the volume to be mounted on this machine")?;
    t.ok(t.unpublish(&placed)).await?;
    t.ok(t.unstage(&placed)).await?;
    t.expect(t.mounts_below(&placed.staging_path())? == 0, "no mount at the staging path")?;
    // A volume that is a directory of the machine's own filesystem has no separate device.
    let own: BTreeSet<_> = devices.difference(&before).cloned().collect();
    let left = !own.is_disjoint(&t.devices_below(everywhere)?);
    t.expect(!left, "no mount of the volume's device anywhere")
}

async fn twice(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let never = NodeUnstageVolumeRequest {
        volume_id: volume.volume_id.clone(),
        staging_target_path: t.staging_path()?,
    };
    t.ok(never).await?;
    let staged = t.staged(&volume, capability).await?;
    t.ok(t.unstage(&staged)).await?;
    t.ok(t.unstage(&staged)).await?;
    Ok(())
}

async fn without_volume_id(t: &CheckContext) -> Outcome {
    let staging_target_path = t.staging_path()?;
    let request = NodeUnstageVolumeRequest { volume_id: String::new(), staging_target_path };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn without_path(t: &CheckContext) -> Outcome {
    let volume_id = t.volume().await?.volume_id;
    let request = NodeUnstageVolumeRequest { volume_id, staging_target_path: String::new() };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

/// The specification asks for NOT_FOUND, and for OK where nothing is staged.
async fn unknown_volume(t: &CheckContext) -> Outcome {
    for volume_id in [t.unknown_id(), t.deleted_volume().await?] {
        let staging_target_path = t.staging_path()?;
        let request = NodeUnstageVolumeRequest { volume_id, staging_target_path };
        match t.settled(request).await? {
            Ok(_) => {}
            Err(status) if status.code() == Code::NotFound => {}
            Err(_) => return Err(t.failed("NOT_FOUND or OK")),
        }
    }
    Ok(())
}

async fn and_the_directory(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let staged = t.staged(&volume, t.capability()).await?;
    t.ok(t.unstage(&staged)).await?;
    let path = staged.staging_path();
    if path.is_dir() {
        t.could(fs::remove_dir(&path), "remove", &path)?;
    }
    t.ok(t.unstage(&staged)).await?;
    Ok(())
}

/// Whether a busy mount can be taken away is the plugin's matter; OK means that it was.
async fn while_busy(t: &CheckContext) -> Outcome {
    let capability = t.mount(Mode::SingleNodeWriter);
    let volume = t.volume_for(capability.clone()).await?;
    let staged = t.staged(&volume, capability).await?;
    let path = staged.staging_path();
    if !t.is_mounted(&path)? {
        return t.not_applicable("nothing is mounted at the staging path");
    }
    let busy = t.could(File::open(&path), "open", &path)?;
    let answer = t.ask(t.unstage(&staged)).await?;
    let still_mounted = t.is_mounted(&path)?;
    drop(busy);
    t.expect(answer.is_err() || !still_mounted, "an error while the volume stays mounted")?;
    t.ok(t.unstage(&staged)).await?;
    t.expect(!t.is_mounted(&path)?, "the volume not to be mounted any more")
}
