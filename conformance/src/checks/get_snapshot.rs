//! GetSnapshot.

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::GetSnapshotRequest;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteSnapshot, GetSnapshot,
};

pub(super) const SECTION: Section = Section {
    title: "GetSnapshot",
    service: Service::Controller,
    needs: &[Need::Controller(GetSnapshot)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "get-snapshot-reply",
        "looks for the snapshot in the reply",
        &["GS-01", "GS-03"],
        run!(reply),
    )
    .needs(&[Need::Controller(CreateDeleteSnapshot)]),
    check(
        "get-snapshot-is-current",
        "compares with what CreateSnapshot says, and asks again after the snapshot is deleted",
        &["GS-04"],
        run!(is_current),
    )
    .needs(&[Need::Controller(CreateDeleteSnapshot)]),
    check(
        "get-snapshot-while-processed",
        "asks for a snapshot that is not ready yet",
        &["GS-05"],
        run!(while_processed),
    )
    .needs(&[Need::Controller(CreateDeleteSnapshot)]),
    check("get-snapshot-without-id", "leaves out the id", &["GS-06"], run!(without_id)),
    check(
        "get-snapshot-of-nothing",
        "names a snapshot that never was",
        &["GS-07"],
        run!(of_nothing),
    ),
    check(
        "get-snapshot-without-storage",
        "takes the storage away and compares the answer with one from before",
        &["GS-08"],
        run!(without_storage),
    )
    .needs(&[Need::Controller(CreateDeleteSnapshot), Need::Faults])
    .alone(),
];

const UNSEEN: &[(&str, &str)] = &[];

async fn reply(t: &CheckContext) -> Outcome {
    let made = t.snapshot(&t.volume().await?).await?;
    let found = t.ok(t.get_snapshot(&made)).await?.snapshot;
    let found = t.some(found, "snapshot to be set")?;
    t.expect(found.snapshot_id == made.snapshot_id, "the snapshot that was asked for")
}

async fn is_current(t: &CheckContext) -> Outcome {
    let made = t.snapshot(&t.volume().await?).await?;
    let request = t.get_snapshot(&made);
    let found = t.ok(request.clone()).await?.snapshot;
    t.expect(found.as_ref() == Some(&made), "the same as CreateSnapshot has returned")?;
    t.ok(t.delete_snapshot(&made)).await?;
    t.refused(request, Code::NotFound).await?;
    Ok(())
}

async fn while_processed(t: &CheckContext) -> Outcome {
    let request = t.new_snapshot(&t.volume().await?);
    let made = t.some(t.ok(request).await?.snapshot, "a snapshot in the reply")?;
    if made.ready_to_use {
        return t.not_applicable("snapshots are ready at once");
    }
    t.ok(t.get_snapshot(&made)).await?;
    Ok(())
}

async fn without_id(t: &CheckContext) -> Outcome {
    let request = GetSnapshotRequest { secrets: t.secrets(), ..Default::default() };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn of_nothing(t: &CheckContext) -> Outcome {
    let request = GetSnapshotRequest { snapshot_id: t.unknown_id(), secrets: t.secrets() };
    t.refused(request, Code::NotFound).await?;
    Ok(())
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let made = t.snapshot(&t.volume().await?).await?;
    let answer = t.during_outage(t.ask(t.get_snapshot(&made))).await?;
    match answer {
        Err(status) => t.expect_fitting(&status),
        Ok(reply) => t.expect(reply.snapshot.as_ref() == Some(&made), "an error, or the truth"),
    }
}
