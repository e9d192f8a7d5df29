//! DeleteVolumeGroupSnapshot.

use tonic::Code;

use super::group_of_two;
use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::DeleteVolumeGroupSnapshotRequest;

pub(in crate::checks) const SECTION: Section = Section {
    title: "DeleteVolumeGroupSnapshot",
    service: Service::GroupController,
    needs: &[Need::GroupSnapshots],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "delete-group-removes-all",
        "deletes a group and looks for it and for its members",
        &["GG-31"],
        run!(removes_all),
    ),
    check(
        "delete-group-twice",
        "deletes a group twice, and one that never was",
        &["GG-32"],
        run!(twice),
    ),
    check("delete-group-without-id", "leaves out the group's id", &["GG-33"], run!(without_id)),
    check(
        "delete-group-without-members",
        "leaves out the members of a group that is there",
        &["GG-34"],
        run!(without_members),
    ),
    check(
        "delete-group-by-halves",
        "leaves out one member and looks that the group is not halved",
        &["GG-35"],
        run!(by_halves),
    ),
    check(
        "delete-group-with-wrong-members",
        "leaves out a member, and adds one that is not of the group",
        &["GG-36"],
        run!(with_wrong_members),
    ),
    check(
        "delete-group-in-use",
        "deletes a group that a volume was made from, and looks at that volume",
        &["GG-37"],
        run!(in_use),
    ),
    check(
        "delete-group-in-another-order",
        "names the members in another order",
        &["GG-46"],
        run!(in_another_order),
    ),
    check(
        "delete-group-without-storage",
        "takes the storage away, deletes, and looks afterwards whether the answer was true",
        &["GG-38"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

async fn removes_all(t: &CheckContext) -> Outcome {
    let group = group_of_two(t).await?;
    t.ok(t.delete_group_snapshot(&group)).await?;
    t.expect(!t.group_snapshot_exists(&group).await?, "the group to be gone")?;
    for member in &group.snapshots {
        t.expect(!t.snapshot_exists(member).await?, "each member to be gone")?;
    }
    Ok(())
}

async fn twice(t: &CheckContext) -> Outcome {
    let group = group_of_two(t).await?;
    t.ok(t.delete_group_snapshot(&group)).await?;
    t.ok(t.delete_group_snapshot(&group)).await?;
    let unknown = DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: t.unknown_id(),
        snapshot_ids: vec![t.unknown_id()],
        secrets: t.secrets(),
    };
    t.ok(unknown).await?;
    Ok(())
}

async fn without_id(t: &CheckContext) -> Outcome {
    let group = group_of_two(t).await?;
    let request = DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: String::new(),
        ..t.delete_group_snapshot(&group)
    };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn without_members(t: &CheckContext) -> Outcome {
    let group = group_of_two(t).await?;
    let request = DeleteVolumeGroupSnapshotRequest {
        snapshot_ids: Vec::new(),
        ..t.delete_group_snapshot(&group)
    };
    t.refused(request, Code::InvalidArgument).await?;
    t.expect(t.group_snapshot_exists(&group).await?, "the group to be there still")
}

async fn by_halves(t: &CheckContext) -> Outcome {
    let group = group_of_two(t).await?;
    let mut request = t.delete_group_snapshot(&group);
    request.snapshot_ids.truncate(1);
    let refused = t.settled(request).await?.is_err();
    for member in &group.snapshots {
        let there = t.snapshot_exists(member).await?;
        let expected = "all members to be there after an error, and none after OK";
        t.expect(there == refused, expected)?;
    }
    Ok(())
}

async fn with_wrong_members(t: &CheckContext) -> Outcome {
    let group = group_of_two(t).await?;
    let request = t.delete_group_snapshot(&group);
    let (mut fewer, mut more) = (request.clone(), request);
    fewer.snapshot_ids.truncate(1);
    t.refused(fewer, Code::InvalidArgument).await?;
    more.snapshot_ids.push(t.unknown_id());
    t.refused(more, Code::InvalidArgument).await?;
    Ok(())
}

async fn in_use(t: &CheckContext) -> Outcome {
    let (volume, content) = t.filled_volume().await?;
    let group = t.group_snapshot(&[&volume]).await?;
    let member = t.some(group.snapshots.first(), "a member of the group")?;
    let copy = t.create(t.restore(member, t.quick_capability())).await?;
    match t.settled(t.delete_group_snapshot(&group)).await? {
        Err(status) => {
            let code = status.code();
            t.expect(code == Code::FailedPrecondition, "OK, or FAILED_PRECONDITION if in use")?;
            t.expect(t.group_snapshot_exists(&group).await?, "the group to be there still")
        }
        // Then the volume must not need it.
        Ok(_) => t.is_whole(&copy, &content).await,
    }
}

async fn in_another_order(t: &CheckContext) -> Outcome {
    let group = group_of_two(t).await?;
    let mut request = t.delete_group_snapshot(&group);
    request.snapshot_ids.reverse();
    t.ok(request).await?;
    Ok(())
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let group = group_of_two(t).await?;
    let answer = t.during_outage(t.ask(t.delete_group_snapshot(&group))).await?;
    if answer.is_ok() {
        let there = t.group_snapshot_exists(&group).await?;
        t.expect(!there, "an error, as the group is still there")?;
    }
    Ok(())
}
