//! The VolumeGroupSnapshot message, and the members in it.

use std::collections::BTreeSet;

use super::{made, two_volumes};
use crate::check::{Check, Outcome, Section, Service, blamed, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::VolumeGroupSnapshot;

pub(in crate::checks) const SECTION: Section = Section {
    title: "CreateVolumeGroupSnapshot: the reply",
    service: Service::GroupController,
    needs: &[Need::GroupSnapshots],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "group-snapshot-reply",
        "looks for what the replies of create and get have to hold",
        &["GG-18", "GG-21"],
        run!(reply),
    ),
    check(
        "group-snapshot-ids-differ",
        "cuts several groups and compares their ids",
        &["GG-19"],
        run!(ids_differ),
    ),
    check(
        "group-snapshot-has-all-members",
        "looks for one member for each volume, each of them there",
        &["GG-07", "GG-20"],
        run!(has_all_members),
    ),
    check(
        "group-snapshot-members-name-it",
        "compares the group's id with what its members say",
        &["GG-24"],
        run!(members_name_it),
    ),
    check(
        "group-snapshot-readiness",
        "compares whether the group is ready with whether its members are",
        &["GG-22", "GG-23"],
        run!(readiness),
    ),
    check(
        "group-snapshot-until-ready",
        "repeats the call until the group is ready",
        &["GG-11"],
        run!(until_ready),
    ),
    check(
        "group-snapshot-members-restore",
        "makes a volume of each member that says that it is ready",
        &["GG-12", "GG-25"],
        run!(members_restore),
    ),
    check(
        "get-snapshot-of-a-group",
        "asks for the members of a group one by one",
        &["GS-02"],
        run!(one_by_one),
    ),
];

async fn reply(t: &CheckContext) -> Outcome {
    let (one, other) = two_volumes(t).await?;
    let reply = t.ok(t.new_group_snapshot(&[&one, &other])).await?;
    let group = t.some(reply.group_snapshot, "group_snapshot to be set by create")?;
    t.expect(group.creation_time.is_some(), "creation_time to be set by create")?;
    let reply = t.ok(t.get_group_snapshot(&group)).await?;
    let group = t.some(reply.group_snapshot, "group_snapshot to be set by get")?;
    t.expect(group.creation_time.is_some(), "creation_time to be set by get")
}

async fn ids_differ(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let mut ids = BTreeSet::new();
    for _ in 0..3 {
        let reply = t.ok(t.new_group_snapshot(&[&volume])).await?;
        let id = reply.group_snapshot.unwrap_or_default().group_snapshot_id;
        t.expect(!id.is_empty(), "group_snapshot_id to be set")?;
        t.expect(ids.insert(id), "another id than those of the groups before")?;
    }
    Ok(())
}

async fn has_all_members(t: &CheckContext) -> Outcome {
    let (one, other) = two_volumes(t).await?;
    let reply = t.ok(t.new_group_snapshot(&[&one, &other])).await?;
    let group = t.some(reply.group_snapshot, "a group snapshot in the reply")?;
    let mut sources: Vec<_> = group.snapshots.iter().map(|it| &it.source_volume_id).collect();
    let mut expected = [&one.volume_id, &other.volume_id];
    sources.sort_unstable();
    expected.sort_unstable();
    t.expect(sources == expected, "one snapshot of each of the two volumes")?;
    for member in &group.snapshots {
        t.expect(t.snapshot_exists(member).await?, "each member to be there")?;
    }
    Ok(())
}

async fn members_name_it(t: &CheckContext) -> Outcome {
    let (one, other) = two_volumes(t).await?;
    let group = t.group_snapshot(&[&one, &other]).await?;
    let read = t.ok(t.get_group_snapshot(&group)).await?.group_snapshot.unwrap_or_default();
    for each in [&group, &read] {
        let named = each.snapshots.iter().all(|it| it.group_snapshot_id == group.group_snapshot_id);
        t.expect(named && !each.snapshots.is_empty(), "the group's id in each of its members")?;
    }
    Ok(())
}

fn is_consistent(t: &CheckContext, group: &VolumeGroupSnapshot) -> Outcome {
    let all = group.snapshots.iter().all(|member| member.ready_to_use);
    let expected = "the group not to be ready before all of its members are";
    blamed("GG-22", t.expect(all || !group.ready_to_use, expected))?;
    let expected = "the group to be ready, as all of its members are";
    blamed("GG-23", t.expect(!all || group.ready_to_use, expected))
}

async fn readiness(t: &CheckContext) -> Outcome {
    let (one, other) = two_volumes(t).await?;
    let group = t.group_snapshot(&[&one, &other]).await?;
    is_consistent(t, &group)?;
    let read = t.ok(t.get_group_snapshot(&group)).await?.group_snapshot;
    is_consistent(t, &read.unwrap_or_default())
}

async fn until_ready(t: &CheckContext) -> Outcome {
    let (one, other) = two_volumes(t).await?;
    let request = t.new_group_snapshot(&[&one, &other]);
    let first = made(t, request.clone()).await?;
    if first.ready_to_use {
        return t.not_applicable("group snapshots are ready at once");
    }
    for _ in 0..100 {
        let now = made(t, request.clone()).await?;
        let same = now.group_snapshot_id == first.group_snapshot_id;
        t.expect(same, "the same group while it is processed")?;
        if now.ready_to_use {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    Err(t.failed("the group to become ready"))
}

async fn members_restore(t: &CheckContext) -> Outcome {
    let (one, other) = two_volumes(t).await?;
    let group = t.group_snapshot(&[&one, &other]).await?;
    let ready: Vec<_> = group.snapshots.iter().filter(|it| it.ready_to_use).collect();
    if ready.is_empty() {
        return t.not_applicable("no member is ready at once");
    }
    for member in ready {
        t.create(t.restore(member, t.capability())).await?;
    }
    Ok(())
}

async fn one_by_one(t: &CheckContext) -> Outcome {
    let (one, other) = two_volumes(t).await?;
    let group = t.group_snapshot(&[&one, &other]).await?;
    for member in &group.snapshots {
        let found = t.ok(t.get_snapshot(member)).await?.snapshot.unwrap_or_default();
        let same = found.snapshot_id == member.snapshot_id
            && found.group_snapshot_id == group.group_snapshot_id;
        t.expect(same, "that member, and the group that it is of")?;
    }
    Ok(())
}
