//! GetVolumeGroupSnapshot.

use tonic::Code;

use super::group_of_two;
use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{CheckContext, member_ids};
use crate::need::Need;
use crate::wire::csi::v1::{GetVolumeGroupSnapshotRequest, VolumeGroupSnapshot};

pub(in crate::checks) const SECTION: Section = Section {
    title: "GetVolumeGroupSnapshot",
    service: Service::GroupController,
    needs: &[Need::GroupSnapshots],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "get-group-is-current",
        "compares with what create says, and asks again after the group is deleted",
        &["GG-39"],
        run!(is_current),
    ),
    check("get-group-of-nothing", "names a group that never was", &["GG-40"], run!(of_nothing)),
    check("get-group-without-id", "leaves out the group's id", &["GG-41"], run!(without_id)),
    check(
        "get-group-without-members",
        "leaves out the members of a group that is there",
        &["GG-42"],
        run!(without_members),
    ),
    check(
        "get-group-of-a-part",
        "leaves out one member and looks that no half group is returned",
        &["GG-43"],
        run!(of_a_part),
    ),
    check(
        "get-group-with-wrong-members",
        "leaves out a member, and adds one that is not of the group",
        &["GG-44"],
        run!(with_wrong_members),
    ),
    check(
        "get-group-in-another-order",
        "names the members in another order",
        &["GG-46"],
        run!(in_another_order),
    ),
    check(
        "get-group-without-storage",
        "takes the storage away and compares the answer with one from before",
        &["GG-45"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

async fn read(
    t: &CheckContext,
    request: GetVolumeGroupSnapshotRequest,
) -> Outcome<VolumeGroupSnapshot> {
    t.some(t.ok(request).await?.group_snapshot, "a group snapshot in the reply")
}

/// The order of the members means nothing.
fn is_same(one: &VolumeGroupSnapshot, other: &VolumeGroupSnapshot) -> bool {
    let (mut members, mut others) = (member_ids(one), member_ids(other));
    members.sort_unstable();
    others.sort_unstable();
    members == others
        && one.group_snapshot_id == other.group_snapshot_id
        && one.creation_time == other.creation_time
}

async fn is_current(t: &CheckContext) -> Outcome {
    let group = group_of_two(t).await?;
    let found = read(t, t.get_group_snapshot(&group)).await?;
    t.expect(is_same(&found, &group), "the group that create has returned")?;
    let went_back = group.ready_to_use && !found.ready_to_use;
    t.expect(!went_back, "ready_to_use, as create has said")?;
    t.ok(t.delete_group_snapshot(&group)).await?;
    t.refused(t.get_group_snapshot(&group), Code::NotFound).await?;
    Ok(())
}

async fn of_nothing(t: &CheckContext) -> Outcome {
    let request = GetVolumeGroupSnapshotRequest {
        group_snapshot_id: t.unknown_id(),
        snapshot_ids: vec![t.unknown_id()],
        secrets: t.secrets(),
    };
    t.refused(request, Code::NotFound).await?;
    Ok(())
}

async fn without_id(t: &CheckContext) -> Outcome {
    let group = group_of_two(t).await?;
    let request = GetVolumeGroupSnapshotRequest {
        group_snapshot_id: String::new(),
        ..t.get_group_snapshot(&group)
    };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn without_members(t: &CheckContext) -> Outcome {
    let group = group_of_two(t).await?;
    let request =
        GetVolumeGroupSnapshotRequest { snapshot_ids: Vec::new(), ..t.get_group_snapshot(&group) };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn of_a_part(t: &CheckContext) -> Outcome {
    let group = group_of_two(t).await?;
    let mut request = t.get_group_snapshot(&group);
    request.snapshot_ids.truncate(1);
    let Ok(reply) = t.settled(request).await? else { return Ok(()) };
    let whole = reply.group_snapshot.is_some_and(|found| is_same(&found, &group));
    t.expect(whole, "an error, or the whole group")
}

async fn with_wrong_members(t: &CheckContext) -> Outcome {
    let group = group_of_two(t).await?;
    let request = t.get_group_snapshot(&group);
    let (mut fewer, mut more) = (request.clone(), request);
    fewer.snapshot_ids.truncate(1);
    t.refused(fewer, Code::InvalidArgument).await?;
    more.snapshot_ids.push(t.unknown_id());
    t.refused(more, Code::InvalidArgument).await?;
    Ok(())
}

async fn in_another_order(t: &CheckContext) -> Outcome {
    let group = group_of_two(t).await?;
    let mut request = t.get_group_snapshot(&group);
    request.snapshot_ids.reverse();
    let found = read(t, request).await?;
    t.expect(is_same(&found, &group), "the group")
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let group = group_of_two(t).await?;
    let answer = t.during_outage(t.ask(t.get_group_snapshot(&group))).await?;
    match answer {
        Err(status) => t.expect_fitting(&status),
        Ok(reply) => {
            let found = reply.group_snapshot.unwrap_or_default();
            t.expect(is_same(&found, &group), "an error, or the truth")
        }
    }
}
