//! GetMetadataAllocated and GetMetadataDelta: the ranges, on a volume that was written to.

use super::reported_ranges::{
    ReportedRanges, allocated, delta, end_of, from_offset, merged, reported,
};
use crate::check::{Check, Outcome, Section, Service, blamed, check, run};
use crate::check_context::{CheckContext, Placed};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteSnapshot, ExpandVolume,
};
use crate::wire::csi::v1::plugin_capability::service::Type::SnapshotMetadataService;
use crate::wire::csi::v1::{
    ControllerExpandVolumeRequest, GetMetadataAllocatedRequest, GetMetadataDeltaRequest, Snapshot,
    Volume,
};

pub(in crate::checks) const SECTION: Section = Section {
    title: "Snapshot metadata: ranges",
    service: Service::SnapshotMetadata,
    needs: &[Need::Plugin(SnapshotMetadataService), Need::Controller(CreateDeleteSnapshot)],
    checks: CHECKS,
    unseen: &[],
};

const NEEDS: &[Need] = &[Need::NodeService, Need::LocalFiles, Need::BlockAccess];

const CHECKS: &[Check] = &[
    check(
        "metadata-form",
        "looks at order, sizes, types and capacities in streams of several page sizes",
        &[
            "SM-02", "SM-03", "SM-04", "SM-05", "SM-06", "SM-07", "SM-08", "SM-09", "SM-11",
            "SM-12", "SM-13",
        ],
        run!(form),
    ),
    check(
        "metadata-covers-what-was-written",
        "writes to a volume between snapshots and looks for each block",
        &["SM-19", "SM-23", "SM-24"],
        run!(covers_what_was_written),
    )
    .needs(NEEDS),
    check(
        "metadata-from-an-offset",
        "starts within ranges, between them and at the end",
        &["SM-16", "SM-17"],
        run!(from_an_offset),
    )
    .needs(NEEDS),
    check(
        "metadata-taken-up-again",
        "breaks a stream off after each message and takes it up behind the last range",
        &["SM-18"],
        run!(taken_up_again),
    )
    .needs(NEEDS),
    check(
        "metadata-of-a-grown-volume",
        "grows a volume between snapshots and looks at the capacity and the new area",
        &["SM-35"],
        run!(of_a_grown_volume),
    )
    .needs(&[Need::Controller(ExpandVolume)]),
];

const BLOCK: usize = 4096;
const BLOCK_BYTES: i64 = 4096;
const PLACES: i64 = 12;

/// Offsets far enough from each other to be separate ranges.
fn places(t: &CheckContext) -> Vec<i64> {
    let apart = t.size() / (PLACES + 1) / BLOCK_BYTES * BLOCK_BYTES;
    (0..PLACES).map(|number| number * apart).collect()
}

pub(super) struct Written {
    volume: Volume,
    pub(super) base: Snapshot,
    pub(super) target: Snapshot,
    /// Offsets of blocks that were written before the base, and between the two.
    early: Vec<i64>,
    late: Vec<i64>,
}

fn write_blocks(t: &CheckContext, placed: &Placed, offsets: &[i64], byte: u8) -> Outcome {
    for offset in offsets {
        let offset = u64::try_from(*offset).unwrap_or_default();
        t.write_device(&placed.target_path(), offset, &[byte; BLOCK])?;
    }
    Ok(())
}

/// Two snapshots, with writes before each where a device can be written to from here.
pub(super) async fn written(t: &CheckContext) -> Outcome<Written> {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    if NEEDS.iter().any(|need| !need.is_met(t.features(), t.options())) {
        let (base, target) = (t.snapshot(&volume).await?, t.snapshot(&volume).await?);
        return Ok(Written { volume, base, target, early: Vec::new(), late: Vec::new() });
    }
    let places = places(t);
    let (early, new) = places.split_at(places.len() / 2);
    // Written again, and made zero again: both differ from the base.
    let (again, zeroed) = (&early[..1], &early[1..2]);
    let placed = t.placed(&volume, capability).await?;
    write_blocks(t, &placed, early, 0xa1)?;
    let base = t.snapshot(&volume).await?;
    write_blocks(t, &placed, new, 0xb2)?;
    write_blocks(t, &placed, again, 0xc3)?;
    write_blocks(t, &placed, zeroed, 0)?;
    let target = t.snapshot(&volume).await?;
    t.withdrawn(&placed).await?;
    let late = [new, again, zeroed].concat();
    Ok(Written { volume, base, target, early: early.to_vec(), late })
}

pub(super) fn paged(
    request: GetMetadataAllocatedRequest,
    max_results: i32,
) -> GetMetadataAllocatedRequest {
    GetMetadataAllocatedRequest { max_results, ..request }
}

pub(super) fn paged_delta(
    request: GetMetadataDeltaRequest,
    max_results: i32,
) -> GetMetadataDeltaRequest {
    GetMetadataDeltaRequest { max_results, ..request }
}

async fn form(t: &CheckContext) -> Outcome {
    let Written { volume, base, target, .. } = written(t).await?;
    for most in [0, 1, 2, 7] {
        let cap = Some(most).filter(|most| *most > 0);
        let of_one = reported(t, paged(allocated(t, &target), most)).await?;
        of_one.check_form(t, &volume, cap)?;
        let of_both = reported(t, paged_delta(delta(t, &base, &target), most)).await?;
        of_both.check_form(t, &volume, cap)?;
    }
    Ok(())
}

fn expect_covered(t: &CheckContext, reported: &ReportedRanges, offsets: &[i64]) -> Outcome {
    for offset in offsets {
        let covered = reported.covers(*offset, BLOCK_BYTES);
        t.expect(covered, format!("a range for the block written at {offset}"))?;
    }
    Ok(())
}

async fn covers_what_was_written(t: &CheckContext) -> Outcome {
    let Written { base, target, early, late, .. } = written(t).await?;
    for most in [0, 1] {
        let of_base = reported(t, paged(allocated(t, &base), most)).await?;
        expect_covered(t, &of_base, &early)?;
        let of_target = reported(t, paged(allocated(t, &target), most)).await?;
        expect_covered(t, &of_target, &early)?;
        expect_covered(t, &of_target, &late)?;
        let of_both = reported(t, paged_delta(delta(t, &base, &target), most)).await?;
        expect_covered(t, &of_both, &late)?;
    }
    Ok(())
}

/// Before, in, at the end of and behind each of the ranges, and at the end of all.
fn offsets(reported: &ReportedRanges) -> Vec<i64> {
    let around = reported.ranges().flat_map(|range| {
        let (start, end) = (range.byte_offset, end_of(range));
        [(start - 1).max(0), start, start + range.size_bytes / 2, end]
    });
    let mut offsets: Vec<_> = around.step_by(3).chain(reported.capacity()).collect();
    offsets.dedup();
    offsets
}

fn expect_from(
    t: &CheckContext,
    full: &ReportedRanges,
    part: &ReportedRanges,
    offset: i64,
) -> Outcome {
    let behind = part.ranges().all(|range| end_of(range) > offset);
    let expected = format!("no range that ends at or before {offset}");
    blamed("SM-16", t.expect(behind, expected))?;
    let expected = from_offset(&full.coverage(), offset);
    let same = from_offset(&part.coverage(), offset) == expected;
    t.expect(same, format!("all that is behind {offset}, as in the full stream"))
}

async fn from_an_offset(t: &CheckContext) -> Outcome {
    let Written { base, target, .. } = written(t).await?;
    let of_one = reported(t, allocated(t, &target)).await?;
    for starting_offset in offsets(&of_one) {
        let request = GetMetadataAllocatedRequest { starting_offset, ..allocated(t, &target) };
        expect_from(t, &of_one, &reported(t, request).await?, starting_offset)?;
    }
    let of_both = reported(t, delta(t, &base, &target)).await?;
    for starting_offset in offsets(&of_both) {
        let request = GetMetadataDeltaRequest { starting_offset, ..delta(t, &base, &target) };
        expect_from(t, &of_both, &reported(t, request).await?, starting_offset)?;
    }
    Ok(())
}

/// What the first messages contained, and where to continue.
fn broken_off(reported: &ReportedRanges, after: usize) -> Option<(Vec<(i64, i64)>, i64)> {
    let received =
        ReportedRanges { messages: reported.messages.iter().take(after).cloned().collect() };
    let last = received.ranges().last().map(end_of)?;
    Some((received.coverage(), last))
}

fn expect_joined(
    t: &CheckContext,
    full: &ReportedRanges,
    received: Vec<(i64, i64)>,
    rest: &ReportedRanges,
) -> Outcome {
    let joined = merged([received, rest.coverage()].concat());
    t.expect(joined == full.coverage(), "the same coverage as of one stream")
}

async fn taken_up_again(t: &CheckContext) -> Outcome {
    let Written { base, target, .. } = written(t).await?;
    let of_one = reported(t, paged(allocated(t, &target), 2)).await?;
    for after in 1..=of_one.messages.len() {
        let Some((received, starting_offset)) = broken_off(&of_one, after) else { continue };
        let request = GetMetadataAllocatedRequest { starting_offset, ..allocated(t, &target) };
        expect_joined(t, &of_one, received, &reported(t, request).await?)?;
    }
    let of_both = reported(t, paged_delta(delta(t, &base, &target), 2)).await?;
    for after in 1..=of_both.messages.len() {
        let Some((received, starting_offset)) = broken_off(&of_both, after) else { continue };
        let request = GetMetadataDeltaRequest { starting_offset, ..delta(t, &base, &target) };
        expect_joined(t, &of_both, received, &reported(t, request).await?)?;
    }
    Ok(())
}

async fn of_a_grown_volume(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let base = t.snapshot(&volume).await?;
    let before = volume.capacity_bytes.max(t.size());
    let request = ControllerExpandVolumeRequest {
        volume_capability: Some(capability.clone()),
        ..t.expand(&volume, before.saturating_mul(2))
    };
    let capacity_bytes = t.ok(request).await?.capacity_bytes;
    let grown = Volume { capacity_bytes, ..volume };
    let looks = NEEDS.iter().all(|need| need.is_met(t.features(), t.options()));
    let new = before / BLOCK_BYTES * BLOCK_BYTES + BLOCK_BYTES;
    if looks {
        let placed = t.placed(&grown, capability).await?;
        write_blocks(t, &placed, &[new], 0xd4)?;
        t.withdrawn(&placed).await?;
    }
    let target = t.snapshot(&grown).await?;
    let reported = reported(t, delta(t, &base, &target)).await?;
    let capacity = reported.capacity();
    t.expect(capacity == Some(capacity_bytes), format!("the target's {capacity_bytes} bytes"))?;
    t.expect(!looks || reported.covers(new, BLOCK_BYTES), "the block written in the new area")
}
