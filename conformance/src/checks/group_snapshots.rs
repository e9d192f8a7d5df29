//! CreateVolumeGroupSnapshot.

mod capabilities;
mod deleting;
mod getting;
mod instant;
mod members;

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{BANNED_IN_NAMES, CheckContext};
use crate::need::Need;
use crate::wire::csi::v1::{CreateVolumeGroupSnapshotRequest, Volume, VolumeGroupSnapshot};

pub(super) use capabilities::SECTION as CAPABILITIES;
pub(super) use deleting::SECTION as DELETING;
pub(super) use getting::SECTION as GETTING;
pub(super) use instant::SECTION as INSTANT;
pub(super) use members::SECTION as MEMBERS;

pub(super) const SECTION: Section = Section {
    title: "CreateVolumeGroupSnapshot",
    service: Service::GroupController,
    needs: &[Need::GroupSnapshots],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "group-snapshot-twice",
        "cuts a group twice under one name and counts the snapshots of its volumes",
        &["GG-06"],
        run!(twice),
    ),
    check("group-snapshot-without-name", "leaves out the name", &["GG-14"], run!(without_name)),
    check(
        "group-snapshot-with-banned-name",
        "uses each kind of character that names must not hold",
        &["GG-15"],
        run!(with_banned_name),
    ),
    check(
        "group-snapshot-without-volumes",
        "leaves out the volumes",
        &["GG-16"],
        run!(without_volumes),
    ),
    check(
        "group-snapshot-with-unknown-parameter",
        "gives a parameter that means nothing",
        &["GG-17"],
        run!(with_unknown_parameter),
    ),
    check(
        "group-snapshot-of-other-volumes",
        "uses the name of a group for fewer volumes, for others, and with other parameters",
        &["GG-26"],
        run!(of_other_volumes),
    ),
    check(
        "group-snapshot-of-places-apart",
        "names volumes that cannot be cut together",
        &["GG-27"],
        run!(of_places_apart),
    )
    .needs(&[Need::OtherParameters, Need::SnapshotsApart]),
    check(
        "group-snapshot-of-a-missing-volume",
        "names a volume that was deleted beside one that is there, and looks for leftovers",
        &["GG-09", "GG-10", "GG-29"],
        run!(of_a_missing_volume),
    ),
    check(
        "group-snapshot-without-space",
        "fills the storage with volumes, then cuts and writes in turn",
        &["GG-28"],
        run!(without_space),
    )
    .needs(&[Need::FillingParameters])
    .alone(),
    check(
        "group-snapshot-without-storage",
        "takes the storage away, cuts, and looks afterwards whether the answer was true",
        &["GG-08", "GG-30"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

const UNSEEN: &[(&str, &str)] =
    &[("GG-13", "no call makes the processing of a snapshot fail that was cut well")];

async fn two_volumes(t: &CheckContext) -> Outcome<(Volume, Volume)> {
    Ok((t.volume().await?, t.volume().await?))
}

async fn group_of_two(t: &CheckContext) -> Outcome<VolumeGroupSnapshot> {
    let (one, other) = two_volumes(t).await?;
    t.group_snapshot(&[&one, &other]).await
}

async fn made(
    t: &CheckContext,
    request: CreateVolumeGroupSnapshotRequest,
) -> Outcome<VolumeGroupSnapshot> {
    t.some(t.ok(request).await?.group_snapshot, "a group snapshot in the reply")
}

/// How many snapshots there are of a volume; `None` if the plugin has no call for that.
async fn count(t: &CheckContext, volume: &Volume) -> Outcome<Option<usize>> {
    if !t.lists_snapshots() {
        return Ok(None);
    }
    Ok(Some(t.listed_snapshots(t.list_snapshots_of(volume)).await?.len()))
}

async fn twice(t: &CheckContext) -> Outcome {
    let (one, other) = two_volumes(t).await?;
    let request = t.new_group_snapshot(&[&one, &other]);
    let first = made(t, request.clone()).await?;
    let mut reordered = request;
    reordered.source_volume_ids.reverse();
    let second = made(t, reordered).await?;
    let same = second.group_snapshot_id == first.group_snapshot_id;
    t.expect(same, "the same group_snapshot_id again")?;
    t.expect(second.creation_time == first.creation_time, "the same creation_time again")?;
    for volume in [&one, &other] {
        let found = count(t, volume).await?;
        t.expect(found.is_none_or(|found| found == 1), "one snapshot of each volume")?;
    }
    Ok(())
}

async fn without_name(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let request = t.new_group_snapshot(&[&volume]);
    let request = CreateVolumeGroupSnapshotRequest { name: String::new(), ..request };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn with_banned_name(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    for banned in BANNED_IN_NAMES {
        let mut request = t.new_group_snapshot(&[&volume]);
        request.name.push(banned);
        t.refused(request, Code::InvalidArgument).await?;
    }
    Ok(())
}

async fn without_volumes(t: &CheckContext) -> Outcome {
    t.refused(t.new_group_snapshot(&[]), Code::InvalidArgument).await?;
    Ok(())
}

fn unknown_parameter() -> (String, String) {
    ("no-such-parameter".to_owned(), "no-such-value".to_owned())
}

async fn with_unknown_parameter(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let mut request = t.new_group_snapshot(&[&volume]);
    request.parameters.extend([unknown_parameter()]);
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn of_other_volumes(t: &CheckContext) -> Outcome {
    let (one, other) = two_volumes(t).await?;
    let request = t.new_group_snapshot(&[&one, &other]);
    t.ok(request.clone()).await?;
    let third = t.volume().await?;
    for volumes in [&[&one][..], &[&one, &third], &[&one, &other, &third]] {
        let source_volume_ids = t.new_group_snapshot(volumes).source_volume_ids;
        let clash = CreateVolumeGroupSnapshotRequest { source_volume_ids, ..request.clone() };
        t.refused(clash, Code::AlreadyExists).await?;
    }
    let mut clash = request;
    clash.parameters.extend([unknown_parameter()]);
    // A parameter that means nothing is wrong before it is another one.
    t.refused_with(clash, &[Code::AlreadyExists, Code::InvalidArgument]).await?;
    Ok(())
}

async fn of_places_apart(t: &CheckContext) -> Outcome {
    let here = t.volume().await?;
    let mut request = t.new_volume();
    request.parameters = t.options().other_parameters.clone();
    let elsewhere = t.create(request).await?;
    let request = t.new_group_snapshot(&[&here, &elsewhere]);
    t.refused(request, Code::FailedPrecondition).await?;
    Ok(())
}

async fn of_a_missing_volume(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let missing = Volume { volume_id: t.deleted_volume().await?, ..Volume::default() };
    for volumes in [[&volume, &missing], [&missing, &volume]] {
        t.refused(t.new_group_snapshot(&volumes), Code::NotFound).await?;
    }
    let left = count(t, &volume).await?;
    t.expect(left.is_none_or(|left| left == 0), "no snapshot to be left of a group that failed")
}

async fn without_space(t: &CheckContext) -> Outcome {
    t.cut_until_full(|volume| t.new_group_snapshot(&[volume])).await
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let (one, other) = two_volumes(t).await?;
    let request = t.new_group_snapshot(&[&one, &other]);
    match t.during_outage(t.ask(request)).await? {
        Err(status) => {
            t.expect_fitting(&status)?;
            let left = count(t, &one).await?;
            t.expect(left.is_none_or(|left| left == 0), "nothing to be left of what failed")
        }
        Ok(reply) => {
            let group = t.some(reply.group_snapshot, "a group snapshot in the reply")?;
            let there = t.group_snapshot_exists(&group).await?;
            t.expect(there, "an error, as the group that was returned is not there")
        }
    }
}
