//! CreateSnapshot.

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{BANNED_IN_NAMES, CheckContext};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::CreateDeleteSnapshot;
use crate::wire::csi::v1::{CreateSnapshotRequest, Snapshot};

pub(super) const SECTION: Section = Section {
    title: "CreateSnapshot",
    service: Service::Controller,
    needs: &[Need::Controller(CreateDeleteSnapshot)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "create-snapshot-twice",
        "cuts a snapshot twice under one name and gets the same one",
        &["CS-01", "CS-02"],
        run!(twice),
    ),
    check(
        "create-snapshot-reply",
        "looks for the snapshot and its id in the reply",
        &["CS-18", "CS-19"],
        run!(reply),
    ),
    check(
        "create-snapshot-then-write",
        "writes to the volume after the reply and looks for that in a restored copy",
        &["CS-03", "CS-21"],
        run!(then_write),
    )
    .needs(&[Need::NodeService, Need::LocalFiles]),
    check(
        "create-snapshot-ready-is-usable",
        "restores a snapshot as soon as it says that it is ready",
        &["CS-05"],
        run!(ready_is_usable),
    ),
    check(
        "create-snapshot-usable-is-ready",
        "restores a new snapshot and asks whether it is ready",
        &["CS-07"],
        run!(usable_is_ready),
    ),
    check(
        "create-snapshot-until-ready",
        "repeats the call until the snapshot is ready",
        &["CS-06"],
        run!(until_ready),
    ),
    check(
        "create-snapshot-without-source",
        "leaves out the source volume",
        &["CS-10"],
        run!(without_source),
    ),
    check("create-snapshot-without-name", "leaves out the name", &["CS-11"], run!(without_name)),
    check(
        "create-snapshot-with-banned-name",
        "uses each kind of character that names must not hold",
        &["CS-12"],
        run!(with_banned_name),
    ),
    check(
        "create-snapshot-with-unknown-parameter",
        "gives a parameter that means nothing",
        &["CS-13"],
        run!(with_unknown_parameter),
    ),
    check(
        "create-snapshot-of-another-volume",
        "uses the name of a snapshot for another volume",
        &["CS-14"],
        run!(of_another_volume),
    ),
    check(
        "create-snapshot-at-the-same-time",
        "makes four calls for one snapshot at once and counts what they made",
        &["CS-15", "CS-16"],
        run!(at_the_same_time),
    ),
    check(
        "create-snapshot-of-missing-volume",
        "names a volume that was deleted",
        &["CS-20"],
        run!(of_missing_volume),
    ),
    check(
        "create-snapshot-without-space",
        "fills the storage with volumes, then cuts and writes in turn",
        &["CS-17"],
        run!(without_space),
    )
    .needs(&[Need::FillingParameters])
    .alone(),
    check(
        "create-snapshot-without-storage",
        "takes the storage away, calls twice, and looks afterwards whether the answers were true",
        &["CS-08", "CS-09", "CS-22"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

const UNSEEN: &[(&str, &str)] =
    &[("CS-04", "a call that waits for the processing looks like one whose cut takes long")];

async fn created(t: &CheckContext, request: CreateSnapshotRequest) -> Outcome<Snapshot> {
    t.some(t.ok(request).await?.snapshot, "a snapshot in the reply")
}

async fn twice(t: &CheckContext) -> Outcome {
    let request = t.new_snapshot(&t.volume().await?);
    let first = t.ready_snapshot(request.clone()).await?;
    let second = created(t, request).await?;
    t.expect(second.snapshot_id == first.snapshot_id, "the same snapshot_id again")?;
    t.expect(second.creation_time == first.creation_time, "the same creation_time again")?;
    t.expect(t.snapshot_exists(&first).await?, "the snapshot to be there")
}

async fn reply(t: &CheckContext) -> Outcome {
    let request = t.new_snapshot(&t.volume().await?);
    let snapshot = t.some(t.ok(request).await?.snapshot, "snapshot to be set")?;
    t.expect(!snapshot.snapshot_id.is_empty(), "snapshot_id to be set")
}

async fn then_write(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability.clone()).await?;
    let earlier = t.fill(&placed)?;
    let request = t.new_snapshot(&volume);
    // From the first OK on, writes must not matter, ready or not.
    t.ok(request.clone()).await?;
    let later = t.fill(&placed)?;
    t.withdrawn(&placed).await?;
    let snapshot = t.ready_snapshot(request).await?;
    let copy = t.create(t.restore(&snapshot, capability.clone())).await?;
    let copied = t.placed(&copy, capability).await?;
    let is_later = t.content(&copied)? == later;
    t.expect(!is_later, "nothing that was written after the reply in the restored copy")?;
    t.holds(&copied, &earlier)
}

async fn ready_is_usable(t: &CheckContext) -> Outcome {
    let snapshot = t.snapshot(&t.volume().await?).await?;
    t.create(t.restore(&snapshot, t.capability())).await?;
    Ok(())
}

async fn usable_is_ready(t: &CheckContext) -> Outcome {
    let request = t.new_snapshot(&t.volume().await?);
    let snapshot = created(t, request.clone()).await?;
    if snapshot.ready_to_use {
        return Ok(());
    }
    if t.settled(t.restore(&snapshot, t.capability())).await?.is_err() {
        return t.not_applicable("snapshots are processed after the cut");
    }
    let now = created(t, request).await?;
    t.expect(now.ready_to_use, "ready_to_use, as a volume was made from the snapshot")
}

async fn until_ready(t: &CheckContext) -> Outcome {
    let request = t.new_snapshot(&t.volume().await?);
    let first = created(t, request.clone()).await?;
    if first.ready_to_use {
        return t.not_applicable("snapshots are ready at once");
    }
    let again = created(t, request.clone()).await?;
    t.expect(again.snapshot_id == first.snapshot_id, "the same snapshot_id while it is processed")?;
    let ready = t.ready_snapshot(request).await?;
    t.expect(ready.snapshot_id == first.snapshot_id, "the same snapshot_id at the end")
}

async fn without_source(t: &CheckContext) -> Outcome {
    let request = CreateSnapshotRequest {
        source_volume_id: String::new(),
        ..t.new_snapshot(&t.volume().await?)
    };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn without_name(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let request = CreateSnapshotRequest { name: String::new(), ..t.new_snapshot(&volume) };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn with_banned_name(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    for banned in BANNED_IN_NAMES {
        let mut request = t.new_snapshot(&volume);
        request.name.push(banned);
        t.refused(request, Code::InvalidArgument).await?;
    }
    Ok(())
}

async fn with_unknown_parameter(t: &CheckContext) -> Outcome {
    let mut request = t.new_snapshot(&t.volume().await?);
    request.parameters.insert("no-such-parameter".to_owned(), "no-such-value".to_owned());
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn of_another_volume(t: &CheckContext) -> Outcome {
    let (one, other) = (t.volume().await?, t.volume().await?);
    let request = t.new_snapshot(&one);
    t.ok(request.clone()).await?;
    let clash = CreateSnapshotRequest { source_volume_id: other.volume_id, ..request };
    t.refused(clash, Code::AlreadyExists).await?;
    Ok(())
}

async fn at_the_same_time(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let request = t.new_snapshot(&volume);
    let ask = || t.ask(request.clone());
    let answers = tokio::join!(ask(), ask(), ask(), ask());
    for answer in [answers.0?, answers.1?, answers.2?, answers.3?] {
        let busy = answer.err().is_none_or(|status| status.code() == Code::Aborted);
        t.expect(busy, "OK or ABORTED for calls that overlap")?;
    }
    let made = created(t, request).await?;
    if t.lists_snapshots() {
        let listed = t.listed_snapshots(t.list_snapshots_of(&volume)).await?;
        t.expect(
            listed.len() == 1 && listed.iter().all(|it| it.snapshot_id == made.snapshot_id),
            "one snapshot of that volume, the one that was returned",
        )?;
    }
    Ok(())
}

async fn of_missing_volume(t: &CheckContext) -> Outcome {
    let request = t.new_snapshot(&t.volume().await?);
    let source_volume_id = t.deleted_volume().await?;
    t.refused(CreateSnapshotRequest { source_volume_id, ..request }, Code::NotFound).await?;
    Ok(())
}

async fn without_space(t: &CheckContext) -> Outcome {
    t.cut_until_full(|volume| t.new_snapshot(volume)).await
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let request = t.new_snapshot(&t.volume().await?);
    let calls = async { Ok([t.ask(request.clone()).await?, t.ask(request.clone()).await?]) };
    for answer in t.during_outage(calls).await? {
        match answer {
            Err(status) => t.expect_fitting(&status)?,
            Ok(reply) => {
                let snapshot = t.some(reply.snapshot, "a snapshot in the reply")?;
                let there = t.snapshot_exists(&snapshot).await?;
                t.expect(there, "an error, as the snapshot that was returned is not there")?;
            }
        }
    }
    Ok(())
}
