//! ControllerGetVolumeHealth and ControllerListVolumeHealth (VH), of CSI 1.13.

use std::collections::BTreeSet;

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, blamed, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteVolume, GetVolumeHealth, ListVolumeHealth,
};
use crate::wire::csi::v1::{
    ControllerGetVolumeHealthRequest, ControllerListVolumeHealthRequest, Volume, VolumeHealth,
    VolumeHealthErrorType,
};

pub(super) const SECTION: Section = Section {
    title: "ControllerGetVolumeHealth",
    service: Service::Controller,
    needs: &[Need::Controller(GetVolumeHealth), Need::Controller(CreateDeleteVolume)],
    checks: GETTING,
    unseen: UNSEEN,
};

pub(super) const LISTING: Section = Section {
    title: "ControllerListVolumeHealth",
    service: Service::Controller,
    needs: &[Need::Controller(ListVolumeHealth), Need::Controller(CreateDeleteVolume)],
    checks: LISTED,
    unseen: &[],
};

const GETTING: &[Check] = &[
    check(
        "volume-health-of-a-fresh-volume",
        "asks for the health of a volume that was just made",
        &["VH-01", "VH-04", "VH-05"],
        run!(fresh),
    ),
    check("volume-health-without-id", "leaves out the id", &["VH-06"], run!(without_id)),
    check(
        "volume-health-unknown",
        "asks for the health of a volume that is gone, and of one that never was",
        &["VH-07"],
        run!(unknown),
    ),
    check(
        "volume-health-without-storage",
        "asks for the health of a volume while the storage is away, and when it is back",
        &["VH-08", "VH-09", "VH-10", "VH-19", "VH-20"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

const LISTED: &[Check] = &[
    check(
        "list-volume-health",
        "lists what is not healthy, and looks for a volume that was just made",
        &["VH-02", "VH-11"],
        run!(leaves_out_healthy),
    ),
    check(
        "list-volume-health-needs-get",
        "looks for GET_VOLUME_HEALTH beside LIST_VOLUME_HEALTH",
        &["VH-03"],
        run!(needs_get),
    ),
    check("list-volume-health-negative", "asks for -1 entries", &["VH-15"], run!(negative)),
    check(
        "list-volume-health-garbage-token",
        "goes on from tokens that were never handed out",
        &["VH-16"],
        run!(garbage_token),
    ),
    check(
        "list-volume-health-without-storage",
        "lists what is not healthy while the storage is away, as a whole and in pages",
        &["VH-12", "VH-13", "VH-14", "VH-17", "VH-18", "VH-19"],
        run!(listed_without_storage),
    )
    .needs(&[Need::Faults, Need::Controller(GetVolumeHealth)])
    .alone(),
];

const UNSEEN: &[(&str, &str)] = &[
    ("VH-21", "a permission: volumes that come and go while a list is read may be missing from it"),
    ("VH-22", "that no other node can use a volume is not seen from this one"),
    ("VH-23", "no call loses data on purpose, and no other call shows what was lost"),
];

fn get(t: &CheckContext, volume_id: &str) -> ControllerGetVolumeHealthRequest {
    ControllerGetVolumeHealthRequest { volume_id: volume_id.to_owned(), secrets: t.secrets() }
}

fn list(
    t: &CheckContext,
    max_entries: i32,
    starting_token: &str,
) -> ControllerListVolumeHealthRequest {
    let starting_token = starting_token.to_owned();
    ControllerListVolumeHealthRequest { max_entries, starting_token, secrets: t.secrets() }
}

async fn fresh(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let reply = blamed("VH-01", t.ok(get(t, &volume.volume_id)).await)?;
    let health = blamed("VH-04", t.some(reply.volume_health, "a volume_health in the reply"))?;
    let is_it = health.volume_id == volume.volume_id;
    blamed("VH-04", t.expect(is_it, "the id that was asked for"))?;
    let is_healthy = health.health_statuses.is_empty();
    blamed("VH-05", t.expect(is_healthy, "no health_statuses, as nothing is wrong"))
}

async fn without_id(t: &CheckContext) -> Outcome {
    t.refused(get(t, ""), Code::InvalidArgument).await?;
    Ok(())
}

async fn unknown(t: &CheckContext) -> Outcome {
    let gone = t.deleted_volume().await?;
    for volume_id in [gone, t.unknown_id()] {
        t.refused(get(t, &volume_id), Code::NotFound).await?;
    }
    Ok(())
}

/// Upper camel case: words that begin with a capital, and nothing between them.
pub(super) fn is_camel_case(reason: &str) -> bool {
    reason.starts_with(|first: char| first.is_ascii_uppercase())
        && reason.chars().all(|letter| letter.is_ascii_alphanumeric())
}

/// Each row by which a status, a reason or a pair of them can be wrong.
pub(super) fn check_entries(
    t: &CheckContext,
    health: &VolumeHealth,
    [of_status, of_reason, of_pairs]: [&'static str; 3],
) -> Outcome {
    let mut pairs = BTreeSet::new();
    for entry in &health.health_statuses {
        let unknown = VolumeHealthErrorType::UnknownVolumeHealthType;
        let known = VolumeHealthErrorType::try_from(entry.status).is_ok_and(|it| it != unknown);
        blamed(of_status, t.expect(known, "DEGRADED, INACCESSIBLE or DATA_LOSS"))?;
        let fits = is_camel_case(&entry.reason);
        blamed(of_reason, t.expect(fits, "a reason that is one word in CamelCase"))?;
        let is_new = pairs.insert((entry.status, entry.reason.clone()));
        blamed(of_pairs, t.expect(is_new, "each pair of status and reason once"))?;
    }
    Ok(())
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let request = get(t, &volume.volume_id);
    if let Ok(reply) = t.during_outage(t.ask(request.clone())).await? {
        let health = blamed("VH-19", t.some(reply.volume_health, "a volume_health in the reply"))?;
        let is_unwell = !health.health_statuses.is_empty();
        blamed("VH-19", t.expect(is_unwell, "a refusal while the storage was away, or an entry"))?;
        check_entries(t, &health, ["VH-08", "VH-09", "VH-10"])?;
    }
    let back = t.ok(request).await?.volume_health;
    let is_healthy = back.is_some_and(|health| health.health_statuses.is_empty());
    blamed("VH-20", t.expect(is_healthy, "no entry any more, as the storage is back"))
}

async fn leaves_out_healthy(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let reply = blamed("VH-02", t.ok(list(t, 0, "")).await)?;
    let listed = reply.entries.iter().any(|entry| entry.volume_id == volume.volume_id);
    let all_unwell = reply.entries.iter().all(|entry| !entry.health_statuses.is_empty());
    blamed("VH-11", t.expect(!listed && all_unwell, "healthy volumes to be left out"))
}

async fn needs_get(t: &CheckContext) -> Outcome {
    let has_both = t.features().has_controller(GetVolumeHealth);
    t.expect(has_both, "GET_VOLUME_HEALTH beside LIST_VOLUME_HEALTH")
}

async fn negative(t: &CheckContext) -> Outcome {
    t.refused(list(t, -1, ""), Code::InvalidArgument).await?;
    Ok(())
}

async fn garbage_token(t: &CheckContext) -> Outcome {
    t.volume().await?;
    for token in ["garbage-4d1f5a", "-1", "4294967295"] {
        t.refused(list(t, 1, token), Code::Aborted).await?;
    }
    Ok(())
}

fn ids(entries: &[VolumeHealth]) -> Vec<String> {
    entries.iter().map(|entry| entry.volume_id.clone()).collect()
}

async fn listed_without_storage(t: &CheckContext) -> Outcome {
    let volumes = [t.volume().await?, t.volume().await?, t.volume().await?];
    t.during_outage(looked_through(t, &volumes)).await
}

async fn looked_through(t: &CheckContext, volumes: &[Volume]) -> Outcome {
    let Ok(whole) = t.ask(list(t, 0, "")).await? else { return Ok(()) };
    let listed = ids(&whole.entries);
    let some = "a refusal while the storage was away, or entries";
    blamed("VH-19", t.expect(!listed.is_empty(), some))?;
    let all_there = volumes.iter().all(|volume| listed.contains(&volume.volume_id));
    blamed("VH-12", t.expect(all_there, "every volume that is not healthy"))?;
    for entry in &whole.entries {
        let got = t.ok(get(t, &entry.volume_id)).await?.volume_health.unwrap_or_default();
        let same = got.health_statuses == entry.health_statuses;
        blamed("VH-18", t.expect(same, "the entries that ControllerGetVolumeHealth has"))?;
    }
    in_pages(t, &listed).await
}

async fn in_pages(t: &CheckContext, listed: &[String]) -> Outcome {
    let mut found = Vec::new();
    let mut token = String::new();
    for _ in listed {
        let page = t.ok(list(t, 1, &token)).await?;
        blamed("VH-13", t.expect(page.entries.len() <= 1, "at most one entry"))?;
        found.extend(ids(&page.entries));
        token = page.next_token;
        if token.is_empty() {
            break;
        }
    }
    let went_on = found.len() > 1 || listed.len() < 2;
    blamed("VH-14", t.expect(went_on, "a next_token, as there are more"))?;
    let (found, listed): (BTreeSet<_>, BTreeSet<_>) =
        (found.into_iter().collect(), listed.iter().cloned().collect());
    blamed("VH-17", t.expect(found == listed, "the same volumes in pages as in one list"))
}
