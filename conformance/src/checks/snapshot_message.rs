//! The Snapshot message (SN).

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, blamed, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type as Rpc;
use crate::wire::csi::v1::{
    CreateSnapshotRequest, CreateVolumeRequest, CreateVolumeResponse, DeleteSnapshotRequest,
    GetSnapshotRequest, GetVolumeGroupSnapshotRequest, Snapshot, Volume,
};

pub(super) const SECTION: Section = Section {
    title: "Snapshot",
    service: Service::Controller,
    needs: &[
        Need::Controller(Rpc::CreateDeleteVolume),
        Need::Controller(Rpc::CreateDeleteSnapshot),
    ],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "snapshots-have-ids-of-their-own",
        "takes several snapshots and compares their ids",
        &["SN-01"],
        run!(ids_of_their_own),
    ),
    check(
        "snapshots-name-their-source",
        "takes, lists and gets a snapshot and reads its source and its size",
        &["SN-02", "SN-05"],
        run!(name_their_source),
    ),
    check(
        "snapshots-tell-when-they-were-taken",
        "compares creation_time with the clock, and with what is said later",
        &["SN-03"],
        run!(tell_when_they_were_taken),
    ),
    check(
        "ready-snapshots-can-be-restored",
        "creates a volume from a snapshot that is ready",
        &["SN-04"],
        run!(ready_can_be_restored),
    ),
    check(
        "restored-volumes-are-large-enough",
        "restores a snapshot without asking for a size, and with too small a limit",
        &["SN-06"],
        run!(restored_are_large_enough),
    ),
    check(
        "members-that-stay-name-their-group",
        "deletes a member of a group snapshot alone and looks whether it had to stay",
        &["SN-07"],
        run!(members_that_stay),
    )
    .needs(&[Need::GroupSnapshots]),
    check(
        "snapshots-of-no-group-can-be-deleted",
        "deletes a snapshot that names no group",
        &["SN-08"],
        run!(snapshots_of_no_group),
    ),
    check(
        "members-name-their-group",
        "compares the group of each member of a group snapshot",
        &["SN-09"],
        run!(members_name_their_group),
    )
    .needs(&[Need::GroupSnapshots]),
    check(
        "snapshots-of-snapshots",
        "gives a snapshot's id as the source of a snapshot",
        &["SN-10"],
        run!(snapshots_of_snapshots),
    ),
];

async fn ids_of_their_own(t: &CheckContext) -> Outcome {
    let volumes = [t.volume().await?, t.volume().await?];
    let mut ids = BTreeSet::new();
    for volume in volumes.iter().cycle().take(4) {
        let snapshot = t.snapshot(volume).await?;
        t.expect(!snapshot.snapshot_id.is_empty(), "a snapshot_id")?;
        t.expect(ids.insert(snapshot.snapshot_id), "an id that no other snapshot has")?;
    }
    Ok(())
}

/// The snapshot as every call shows it that can.
async fn seen(t: &CheckContext, snapshot: &Snapshot) -> Outcome<Vec<Snapshot>> {
    let mut seen: Vec<_> = t.snapshot_listed_as(snapshot).await?.into_iter().collect();
    if t.features().has_controller(Rpc::GetSnapshot) {
        let snapshot_id = snapshot.snapshot_id.clone();
        let request = GetSnapshotRequest { snapshot_id, secrets: t.secrets() };
        seen.extend(t.ok(request).await?.snapshot);
    }
    Ok(seen)
}

async fn name_their_source(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let snapshot = t.snapshot(&volume).await?;
    let mut all = seen(t, &snapshot).await?;
    all.push(snapshot);
    for snapshot in all {
        let same = snapshot.source_volume_id == volume.volume_id;
        blamed("SN-02", t.expect(same, "the volume that it was taken of as source_volume_id"))?;
        blamed("SN-05", t.expect(snapshot.size_bytes >= 0, "a size_bytes of 0 or more"))?;
    }
    Ok(())
}

/// Clocks of two machines differ.
const SKEW_SECONDS: i64 = 30;

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

async fn tell_when_they_were_taken(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let request = t.new_snapshot(&volume);
    let before = now();
    let reply = t.ok(request.clone()).await?;
    let after = now();
    let snapshot = t.some(reply.snapshot, "a snapshot in the reply")?;
    let taken = t.some(snapshot.creation_time, "a creation_time")?;
    let window = before - SKEW_SECONDS..=after + SKEW_SECONDS;
    t.expect(window.contains(&taken.seconds), "a creation_time within the call")?;
    let mut all = seen(t, &snapshot).await?;
    all.extend(t.ok(request).await?.snapshot);
    for again in all {
        t.expect(again.creation_time == Some(taken), "the creation_time that was told first")?;
    }
    Ok(())
}

async fn ready_can_be_restored(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let reply = t.ok(t.new_snapshot(&volume)).await?;
    let snapshot = t.some(reply.snapshot, "a snapshot in the reply")?;
    let restored = t.settled(t.restore(&snapshot, t.capability())).await?;
    t.expect(restored.is_ok() || !snapshot.ready_to_use, "OK, as the snapshot is ready_to_use")
}

async fn restored_are_large_enough(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let snapshot = t.snapshot(&volume).await?;
    let size = snapshot.size_bytes;
    if size == 0 {
        return t.not_applicable("the plugin does not tell the size of snapshots");
    }
    let request =
        CreateVolumeRequest { capacity_range: None, ..t.restore(&snapshot, t.capability()) };
    // Not every plugin restores without a size in the request; none may restore into less.
    if let Ok(CreateVolumeResponse { volume: Some(restored) }) = t.settled(request).await? {
        let capacity = restored.capacity_bytes;
        t.expect(capacity == 0 || capacity >= size, format!("at least {size} bytes"))?;
    }
    let exact = t.range(size, size);
    t.create(CreateVolumeRequest { capacity_range: exact, ..t.restore(&snapshot, t.capability()) })
        .await?;
    let smaller = t.range(0, size / 2);
    let request =
        CreateVolumeRequest { capacity_range: smaller, ..t.restore(&snapshot, t.capability()) };
    let answer = t.settled(request).await?;
    t.expect(answer.is_err(), "a refusal, as the limit is below what the snapshot needs")
}

async fn members_of(t: &CheckContext, volumes: &[&Volume]) -> Outcome<(String, Vec<Snapshot>)> {
    let group = t.group_snapshot(volumes).await?;
    Ok((group.group_snapshot_id, group.snapshots))
}

async fn members_that_stay(t: &CheckContext) -> Outcome {
    let volumes = [t.volume().await?, t.volume().await?];
    let (_, members) = members_of(t, &[&volumes[0], &volumes[1]]).await?;
    for member in members {
        let snapshot_id = member.snapshot_id.clone();
        let request = DeleteSnapshotRequest { snapshot_id, secrets: t.secrets() };
        if t.settled(request).await?.is_ok() {
            continue;
        }
        let mut all = seen(t, &member).await?;
        all.push(member);
        for member in all {
            let named = !member.group_snapshot_id.is_empty();
            t.expect(named, "a group_snapshot_id, as it cannot be deleted alone")?;
        }
    }
    Ok(())
}

async fn snapshots_of_no_group(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let snapshot = t.snapshot(&volume).await?;
    if !snapshot.group_snapshot_id.is_empty() {
        return t.not_applicable("every snapshot of this plugin is in a group");
    }
    let snapshot_id = snapshot.snapshot_id;
    t.ok(DeleteSnapshotRequest { snapshot_id, secrets: t.secrets() }).await?;
    Ok(())
}

async fn members_name_their_group(t: &CheckContext) -> Outcome {
    let volumes = [t.volume().await?, t.volume().await?];
    let (group, members) = members_of(t, &[&volumes[0], &volumes[1]]).await?;
    let request = GetVolumeGroupSnapshotRequest {
        group_snapshot_id: group.clone(),
        snapshot_ids: members.iter().map(|it| it.snapshot_id.clone()).collect(),
        secrets: t.secrets(),
    };
    let again = t.ok(request).await?.group_snapshot;
    let again = t.some(again, "a group snapshot in the reply")?.snapshots;
    for member in members.iter().chain(&again) {
        let same = member.group_snapshot_id == group;
        t.expect(same, "the group's id as group_snapshot_id of each member")?;
    }
    Ok(())
}

async fn snapshots_of_snapshots(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let source_volume_id = t.snapshot(&volume).await?.snapshot_id;
    let request = CreateSnapshotRequest { source_volume_id, ..t.new_snapshot(&volume) };
    let codes = [Code::NotFound, Code::InvalidArgument, Code::FailedPrecondition];
    t.refused_with(request, &codes).await?;
    Ok(())
}
