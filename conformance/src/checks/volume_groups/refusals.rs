//! How requests for groups are refused.

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::identity::capability::volume_group::Type;
use crate::wire::volumegroup::{
    ControllerGetVolumeGroupRequest, CreateVolumeGroupRequest, DeleteVolumeGroupRequest,
    ModifyVolumeGroupMembershipRequest,
};

pub(in crate::checks) const SECTION: Section = Section {
    title: "Volume groups: refusals",
    service: Service::VolumeGroup,
    needs: &[Need::VolumeGroup(Type::VolumeGroup)],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check("group-without-name", "leaves out the name of a group", &["VG-04"], run!(without_name)),
    check(
        "group-bad-parameters",
        "makes a group with a parameter that does not exist, and with values that make no sense",
        &["VG-11"],
        run!(bad_parameters),
    ),
    check(
        "group-other-parameters",
        "makes a group under a name that has one with other parameters",
        &["VG-12"],
        run!(other_parameters),
    )
    .needs(&[Need::GroupParameters]),
    check(
        "group-made-of-misfits",
        "makes a group of volumes that do not fit together",
        &["VG-13"],
        run!(made_of_misfits),
    )
    .needs(&[Need::OtherParameters]),
    check(
        "group-deleted-without-id",
        "deletes a group and leaves out its id",
        &["VG-16"],
        run!(deleted_without_id),
    ),
    check(
        "group-modified-without-id",
        "modifies a group and leaves out its id",
        &["VG-27"],
        run!(modified_without_id),
    )
    .needs(&[Need::VolumeGroup(Type::ModifyVolumeGroup)]),
    check(
        "group-got-without-id",
        "gets a group and leaves out its id",
        &["VG-36"],
        run!(got_without_id),
    )
    .needs(&[Need::VolumeGroup(Type::GetVolumeGroup)]),
    check(
        "group-unknown",
        "gets a group that never existed, and one that is gone",
        &["VG-35"],
        run!(unknown),
    )
    .needs(&[Need::VolumeGroup(Type::GetVolumeGroup)]),
];

async fn without_name(t: &CheckContext) -> Outcome {
    let request = CreateVolumeGroupRequest { name: String::new(), ..t.new_group(&[]) };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

/// A plugin may pass over what it does not know, so at least one has to be refused to see how.
async fn bad_parameters(t: &CheckContext) -> Outcome {
    let known = t.options().group_parameters.keys().cloned();
    let mut refused = false;
    for key in known.chain(["conformance-no-such-parameter".to_owned()]) {
        let parameters = [(key, "no value that makes sense".to_owned())].into();
        let request = CreateVolumeGroupRequest { parameters, ..t.new_group(&[]) };
        if let Err(status) = t.settled(request).await? {
            t.expect(status.code() == Code::InvalidArgument, "INVALID_ARGUMENT")?;
            refused = true;
        }
    }
    if refused { Ok(()) } else { t.not_applicable("no parameter of a group is refused") }
}

async fn other_parameters(t: &CheckContext) -> Outcome {
    let request = t.new_group(&[]);
    let group = t.create_group(request.clone()).await?;
    let parameters = t.options().other_group_parameters.clone();
    let clash = CreateVolumeGroupRequest { parameters, ..request.clone() };
    t.refused(clash, Code::AlreadyExists).await?;
    let again = t.create_group(request).await?;
    t.expect(again.volume_group_id == group.volume_group_id, "the group that was there")
}

async fn made_of_misfits(t: &CheckContext) -> Outcome {
    let first = t.volume().await?;
    let mut other = t.new_volume();
    other.parameters.clone_from(&t.options().other_parameters);
    let other = t.create(other).await?;
    t.refused(t.new_group(&[&first, &other]), Code::FailedPrecondition).await?;
    Ok(())
}

async fn deleted_without_id(t: &CheckContext) -> Outcome {
    let request = DeleteVolumeGroupRequest { secrets: t.secrets(), ..Default::default() };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn modified_without_id(t: &CheckContext) -> Outcome {
    let request = ModifyVolumeGroupMembershipRequest { secrets: t.secrets(), ..Default::default() };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn got_without_id(t: &CheckContext) -> Outcome {
    let request = ControllerGetVolumeGroupRequest { secrets: t.secrets(), ..Default::default() };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn unknown(t: &CheckContext) -> Outcome {
    let volume_group_id = t.unknown_id();
    let request = ControllerGetVolumeGroupRequest { volume_group_id, secrets: t.secrets() };
    t.refused(request, Code::NotFound).await?;
    let group = t.group(&[]).await?;
    t.ok(t.delete_group(&group)).await?;
    t.refused(t.get_group(&group), Code::NotFound).await?;
    Ok(())
}
