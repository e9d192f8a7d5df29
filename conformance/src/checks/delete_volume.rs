//! DeleteVolume (DV).

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteSnapshot, CreateDeleteVolume, PublishUnpublishVolume,
};
use crate::wire::csi::v1::{DeleteVolumeRequest, Snapshot, Volume};

pub(super) const SECTION: Section = Section {
    title: "DeleteVolume",
    service: Service::Controller,
    needs: &[Need::Controller(CreateDeleteVolume)],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "delete-volume-twice",
        "deletes a volume twice, and sees that it is gone",
        &["DV-01", "DV-02", "DV-03"],
        run!(twice),
    ),
    check("delete-volume-without-id", "leaves out the id", &["DV-04"], run!(without_id)),
    check(
        "delete-volume-never-issued",
        "deletes a volume with an id that the plugin never issued",
        &["DV-10"],
        run!(never_issued),
    ),
    check(
        "delete-volume-keeps-snapshots",
        "deletes a volume that has a snapshot, then lists the snapshot and restores it",
        &["DV-05", "DV-06"],
        run!(keeps_snapshots),
    )
    .needs(&[Need::Controller(CreateDeleteSnapshot)]),
    check(
        "delete-volume-held-by-snapshots",
        "is refused to delete a volume that has a snapshot, and finds it unchanged",
        &["DV-07"],
        run!(held_by_snapshots),
    )
    .needs(&[Need::Controller(CreateDeleteSnapshot)]),
    check(
        "delete-volume-in-use",
        "deletes a volume that is published to a node",
        &["DV-08"],
        run!(in_use),
    )
    .needs(&[Need::Controller(PublishUnpublishVolume)]),
    check(
        "delete-volume-without-storage",
        "deletes a volume while the storage is away",
        &["DV-09"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

/// Still there, and as good as it was.
async fn is_unharmed(t: &CheckContext, volume: &Volume) -> Outcome {
    let reply = t.ok(t.validate(volume)).await?;
    t.expect(reply.confirmed.is_some(), "the volume to be as it was")
}

async fn twice(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    t.ok(t.delete(&volume)).await?;
    t.refused(t.validate(&volume), Code::NotFound).await?;
    t.ok(t.delete(&volume)).await?;
    Ok(())
}

async fn without_id(t: &CheckContext) -> Outcome {
    let request = DeleteVolumeRequest { volume_id: String::new(), secrets: t.secrets() };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn never_issued(t: &CheckContext) -> Outcome {
    t.ok(DeleteVolumeRequest { volume_id: t.unknown_id(), secrets: t.secrets() }).await?;
    Ok(())
}

async fn keeps_snapshots(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let snapshot = t.snapshot(&volume).await?;
    match t.settled(t.delete(&volume)).await? {
        Ok(_) => {}
        Err(status) if status.code() == Code::FailedPrecondition => {
            return t.not_applicable("a volume with snapshots cannot be deleted here");
        }
        Err(_) => return Err(t.failed("OK or FAILED_PRECONDITION")),
    }
    if t.lists_snapshots() {
        is_listed(t, &snapshot).await?;
    }
    t.create(t.restore(&snapshot, t.capability())).await?;
    Ok(())
}

async fn is_listed(t: &CheckContext, snapshot: &Snapshot) -> Outcome {
    let listed = t.snapshot_listed_as(snapshot).await?;
    let usable = listed.is_some_and(|it| it.snapshot_id == snapshot.snapshot_id && it.ready_to_use);
    t.expect(usable, "the snapshot to be listed and ready after its volume is gone")
}

async fn held_by_snapshots(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    t.snapshot(&volume).await?;
    match t.settled(t.delete(&volume)).await? {
        Ok(_) => t.not_applicable("a volume can be deleted while its snapshots are kept"),
        Err(status) if status.code() == Code::FailedPrecondition => is_unharmed(t, &volume).await,
        Err(_) => Err(t.failed("OK or FAILED_PRECONDITION")),
    }
}

async fn in_use(t: &CheckContext) -> Outcome {
    let capability = t.capability();
    let volume = t.volume_for(capability.clone()).await?;
    t.attached(&volume, &capability).await?;
    t.refused(t.delete(&volume), Code::FailedPrecondition).await?;
    is_unharmed(t, &volume).await?;
    t.ok(t.detach(&volume)).await?;
    t.ok(t.delete(&volume)).await?;
    Ok(())
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let answer = t.during_outage(t.ask(t.delete(&volume))).await?;
    if answer.is_ok() {
        t.refused(t.validate(&volume), Code::NotFound).await?;
    }
    t.ok(t.delete(&volume)).await?;
    Ok(())
}
