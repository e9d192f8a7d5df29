//! Which volumes are in a group.

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{CheckContext, code_of};
use crate::need::Need;
use crate::wire::csi::v1::Volume;
use crate::wire::identity::capability::volume_group::Type;
use crate::wire::volumegroup::ModifyVolumeGroupMembershipRequest;

pub(in crate::checks) const SECTION: Section = Section {
    title: "Volume groups: members",
    service: Service::VolumeGroup,
    needs: &[
        Need::VolumeGroup(Type::VolumeGroup),
        Need::VolumeGroup(Type::ModifyVolumeGroup),
        Need::VolumeGroup(Type::GetVolumeGroup),
    ],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "group-members-change",
        "adds a volume to a group, then replaces one by another, and gets the group each time",
        &["VG-24", "VG-25", "VG-34"],
        run!(members_change),
    ),
    check(
        "group-emptied",
        "takes all volumes out of a group and looks for them",
        &["VG-26"],
        run!(emptied),
    ),
    check(
        "group-parameters-said-again",
        "modifies a group with the parameters that it was made with",
        &["VG-32"],
        run!(parameters_said_again),
    )
    .needs(&[Need::GroupParameters]),
    check("group-full", "puts one volume more into a group than fits", &["VG-30"], run!(full))
        .needs(&[Need::LargestGroup]),
    check(
        "group-misfit",
        "puts volumes that do not fit together into a group",
        &["VG-28"],
        run!(misfit),
    )
    .needs(&[Need::OtherParameters]),
    check(
        "group-unknown-members",
        "modifies a group that does not exist, and one with a volume that does not",
        &["VG-29"],
        run!(unknown_members),
    ),
    check(
        "volume-in-two-groups",
        "puts a volume that is in one group into another one",
        &["VG-46"],
        run!(in_two_groups),
    )
    .needs(&[Need::VolumeGroup(Type::LimitVolumeToOneVolumeGroup)]),
];

async fn members_change(t: &CheckContext) -> Outcome {
    let (first, second) = (t.volume().await?, t.volume().await?);
    let third = t.volume().await?;
    let group = t.group(&[&first]).await?;
    for members in [&[&first, &second][..], &[&second, &third], &[&third]] {
        let modified = t.regrouped(&group, members).await?;
        t.expect_members(&modified, members)?;
        t.expect_members(&t.found_group(&group).await?, members)?;
    }
    t.expect(t.volume_exists(&first).await?, "a volume that left the group to be there still")
}

async fn emptied(t: &CheckContext) -> Outcome {
    let (first, second) = (t.volume().await?, t.volume().await?);
    let group = t.group(&[&first, &second]).await?;
    t.expect_members(&t.regrouped(&group, &[]).await?, &[])?;
    t.expect_members(&t.found_group(&group).await?, &[])?;
    for volume in [&first, &second] {
        t.expect(t.volume_exists(volume).await?, "the volumes to be there still")?;
    }
    Ok(())
}

/// The newer text has them and the older one has not; both are right.
async fn parameters_said_again(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let group = t.group(&[]).await?;
    let parameters = t.options().group_parameters.clone();
    let modify = t.modify_group(&group, &[&volume]);
    let answer = t.settled(ModifyVolumeGroupMembershipRequest { parameters, ..modify }).await?;
    let copes = matches!(code_of(&answer), Code::Ok | Code::InvalidArgument);
    t.expect(copes, "OK, or INVALID_ARGUMENT if parameters are not for this call")?;
    let members: &[&Volume] = if answer.is_ok() { &[&volume] } else { &[] };
    t.expect_members(&t.found_group(&group).await?, members)
}

async fn full(t: &CheckContext) -> Outcome {
    let most = t.options().largest_group.unwrap_or_default();
    let mut volumes = Vec::new();
    for _ in 0..=most {
        volumes.push(t.volume().await?);
    }
    let all: Vec<_> = volumes.iter().collect();
    let fitting = all.get(..most).unwrap_or_default();
    let group = t.group(fitting).await?;
    t.refused(t.modify_group(&group, &all), Code::ResourceExhausted).await?;
    t.expect_members(&t.found_group(&group).await?, fitting)
}

async fn misfit(t: &CheckContext) -> Outcome {
    let first = t.volume().await?;
    let mut other = t.new_volume();
    other.parameters.clone_from(&t.options().other_parameters);
    let other = t.create(other).await?;
    let group = t.group(&[&first]).await?;
    t.refused(t.modify_group(&group, &[&first, &other]), Code::InvalidArgument).await?;
    t.expect_members(&t.found_group(&group).await?, &[&first])
}

async fn unknown_members(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let group = t.group(&[&volume]).await?;
    let gone = Volume { volume_id: t.deleted_volume().await?, ..Volume::default() };
    let unknown = Volume { volume_id: t.unknown_id(), ..Volume::default() };
    for unknown in [&gone, &unknown] {
        t.refused(t.modify_group(&group, &[&volume, unknown]), Code::NotFound).await?;
    }
    t.expect_members(&t.found_group(&group).await?, &[&volume])?;
    let request = ModifyVolumeGroupMembershipRequest {
        volume_group_id: t.unknown_id(),
        ..t.modify_group(&group, &[&volume])
    };
    t.refused(request, Code::NotFound).await?;
    Ok(())
}

async fn in_two_groups(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let group = t.group(&[&volume]).await?;
    let other = t.group(&[]).await?;
    let why = "the volume is in a group already";
    t.refused_somehow(t.modify_group(&other, &[&volume]), why).await?;
    t.refused_somehow(t.new_group(&[&volume]), why).await?;
    t.expect_members(&t.found_group(&other).await?, &[])?;
    t.expect_members(&t.found_group(&group).await?, &[&volume])
}
