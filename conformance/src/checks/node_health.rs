//! NodeGetVolumeHealth and NodeGetStorageHealth (NH), of CSI 1.13.

use tonic::Code;

use super::volume_health::{check_entries, is_camel_case};
use crate::check::{Check, Outcome, Section, Service, blamed, check, run};
use crate::check_context::{CheckContext, Placed};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::CreateDeleteVolume;
use crate::wire::csi::v1::node_get_storage_health_response::StorageBackendHealth;
use crate::wire::csi::v1::node_service_capability::rpc::Type::{
    GetStorageHealth, GetVolumeHealth, StageUnstageVolume,
};
use crate::wire::csi::v1::{
    NodeGetStorageHealthRequest, NodeGetVolumeHealthRequest, StorageHealthErrorType,
};

pub(super) const SECTION: Section = Section {
    title: "NodeGetVolumeHealth",
    service: Service::Node,
    needs: &[Need::Node(GetVolumeHealth), Need::Controller(CreateDeleteVolume)],
    checks: OF_VOLUMES,
    unseen: &[("NH-12", "that other nodes can use the volume is not seen from this one")],
};

pub(super) const STORAGE: Section = Section {
    title: "NodeGetStorageHealth",
    service: Service::Node,
    needs: &[Need::Node(GetStorageHealth)],
    checks: OF_STORAGE,
    unseen: &[],
};

const OF_VOLUMES: &[Check] = &[
    check(
        "node-health-of-a-volume-in-use",
        "asks for the health of a published volume, with and without its paths",
        &["NH-01", "NH-02", "NH-03", "NH-07"],
        run!(in_use),
    ),
    check("node-health-without-id", "leaves out the id", &["NH-04"], run!(without_id)),
    check(
        "node-health-unknown",
        "asks for a volume that is gone, and for one that never was",
        &["NH-05"],
        run!(unknown),
    ),
    check(
        "node-health-elsewhere",
        "asks for a volume that was not staged yet, and for one that was taken back",
        &["NH-06"],
        run!(not_here),
    ),
    check(
        "node-health-relative-paths",
        "asks at paths that are not absolute",
        &["NH-08"],
        run!(relative_paths),
    ),
    check(
        "node-health-after-a-failed-stage",
        "stages a volume while the storage is away, and asks why that failed",
        &["NH-09"],
        run!(after_a_failed_stage),
    )
    .needs(&[Need::Node(StageUnstageVolume), Need::Faults])
    .alone(),
    check(
        "node-health-without-storage",
        "asks for a volume in use while the storage is away",
        &["NH-10", "NH-11"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

const OF_STORAGE: &[Check] = &[
    check(
        "storage-health",
        "asks for the health of storage that is there",
        &["NH-13", "NH-14"],
        run!(storage),
    )
    .alone(),
    check(
        "storage-health-without-storage",
        "asks for the health of storage that is away",
        &["NH-15", "NH-16", "NH-17"],
        run!(storage_away),
    )
    .needs(&[Need::Faults])
    .alone(),
];

fn of(volume_id: &str) -> NodeGetVolumeHealthRequest {
    NodeGetVolumeHealthRequest { volume_id: volume_id.to_owned(), ..Default::default() }
}

async fn used(t: &CheckContext) -> Outcome<Placed> {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    t.placed(&volume, capability).await
}

async fn in_use(t: &CheckContext) -> Outcome {
    let placed = used(t).await?;
    let id = placed.volume.volume_id.as_str();
    let reply = blamed("NH-01", t.ok(of(id)).await)?;
    let health = blamed("NH-02", t.some(reply.volume_health, "a volume_health in the reply"))?;
    blamed("NH-02", t.expect(health.volume_id == id, "the id that was asked for"))?;
    let is_healthy = health.health_statuses.is_empty();
    blamed("NH-03", t.expect(is_healthy, "no health_statuses, as nothing is wrong"))?;
    let (target, staging) = (placed.target.as_str(), placed.staging.as_str());
    for (publish_path, staging_path) in [(target, ""), ("", staging), (target, staging)] {
        let request = NodeGetVolumeHealthRequest {
            volume_publish_path: publish_path.to_owned(),
            staging_target_path: staging_path.to_owned(),
            ..of(id)
        };
        blamed("NH-07", t.ok(request).await)?;
    }
    Ok(())
}

async fn without_id(t: &CheckContext) -> Outcome {
    t.refused(of(""), Code::InvalidArgument).await?;
    Ok(())
}

async fn unknown(t: &CheckContext) -> Outcome {
    let gone = t.deleted_volume().await?;
    for volume_id in [gone, t.unknown_id()] {
        t.refused(of(&volume_id), Code::NotFound).await?;
    }
    Ok(())
}

async fn not_here(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    t.refused(of(&volume.volume_id), Code::NotFound).await?;
    let placed = used(t).await?;
    t.withdrawn(&placed).await?;
    t.refused(of(&placed.volume.volume_id), Code::NotFound).await?;
    Ok(())
}

async fn relative_paths(t: &CheckContext) -> Outcome {
    let placed = used(t).await?;
    let id = placed.volume.volume_id.as_str();
    let path = || "some/path".to_owned();
    let published = NodeGetVolumeHealthRequest { volume_publish_path: path(), ..of(id) };
    let staged = NodeGetVolumeHealthRequest { staging_target_path: path(), ..of(id) };
    for request in [published, staged] {
        t.refused(request, Code::InvalidArgument).await?;
    }
    Ok(())
}

async fn after_a_failed_stage(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let context = t.attached(&volume, &capability).await?;
    let request = t.stage(&volume, &capability, &context)?;
    if t.during_outage(t.settled(request)).await?.is_ok() {
        return t.not_applicable("the plugin stages without its storage");
    }
    let health = t.ok(of(&volume.volume_id)).await?.volume_health.unwrap_or_default();
    t.expect(!health.health_statuses.is_empty(), "an entry that says why it was not staged")
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let placed = used(t).await?;
    let request = of(&placed.volume.volume_id);
    let Ok(reply) = t.during_outage(t.ask(request)).await? else { return Ok(()) };
    let health = reply.volume_health.unwrap_or_default();
    let is_unwell = !health.health_statuses.is_empty();
    blamed("NH-11", t.expect(is_unwell, "a refusal while the storage was away, or an entry"))?;
    check_entries(t, &health, ["NH-10", "NH-10", "NH-10"])
}

async fn storage(t: &CheckContext) -> Outcome {
    let request = NodeGetStorageHealthRequest { secrets: t.secrets() };
    let reply = blamed("NH-13", t.ok(request).await)?;
    blamed("NH-14", t.expect(reply.backend_health.is_empty(), "no entry, as nothing is wrong"))
}

async fn storage_away(t: &CheckContext) -> Outcome {
    let request = NodeGetStorageHealthRequest { secrets: t.secrets() };
    let Ok(reply) = t.during_outage(t.ask(request)).await? else { return Ok(()) };
    let found = reply.backend_health;
    blamed("NH-17", t.expect(!found.is_empty(), "a refusal or an entry"))?;
    for entry in &found {
        let unknown = StorageHealthErrorType::UnknownStorageHealthErrorType;
        let known = StorageHealthErrorType::try_from(entry.status).is_ok_and(|it| it != unknown);
        let fits = known && is_camel_case(&entry.reason);
        blamed("NH-15", t.expect(fits, "a status, and a reason in CamelCase"))?;
        let is_like = |other: &&StorageBackendHealth| {
            (other.status, &other.reason, &other.volume_capability)
                == (entry.status, &entry.reason, &entry.volume_capability)
        };
        let once = found.iter().filter(is_like).count() == 1;
        blamed("NH-16", t.expect(once, "status, reason and capability together once"))?;
    }
    Ok(())
}
