//! What a VolumeCapability may say, and what is done with it.

use std::os::unix::fs::MetadataExt;

use tonic::Code;

use crate::capability::{in_no_mode, with};
use crate::check::{Check, Outcome, Section, Service, blamed, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteVolume, SingleNodeMultiWriter,
};
use crate::wire::csi::v1::node_service_capability::rpc::Type::VolumeMountGroup;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::volume_capability::{AccessMode, AccessType, MountVolume};
use crate::wire::csi::v1::{
    ControllerPublishVolumeRequest, CreateVolumeRequest, NodePublishVolumeRequest,
    NodeStageVolumeRequest, ValidateVolumeCapabilitiesRequest, VolumeCapability,
};

pub(in crate::checks) const SECTION: Section = Section {
    title: "Volume capabilities",
    service: Service::Protocol,
    needs: &[Need::Controller(CreateDeleteVolume), Need::NodeService],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "capability-without-access-type",
        "asks for neither block nor mount, in every call that takes a capability",
        &["AM-01"],
        run!(without_access_type),
    ),
    check(
        "capability-without-mode",
        "leaves out the access mode, and sends UNKNOWN, in every call that takes a capability",
        &["AM-02"],
        run!(without_mode),
    ),
    check(
        "filesystem-by-default",
        "stages and publishes with an empty fs_type",
        &["AM-03"],
        run!(filesystem_by_default),
    )
    .needs(&[Need::MountAccess]),
    check(
        "filesystem-that-is-not-supported",
        "asks for the filesystem nosuchfs when creating, validating, staging and publishing",
        &["AM-04"],
        run!(unsupported_filesystem),
    )
    .needs(&[Need::MountAccess]),
    check("too-many-mount-flags", "sends 5 KiB of mount flags", &["AM-05"], run!(too_many_flags))
        .needs(&[Need::MountAccess]),
    check(
        "mount-flags-take-effect",
        "publishes with noatime and looks at the mount table",
        &["AM-06"],
        run!(flags_take_effect),
    )
    .needs(&[Need::MountAccess, Need::LocalFiles]),
    check(
        "mount-group-takes-effect",
        "publishes for a group and looks at what is made there",
        &["AM-07", "AM-08"],
        run!(group_takes_effect),
    )
    .needs(&[Need::MountAccess, Need::LocalFiles, Need::Node(VolumeMountGroup)]),
    check(
        "mode-that-is-not-supported",
        "asks for a mode that no version has when creating, validating, staging and publishing",
        &["AM-18"],
        run!(unsupported_mode),
    ),
    check(
        "alpha-modes-without-their-capability",
        "asks for modes 6 and 7 of a plugin that does not have them",
        &["AM-17"],
        run!(alpha_modes_not_offered),
    )
    .needs(&[Need::NoController(SingleNodeMultiWriter)]),
];

/// Each call that takes a capability refuses this one; staging and publishing with these codes.
async fn refused_everywhere(
    t: &CheckContext,
    wrong: VolumeCapability,
    on_node: &[Code],
) -> Outcome {
    let good = t.capability();
    let volume = t.volume_for(good.clone()).await?;
    let volume_capabilities = vec![wrong.clone()];
    let request = CreateVolumeRequest { volume_capabilities, ..t.new_volume() };
    t.refused(request, Code::InvalidArgument).await?;
    if t.attaches() {
        let request = ControllerPublishVolumeRequest {
            volume_capability: Some(wrong.clone()),
            ..t.attach(&volume, &good)
        };
        let codes = [&[Code::InvalidArgument], on_node].concat();
        t.refused_with(request, &codes).await?;
    }
    let context = t.attached(&volume, &good).await?;
    if t.stages() {
        let request = NodeStageVolumeRequest {
            volume_capability: Some(wrong.clone()),
            ..t.stage(&volume, &good, &context)?
        };
        t.refused_with(request, on_node).await?;
    }
    let staged = t.staged(&volume, good).await?;
    let request =
        NodePublishVolumeRequest { volume_capability: Some(wrong), ..t.publish(&staged)? };
    t.refused_with(request, on_node).await?;
    t.withdrawn(&staged).await
}

/// OK without `confirmed`, or a refusal of what is not legal at all.
async fn not_confirmed(t: &CheckContext, wrong: VolumeCapability) -> Outcome {
    let volume = t.volume().await?;
    let volume_capabilities = vec![wrong];
    let request = ValidateVolumeCapabilitiesRequest { volume_capabilities, ..t.validate(&volume) };
    match t.settled(request).await? {
        Ok(reply) => t.expect(reply.confirmed.is_none(), "OK without confirmed"),
        Err(status) => t.expect(status.code() == Code::InvalidArgument, "OK without confirmed"),
    }
}

async fn without_access_type(t: &CheckContext) -> Outcome {
    let wrong = VolumeCapability { access_type: None, ..t.capability() };
    not_confirmed(t, wrong.clone()).await?;
    refused_everywhere(t, wrong, &[Code::InvalidArgument]).await
}

async fn without_mode(t: &CheckContext) -> Outcome {
    let unknown = VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::Unknown.into() }),
        ..t.capability()
    };
    let request = CreateVolumeRequest { volume_capabilities: vec![unknown], ..t.new_volume() };
    t.refused(request, Code::InvalidArgument).await?;
    let wrong = VolumeCapability { access_mode: None, ..t.capability() };
    not_confirmed(t, wrong.clone()).await?;
    refused_everywhere(t, wrong, &[Code::InvalidArgument]).await
}

fn mounted(mount: MountVolume) -> VolumeCapability {
    with(AccessType::Mount(mount), Mode::SingleNodeWriter)
}

async fn filesystem_by_default(t: &CheckContext) -> Outcome {
    let capability = mounted(MountVolume::default());
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    if t.options().local_files {
        let mounts = t.mounts_at(&placed.target_path())?;
        t.expect(!mounts.is_empty(), "a filesystem at the target")?;
        t.expect(t.is_writable(&placed.target_path()), "a filesystem that can be written")?;
    }
    t.withdrawn(&placed).await
}

async fn unsupported_filesystem(t: &CheckContext) -> Outcome {
    let wrong = mounted(MountVolume { fs_type: "nosuchfs".to_owned(), ..Default::default() });
    not_confirmed(t, wrong.clone()).await?;
    // The specification gives stage and publish no separate code for it.
    refused_everywhere(t, wrong, &[Code::FailedPrecondition, Code::InvalidArgument]).await
}

async fn too_many_flags(t: &CheckContext) -> Outcome {
    let mount = MountVolume {
        fs_type: t.options().fs_type.clone(),
        mount_flags: vec!["noatime".to_owned(); 5 * 1024 / 7],
        ..Default::default()
    };
    refused_everywhere(t, mounted(mount), &[Code::InvalidArgument]).await
}

async fn flags_take_effect(t: &CheckContext) -> Outcome {
    let flag = "noatime";
    let capability = mounted(MountVolume {
        fs_type: t.options().fs_type.clone(),
        mount_flags: vec![flag.to_owned()],
        ..Default::default()
    });
    let Ok(reply) = t.settled(t.new_volume_for(capability.clone())).await? else {
        return t.not_applicable(format!("the mount flag {flag} is not supported"));
    };
    let volume = t.some(reply.volume, "a volume in the reply")?;
    let placed = t.placed(&volume, capability).await?;
    let mounts = t.mounts_at(&placed.target_path())?;
    let applied = mounts.last().is_some_and(|it| it.options.iter().any(|option| option == flag));
    t.expect(applied, format!("{flag} in the mount table"))?;
    t.withdrawn(&placed).await
}

async fn group_takes_effect(t: &CheckContext) -> Outcome {
    const GROUP: u32 = 23_456;
    let capability = mounted(MountVolume {
        fs_type: t.options().fs_type.clone(),
        volume_mount_group: GROUP.to_string(),
        ..Default::default()
    });
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    let file = placed.target_path().join("file");
    t.write_file(&file, b"content")?;
    for path in [placed.target_path(), file] {
        let found = t.could(std::fs::metadata(&path), "look at", &path)?;
        blamed(
            "AM-07",
            t.expect(found.gid() == GROUP, format!("group {GROUP} of {}", path.display())),
        )?;
        let is_open = found.mode() & 0o060 == 0o060;
        blamed(
            "AM-08",
            t.expect(is_open, format!("{} to be the group's to read and write", path.display())),
        )?;
    }
    t.withdrawn(&placed).await
}

async fn unsupported_mode(t: &CheckContext) -> Outcome {
    let wrong = in_no_mode(&t.capability());
    not_confirmed(t, wrong.clone()).await?;
    refused_everywhere(t, wrong, &[Code::FailedPrecondition, Code::InvalidArgument]).await
}

async fn alpha_modes_not_offered(t: &CheckContext) -> Outcome {
    for mode in [Mode::SingleNodeSingleWriter, Mode::SingleNodeMultiWriter] {
        let capability = crate::capability::in_mode(&t.capability(), mode);
        t.refused(t.new_volume_for(capability.clone()), Code::InvalidArgument).await?;
        not_confirmed(t, capability).await?;
    }
    Ok(())
}
