//! Making, finding and deleting groups.

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{CheckContext, code_of};
use crate::need::Need;
use crate::wire::identity::capability::volume_group::Type;
use crate::wire::volumegroup::{
    ControllerGetVolumeGroupRequest, CreateVolumeGroupRequest, DeleteVolumeGroupRequest,
    ListVolumeGroupsRequest, ModifyVolumeGroupMembershipRequest, VolumeGroup,
};

pub(in crate::checks) const SECTION: Section = Section {
    title: "Volume groups",
    service: Service::VolumeGroup,
    needs: &[Need::VolumeGroup(Type::VolumeGroup)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const GETS: Need = Need::VolumeGroup(Type::GetVolumeGroup);
const MODIFIES: Need = Need::VolumeGroup(Type::ModifyVolumeGroup);

const CHECKS: &[Check] = &[
    check(
        "group-created-twice",
        "creates a group twice and gets the same one",
        &["VG-01", "VG-02", "VG-03"],
        run!(created_twice),
    ),
    check(
        "group-calls-repeated",
        "gets and modifies a group twice, and gets the same answers",
        &["VG-01", "VG-22", "VG-23", "VG-33"],
        run!(calls_repeated),
    )
    .needs(&[GETS, MODIFIES]),
    check(
        "group-replies-are-whole",
        "looks for the group and its id in all replies that have to have them",
        &["VG-07", "VG-08"],
        run!(replies_are_whole),
    )
    .needs(&[GETS, MODIFIES]),
    check(
        "group-without-volumes",
        "creates a group without volumes",
        &["VG-05"],
        run!(without_volumes),
    ),
    check(
        "group-with-volumes",
        "creates a group with two volumes and gets it",
        &["VG-06", "VG-10"],
        run!(with_volumes),
    )
    .needs(&[GETS]),
    check(
        "group-context-stays",
        "compares the context of a group before and after a change",
        &["VG-09"],
        run!(context_stays),
    )
    .needs(&[GETS, MODIFIES]),
    check(
        "group-deleted-twice",
        "deletes a group twice, and one that never existed",
        &["VG-01", "VG-02", "VG-15"],
        run!(deleted_twice),
    ),
    check("group-in-use", "deletes a group with an attached volume", &["VG-17"], run!(in_use)),
    check(
        "group-takes-volumes-along",
        "deletes a group and looks for its volumes",
        &["VG-18"],
        run!(takes_volumes_along),
    ),
    check(
        "group-leaves-volumes",
        "deletes a group that has a volume and looks for the volume",
        &["VG-20"],
        run!(leaves_volumes),
    )
    .needs(&[Need::VolumeGroup(Type::DoNotAllowVgToDeleteVolumes)]),
    check(
        "group-member-deleted",
        "deletes a volume by csi.v1 while it is in a group, and after it has left",
        &["VG-19"],
        run!(member_deleted),
    )
    .needs(&[MODIFIES]),
    check(
        "group-secrets-not-logged",
        "sends secrets with all calls and searches the log for them",
        &["VG-48"],
        run!(secrets_not_logged),
    )
    .needs(&[Need::Logs]),
];

const UNSEEN: &[(&str, &str)] =
    &[("VG-47", "what a plugin's documents say about consistency is not told by any call")];

async fn created_twice(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let request = t.new_group(&[&volume]);
    let first = t.create_group(request.clone()).await?;
    t.expect_members(&first, &[&volume])?;
    let second = t.create_group(request).await?;
    t.expect(first.volume_group_id == second.volume_group_id, "the same volume_group_id again")?;
    t.expect_members(&second, &[&volume])
}

async fn calls_repeated(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let group = t.group(&[]).await?;
    for _ in 0..2 {
        let modified = t.regrouped(&group, &[&volume]).await?;
        t.expect(modified.volume_group_id == group.volume_group_id, "the id of the group")?;
        t.expect_members(&modified, &[&volume])?;
        let found = t.found_group(&group).await?;
        t.expect(found.volume_group_id == group.volume_group_id, "the id of the group")?;
        t.expect_members(&found, &[&volume])?;
    }
    Ok(())
}

async fn replies_are_whole(t: &CheckContext) -> Outcome {
    let created = t.ok(t.new_group(&[])).await?.volume_group;
    let created = t.some(created, "a volume_group in the reply")?;
    let modified = t.ok(t.modify_group(&created, &[])).await?.volume_group;
    let modified = t.some(modified, "a volume_group in the reply")?;
    let found = t.ok(t.get_group(&created)).await?.volume_group;
    let found = t.some(found, "a volume_group in the reply")?;
    for group in [created, modified, found] {
        t.expect(!group.volume_group_id.is_empty(), "a volume_group_id")?;
    }
    Ok(())
}

async fn without_volumes(t: &CheckContext) -> Outcome {
    let group = t.group(&[]).await?;
    t.expect_members(&group, &[])?;
    if GETS.is_met(t.features(), t.options()) {
        t.expect_members(&t.found_group(&group).await?, &[])?;
    }
    Ok(())
}

async fn with_volumes(t: &CheckContext) -> Outcome {
    let (first, second) = (t.volume().await?, t.volume().await?);
    let group = t.group(&[&first, &second]).await?;
    t.expect_members(&group, &[&first, &second])?;
    let found = t.found_group(&group).await?;
    t.expect_members(&found, &[&first, &second])?;
    for volume in found.volumes {
        let made = if volume.volume_id == first.volume_id { &first } else { &second };
        t.expect(
            volume.capacity_bytes == made.capacity_bytes
                && volume.volume_context == made.volume_context,
            "the volume as CreateVolume told of it",
        )?;
    }
    Ok(())
}

async fn context_stays(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let group = t.group(&[]).await?;
    let same = |other: &VolumeGroup| {
        t.expect(
            other.volume_group_context == group.volume_group_context,
            "the volume_group_context that the group was made with",
        )
    };
    same(&t.found_group(&group).await?)?;
    same(&t.regrouped(&group, &[&volume]).await?)?;
    same(&t.found_group(&group).await?)
}

async fn deleted_twice(t: &CheckContext) -> Outcome {
    let group = t.group(&[]).await?;
    t.ok(t.delete_group(&group)).await?;
    t.ok(t.delete_group(&group)).await?;
    if GETS.is_met(t.features(), t.options()) {
        t.refused(t.get_group(&group), Code::NotFound).await?;
    }
    let unknown = VolumeGroup { volume_group_id: t.unknown_id(), ..VolumeGroup::default() };
    t.ok(t.delete_group(&unknown)).await?;
    Ok(())
}

/// A plugin that never deletes volumes with their group may let the group go (open point 10).
async fn in_use(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let group = t.group(&[&volume]).await?;
    t.staged(&volume, t.capability()).await?;
    let answer = t.settled(t.delete_group(&group)).await?;
    let leaves = t.features().has_volume_group(Type::DoNotAllowVgToDeleteVolumes);
    if answer.is_ok() && leaves {
        return t.expect(t.volume_exists(&volume).await?, "the volume to be there still");
    }
    t.expect(code_of(&answer) == Code::FailedPrecondition, "FAILED_PRECONDITION")
}

async fn takes_volumes_along(t: &CheckContext) -> Outcome {
    if t.features().has_volume_group(Type::DoNotAllowVgToDeleteVolumes) {
        return t.not_applicable("DO_NOT_ALLOW_VG_TO_DELETE_VOLUMES is offered");
    }
    let volume = t.volume().await?;
    let group = t.group(&[&volume]).await?;
    t.ok(t.delete_group(&group)).await?;
    t.expect(!t.volume_exists(&volume).await?, "the volume to be gone with its group")
}

async fn leaves_volumes(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let group = t.group(&[&volume]).await?;
    let answer = t.settled(t.delete_group(&group)).await?;
    let is_allowed = matches!(code_of(&answer), Code::Ok | Code::FailedPrecondition);
    t.expect(is_allowed, "FAILED_PRECONDITION, or OK without the volumes")?;
    t.expect(t.volume_exists(&volume).await?, "the volume to be there still")
}

async fn member_deleted(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let group = t.group(&[&volume]).await?;
    t.refused(t.delete(&volume), Code::FailedPrecondition).await?;
    t.expect(t.volume_exists(&volume).await?, "the volume to be there still")?;
    t.regrouped(&group, &[]).await?;
    t.ok(t.delete(&volume)).await?;
    Ok(())
}

/// Whether a call succeeds with secrets that the plugin does not need does not matter.
async fn secrets_not_logged(t: &CheckContext) -> Outcome {
    let hidden = t.name("hidden-value");
    let secrets = || [("conformance".to_owned(), hidden.clone())].into();
    let group = t.group(&[]).await?;
    let create = CreateVolumeGroupRequest { secrets: secrets(), ..t.new_group(&[]) };
    t.ask(create).await?.ok();
    let modify = t.modify_group(&group, &[]);
    t.ask(ModifyVolumeGroupMembershipRequest { secrets: secrets(), ..modify }).await?.ok();
    let get = t.get_group(&group);
    t.ask(ControllerGetVolumeGroupRequest { secrets: secrets(), ..get }).await?.ok();
    let list = t.list_groups(0, "");
    t.ask(ListVolumeGroupsRequest { secrets: secrets(), ..list }).await?.ok();
    let delete = t.delete_group(&group);
    t.ask(DeleteVolumeGroupRequest { secrets: secrets(), ..delete }).await?.ok();
    t.expect(!t.logs()?.contains(&hidden), "the value of a secret nowhere in the log")
}
