//! DeleteSnapshot.

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::DeleteSnapshotRequest;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::CreateDeleteSnapshot;

pub(super) const SECTION: Section = Section {
    title: "DeleteSnapshot",
    service: Service::Controller,
    needs: &[Need::Controller(CreateDeleteSnapshot)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "delete-snapshot-removes-it",
        "deletes a snapshot and looks for it",
        &["DS-01"],
        run!(removes_it),
    ),
    check(
        "delete-snapshot-twice",
        "deletes a snapshot twice, and one that never was",
        &["DS-02"],
        run!(twice),
    ),
    check("delete-snapshot-without-id", "leaves out the id", &["DS-03"], run!(without_id)),
    check(
        "delete-snapshot-of-a-group",
        "deletes a member of a group snapshot on its own",
        &["DS-04", "DS-05"],
        run!(of_a_group),
    )
    .needs(&[Need::GroupSnapshots]),
    check(
        "delete-snapshot-with-its-group",
        "deletes a group snapshot and looks for its members",
        &["DS-06"],
        run!(with_its_group),
    )
    .needs(&[Need::GroupSnapshots]),
    check(
        "delete-snapshot-in-use",
        "deletes a snapshot that a volume was made from, and looks at that volume",
        &["DS-07"],
        run!(in_use),
    ),
    check(
        "delete-snapshot-at-the-same-time",
        "makes four calls for one snapshot at once",
        &["DS-08", "DS-09"],
        run!(at_the_same_time),
    ),
    check(
        "delete-snapshot-without-storage",
        "takes the storage away, deletes, and looks afterwards whether the answer was true",
        &["DS-10"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

const UNSEEN: &[(&str, &str)] = &[];

async fn removes_it(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let (gone, kept) = (t.snapshot(&volume).await?, t.snapshot(&volume).await?);
    t.ok(t.delete_snapshot(&gone)).await?;
    t.expect(!t.snapshot_exists(&gone).await?, "the snapshot to be gone")?;
    t.refused(t.restore(&gone, t.capability()), Code::NotFound).await?;
    t.expect(t.snapshot_exists(&kept).await?, "the other snapshot to stay")
}

async fn twice(t: &CheckContext) -> Outcome {
    let snapshot = t.snapshot(&t.volume().await?).await?;
    let request = t.delete_snapshot(&snapshot);
    t.ok(request.clone()).await?;
    t.ok(request.clone()).await?;
    t.ok(DeleteSnapshotRequest { snapshot_id: t.unknown_id(), ..request }).await?;
    Ok(())
}

async fn without_id(t: &CheckContext) -> Outcome {
    let request = DeleteSnapshotRequest { secrets: t.secrets(), ..Default::default() };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn of_a_group(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let group = t.group_snapshot(&[&volume]).await?;
    let member = t.some(group.snapshots.first(), "a member of the group")?;
    match t.settled(t.delete_snapshot(member)).await? {
        Err(status) => {
            let code = status.code();
            t.expect(code == Code::InvalidArgument, "INVALID_ARGUMENT if it is refused")?;
            t.expect(t.snapshot_exists(member).await?, "the member to be there still")
        }
        Ok(_) => {
            t.expect(!t.snapshot_exists(member).await?, "the member to be gone after OK")?;
            t.not_applicable("members of a group may be deleted one by one")
        }
    }
}

async fn with_its_group(t: &CheckContext) -> Outcome {
    let (one, other) = (t.volume().await?, t.volume().await?);
    let group = t.group_snapshot(&[&one, &other]).await?;
    t.ok(t.delete_group_snapshot(&group)).await?;
    for member in &group.snapshots {
        t.expect(!t.snapshot_exists(member).await?, "each member to be gone with its group")?;
    }
    Ok(())
}

async fn in_use(t: &CheckContext) -> Outcome {
    let (volume, content) = t.filled_volume().await?;
    let snapshot = t.snapshot(&volume).await?;
    let copy = t.create(t.restore(&snapshot, t.quick_capability())).await?;
    match t.settled(t.delete_snapshot(&snapshot)).await? {
        Err(status) => {
            let code = status.code();
            t.expect(code == Code::FailedPrecondition, "OK, or FAILED_PRECONDITION if in use")?;
            t.expect(t.snapshot_exists(&snapshot).await?, "the snapshot to be there still")
        }
        // Then the volume must not need it.
        Ok(_) => t.is_whole(&copy, &content).await,
    }
}

async fn at_the_same_time(t: &CheckContext) -> Outcome {
    let snapshot = t.snapshot(&t.volume().await?).await?;
    let ask = || t.ask(t.delete_snapshot(&snapshot));
    let answers = tokio::join!(ask(), ask(), ask(), ask());
    for answer in [answers.0?, answers.1?, answers.2?, answers.3?] {
        let busy = answer.err().is_none_or(|status| status.code() == Code::Aborted);
        t.expect(busy, "OK or ABORTED for calls that overlap")?;
    }
    t.ok(t.delete_snapshot(&snapshot)).await?;
    t.expect(!t.snapshot_exists(&snapshot).await?, "the snapshot to be gone")
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let snapshot = t.snapshot(&t.volume().await?).await?;
    let request = t.delete_snapshot(&snapshot);
    let answer = t.during_outage(t.ask(request)).await?;
    if answer.is_ok() {
        let there = t.snapshot_exists(&snapshot).await?;
        t.expect(!there, "an error, as the snapshot is still there")?;
    }
    Ok(())
}
