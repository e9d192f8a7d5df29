//! GetMetadataAllocated and GetMetadataDelta: what they refuse, and how they end.

mod coverage;
mod reported_ranges;

use tonic::Code;

use self::coverage::{Written, paged, paged_delta, written};
use self::reported_ranges::{ReportedRanges, allocated, delta, reported};
use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{Answer, CheckContext};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::CreateDeleteSnapshot;
use crate::wire::csi::v1::plugin_capability::service::Type::SnapshotMetadataService;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::{
    GetMetadataAllocatedRequest, GetMetadataDeltaRequest, Snapshot, Volume,
};

pub(super) use coverage::SECTION as COVERAGE;

pub(super) const SECTION: Section = Section {
    title: "Snapshot metadata",
    service: Service::SnapshotMetadata,
    needs: &[Need::Plugin(SnapshotMetadataService), Need::Controller(CreateDeleteSnapshot)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "metadata-of-a-blank-volume",
        "reads both streams for a volume that nobody has written to",
        &["SM-01", "SM-22"],
        run!(of_a_blank_volume),
    ),
    check(
        "metadata-negative-results",
        "sets max_results to -1",
        &["SM-15"],
        run!(negative_results),
    ),
    check(
        "metadata-after-giving-up",
        "gives up many streams unread and reads one to the end",
        &["SM-21"],
        run!(after_giving_up),
    ),
    check(
        "metadata-cut-short",
        "takes the storage away in the middle of a stream, and before one",
        &["SM-20", "SM-28", "SM-33"],
        run!(cut_short),
    )
    .needs(&[Need::Faults])
    .alone(),
    check(
        "metadata-allocated-without-id",
        "leaves out the snapshot",
        &["SM-25"],
        run!(allocated_without_id),
    ),
    check(
        "metadata-allocated-of-nothing",
        "names a snapshot that was deleted",
        &["SM-26"],
        run!(allocated_of_nothing),
    ),
    check(
        "metadata-allocated-out-of-range",
        "starts before the volume and behind it",
        &["SM-27"],
        run!(allocated_out_of_range),
    ),
    check(
        "metadata-delta-without-ids",
        "leaves out the base, and the target",
        &["SM-29"],
        run!(delta_without_ids),
    ),
    check(
        "metadata-delta-of-nothing",
        "names a base, and a target, that was deleted",
        &["SM-30"],
        run!(delta_of_nothing),
    ),
    check(
        "metadata-delta-untracked",
        "asks for a delta and tells a refusal that fits from others",
        &["SM-31"],
        run!(delta_untracked),
    ),
    check(
        "metadata-delta-out-of-range",
        "starts before the volume and behind it",
        &["SM-32"],
        run!(delta_out_of_range),
    ),
    check(
        "metadata-delta-of-strangers",
        "swaps base and target, and mixes snapshots of two volumes",
        &["SM-34"],
        run!(delta_of_strangers),
    ),
    check(
        "metadata-of-a-filesystem",
        "reads the metadata of a volume that was mounted",
        &["SM-36"],
        run!(of_a_filesystem),
    )
    .needs(&[Need::NodeService, Need::MountAccess]),
];

const UNSEEN: &[(&str, &str)] = &[
    ("SM-10", "a permission: with ranges of variable length every size is right"),
    ("SM-14", "a permission: without a cap, or below it, every number of ranges is right"),
];

async fn two_snapshots(t: &CheckContext) -> Outcome<(Volume, Snapshot, Snapshot)> {
    let volume = t.volume_for(t.quick_capability()).await?;
    let base = t.snapshot(&volume).await?;
    let target = t.snapshot(&volume).await?;
    Ok((volume, base, target))
}

async fn deleted_snapshot(t: &CheckContext, volume: &Volume) -> Outcome<Snapshot> {
    let snapshot = t.snapshot(volume).await?;
    t.ok(t.delete_snapshot(&snapshot)).await?;
    Ok(snapshot)
}

async fn of_a_blank_volume(t: &CheckContext) -> Outcome {
    let (_, base, target) = two_snapshots(t).await?;
    reported(t, allocated(t, &base)).await?;
    reported(t, delta(t, &base, &target)).await?;
    Ok(())
}

async fn negative_results(t: &CheckContext) -> Outcome {
    let (_, base, target) = two_snapshots(t).await?;
    let request = GetMetadataAllocatedRequest { max_results: -1, ..allocated(t, &base) };
    t.stream_refused(request, Code::InvalidArgument).await?;
    let request = GetMetadataDeltaRequest { max_results: -1, ..delta(t, &base, &target) };
    t.stream_refused(request, Code::InvalidArgument).await?;
    Ok(())
}

/// More than a plugin would keep open for one caller.
const GIVEN_UP: usize = 80;

async fn after_giving_up(t: &CheckContext) -> Outcome {
    let (_, base, target) = two_snapshots(t).await?;
    for _ in 0..GIVEN_UP / 2 {
        let (_, opened) = t.stream_of(allocated(t, &base), 0).await?;
        t.expect(opened.is_ok(), "a stream, however many were given up")?;
        let (_, opened) = t.stream_of(delta(t, &base, &target), 0).await?;
        t.expect(opened.is_ok(), "a stream, however many were given up")?;
    }
    reported(t, allocated(t, &base)).await?;
    Ok(())
}

/// What may be answered without the storage: an error, or the truth.
fn is_true(
    t: &CheckContext,
    reported: &ReportedRanges,
    end: &Answer<()>,
    before: &ReportedRanges,
) -> Outcome {
    let same = reported.coverage() == before.coverage() && reported.capacity() == before.capacity();
    t.expect(end.is_err() || same, "a stream that ends with an error, or that is complete")
}

async fn cut_short(t: &CheckContext) -> Outcome {
    let Written { base, target, .. } = written(t).await?;
    // A message for each range, so that there is a middle.
    let of_one = paged(allocated(t, &base), 1);
    let of_both = paged_delta(delta(t, &base, &target), 1);
    let before = reported(t, of_one.clone()).await?;
    let between = reported(t, of_both.clone()).await?;
    let calls = async { Ok((t.stream(of_one.clone()).await?, t.stream(of_both.clone()).await?)) };
    let ((of_base, base_end), (of_delta, delta_end)) = t.during_outage(calls).await?;
    is_true(t, &of_base.into(), &base_end, &before)?;
    is_true(t, &of_delta.into(), &delta_end, &between)?;
    let (rest, end) = t.stream_into_outage(of_one).await?;
    is_true(t, &rest.into(), &end, &before)?;
    let (rest, end) = t.stream_into_outage(of_both).await?;
    is_true(t, &rest.into(), &end, &between)
}

async fn allocated_without_id(t: &CheckContext) -> Outcome {
    t.stream_refused(allocated(t, &Snapshot::default()), Code::InvalidArgument).await?;
    Ok(())
}

async fn allocated_of_nothing(t: &CheckContext) -> Outcome {
    let volume = t.volume_for(t.quick_capability()).await?;
    let gone = deleted_snapshot(t, &volume).await?;
    t.stream_refused(allocated(t, &gone), Code::NotFound).await?;
    Ok(())
}

async fn allocated_out_of_range(t: &CheckContext) -> Outcome {
    let (_, snapshot, _) = two_snapshots(t).await?;
    let end = reported(t, allocated(t, &snapshot)).await?.capacity();
    let end = t.some(end, "a message that tells the capacity")?;
    for starting_offset in [-1, end + 1, i64::MAX] {
        let request = GetMetadataAllocatedRequest { starting_offset, ..allocated(t, &snapshot) };
        t.stream_refused(request, Code::OutOfRange).await?;
    }
    Ok(())
}

async fn delta_without_ids(t: &CheckContext) -> Outcome {
    let (_, base, target) = two_snapshots(t).await?;
    let none = Snapshot::default();
    t.stream_refused(delta(t, &none, &target), Code::InvalidArgument).await?;
    t.stream_refused(delta(t, &base, &none), Code::InvalidArgument).await?;
    Ok(())
}

async fn delta_of_nothing(t: &CheckContext) -> Outcome {
    let (volume, base, target) = two_snapshots(t).await?;
    let gone = deleted_snapshot(t, &volume).await?;
    t.stream_refused(delta(t, &gone, &target), Code::NotFound).await?;
    t.stream_refused(delta(t, &base, &gone), Code::NotFound).await?;
    Ok(())
}

async fn delta_untracked(t: &CheckContext) -> Outcome {
    let (_, base, target) = two_snapshots(t).await?;
    match t.stream(delta(t, &base, &target)).await?.1 {
        Ok(()) => t.not_applicable("the storage tracks changed blocks, and no call turns it off"),
        Err(status) => {
            let fits = status.code() == Code::FailedPrecondition;
            t.expect(fits, "OK, or FAILED_PRECONDITION if changed blocks are not tracked")
        }
    }
}

async fn delta_out_of_range(t: &CheckContext) -> Outcome {
    let (_, base, target) = two_snapshots(t).await?;
    let end = reported(t, delta(t, &base, &target)).await?.capacity();
    let end = t.some(end, "a message that tells the capacity")?;
    for starting_offset in [-1, end + 1, i64::MAX] {
        let request = GetMetadataDeltaRequest { starting_offset, ..delta(t, &base, &target) };
        t.stream_refused(request, Code::OutOfRange).await?;
    }
    Ok(())
}

async fn delta_of_strangers(t: &CheckContext) -> Outcome {
    let (_, base, target) = two_snapshots(t).await?;
    let (_, stranger, _) = two_snapshots(t).await?;
    for (base, target) in [(&target, &base), (&base, &stranger), (&stranger, &target)] {
        let (_, end) = t.stream(delta(t, base, target)).await?;
        let code = end.err().map_or(Code::Ok, |status| status.code());
        // Another implementer could say that the state of the snapshots is wrong.
        let fits = [Code::InvalidArgument, Code::FailedPrecondition].contains(&code);
        t.expect(fits, "INVALID_ARGUMENT")?;
    }
    Ok(())
}

async fn of_a_filesystem(t: &CheckContext) -> Outcome {
    let capability = t.mount(Mode::SingleNodeWriter);
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    t.withdrawn(&placed).await?;
    let snapshot = t.snapshot(&volume).await?;
    let (messages, end) = t.stream(allocated(t, &snapshot)).await?;
    if let Err(status) = end {
        let code = status.code();
        return t.expect(code == Code::InvalidArgument, "OK, or INVALID_ARGUMENT");
    }
    let reported = ReportedRanges::from(messages);
    reported.check_form(t, &volume, None)?;
    let holds = !t.options().local_files || !reported.coverage().is_empty();
    t.expect(holds, "the blocks that the filesystem has written to the device")
}
