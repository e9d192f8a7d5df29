//! Reclaim space of CSI-Addons (RS).

use prost::Message;
use tonic::Code;

use crate::capability::block;
use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{Answer, CheckContext, Placed, code_of};
use crate::need::Need;
use crate::options::Pairs;
use crate::wire::Rpc;
use crate::wire::csi::v1::Volume;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::identity::capability::reclaim_space::Type;
use crate::wire::reclaimspace::{
    ControllerReclaimSpaceRequest, ControllerReclaimSpaceResponse, NodeReclaimSpaceRequest,
    StorageConsumption,
};

pub(super) const SECTION: Section = Section {
    title: "Reclaim space",
    service: Service::ReclaimSpace,
    needs: &[Need::AddonsIdentity],
    checks: CHECKS,
    unseen: &[],
};

const OFFLINE: Need = Need::ReclaimSpace(Type::Offline);
const ONLINE: Need = Need::ReclaimSpace(Type::Online);

const CHECKS: &[Check] = &[
    check(
        "reclaim-on-controller",
        "reclaims the space of a volume that is not in use, also twice at once",
        &["RS-01", "RS-04"],
        run!(on_controller),
    )
    .needs(&[OFFLINE]),
    check(
        "reclaim-on-node",
        "reclaims the space of a volume that is in use",
        &["RS-01", "RS-08"],
        run!(on_node),
    )
    .needs(&[ONLINE]),
    check("reclaim-without-fields", "leaves out required fields", &["RS-02"], run!(without_fields)),
    check(
        "reclaim-unknown-volume",
        "reclaims the space of volumes that do not exist",
        &["RS-03"],
        run!(unknown_volume),
    ),
    check(
        "reclaim-not-possible",
        "reclaims space, and looks at the code if that cannot be done",
        &["RS-05"],
        run!(not_possible),
    ),
    check(
        "reclaim-with-wrong-secrets",
        "reclaims space with secrets that authenticate nobody",
        &["RS-06"],
        run!(with_wrong_secrets),
    )
    .needs(&[OFFLINE]),
    check(
        "reclaim-when-broken",
        "reclaims space while the storage is away",
        &["RS-07"],
        run!(when_broken),
    )
    .needs(&[OFFLINE, Need::Faults])
    .alone(),
    check(
        "reclaim-at-a-long-path",
        "reclaims the space of a volume at a path of more than 128 bytes",
        &["RS-09"],
        run!(at_a_long_path),
    )
    .needs(&[ONLINE]),
    check(
        "reclaim-of-a-device",
        "reclaims the space of a block volume, with its capability and without",
        &["RS-10"],
        run!(of_a_device),
    )
    .needs(&[ONLINE, Need::BlockAccess]),
];

impl CheckContext {
    fn reclaim(&self, volume: &Volume) -> ControllerReclaimSpaceRequest {
        ControllerReclaimSpaceRequest {
            volume_id: volume.volume_id.clone(),
            parameters: volume.volume_context.clone(),
            secrets: self.secrets(),
        }
    }

    fn reclaim_placed(&self, placed: &Placed) -> NodeReclaimSpaceRequest {
        NodeReclaimSpaceRequest {
            volume_id: placed.volume.volume_id.clone(),
            volume_path: placed.target.clone(),
            staging_target_path: placed.staging.clone(),
            volume_capability: Some(placed.capability.clone()),
            secrets: self.secrets(),
        }
    }

    /// OK, or that it cannot be done.
    async fn reclaimed<R: Rpc>(&self, request: R) -> Outcome<Option<R::Reply>> {
        match self.settled(request).await? {
            Ok(reply) => Ok(Some(reply)),
            Err(status) if status.code() == Code::Unimplemented => Ok(None),
            Err(_) => Err(self.failed("OK, or UNIMPLEMENTED if it cannot be done")),
        }
    }
}

async fn on_controller(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let request = t.reclaim(&volume);
    let (first, second) = tokio::join!(t.ask(request.clone()), t.ask(request.clone()));
    let copes = |answer: &Answer<ControllerReclaimSpaceResponse>| {
        matches!(code_of(answer), Code::Ok | Code::Aborted | Code::Unimplemented)
    };
    t.expect(copes(&first?) && copes(&second?), "OK or ABORTED for each of two calls at once")?;
    let Some(reply) = t.reclaimed(request).await? else { return Ok(()) };
    not_more(t, reply.pre_usage.as_ref(), reply.post_usage.as_ref())
}

/// No negative use, and not more after than before.
fn not_more(
    t: &CheckContext,
    before: Option<&StorageConsumption>,
    after: Option<&StorageConsumption>,
) -> Outcome {
    for usage in before.into_iter().chain(after) {
        t.expect(usage.usage_bytes >= 0, "a usage_bytes that is not negative")?;
    }
    let (Some(before), Some(after)) = (before, after) else { return Ok(()) };
    t.expect(after.usage_bytes <= before.usage_bytes, "no more in use afterwards than before")
}

async fn on_node(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let placed = t.placed(&volume, t.capability()).await?;
    if t.options().local_files && t.options().access.mount() {
        t.write_file(&placed.target_path().join("file"), &[0x5a; 1 << 20])?;
    }
    let request = t.reclaim_placed(&placed);
    let Some(reply) = t.reclaimed(request.clone()).await? else { return Ok(()) };
    not_more(t, reply.pre_usage.as_ref(), reply.post_usage.as_ref())?;
    if !t.options().access.mount() || !t.options().local_files {
        return Ok(());
    }
    // Something was written, so a usage of nothing was not set.
    let encoded = t.ok_bytes(&request).await?;
    t.only_fields("NodeReclaimSpaceResponse", &encoded, &[1, 2])?;
    for number in [1, 2] {
        for usage in t.messages_in(&encoded, number)? {
            t.only_fields("StorageConsumption", &usage, &[1])?;
            let usage = StorageConsumption::decode(usage.as_slice()).unwrap_or_default();
            t.expect(usage.usage_bytes > 0, "usage_bytes to be set in each usage")?;
        }
    }
    Ok(())
}

async fn without_fields(t: &CheckContext) -> Outcome {
    let wrong = Code::InvalidArgument;
    if OFFLINE.is_met(t.features(), t.options()) {
        t.refused(ControllerReclaimSpaceRequest::default(), wrong).await?;
    }
    if !ONLINE.is_met(t.features(), t.options()) {
        return Ok(());
    }
    let volume = t.volume().await?;
    let volume_id = volume.volume_id.clone();
    let no_path = NodeReclaimSpaceRequest { volume_id, ..NodeReclaimSpaceRequest::default() };
    t.refused(no_path, wrong).await?;
    let volume_path = t.target_path()?;
    let no_id = NodeReclaimSpaceRequest { volume_path, ..NodeReclaimSpaceRequest::default() };
    t.refused(no_id, wrong).await?;
    Ok(())
}

async fn unknown_volume(t: &CheckContext) -> Outcome {
    for volume_id in [t.unknown_id(), t.deleted_volume().await?] {
        let volume = Volume { volume_id, ..Volume::default() };
        if OFFLINE.is_met(t.features(), t.options()) {
            t.refused(t.reclaim(&volume), Code::NotFound).await?;
        }
        if ONLINE.is_met(t.features(), t.options()) {
            let placed = Placed {
                volume,
                capability: t.capability(),
                publish_context: Pairs::new(),
                staging: String::new(),
                target: t.target_path()?,
            };
            t.refused(t.reclaim_placed(&placed), Code::NotFound).await?;
        }
    }
    Ok(())
}

async fn not_possible(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let mut possible = true;
    if OFFLINE.is_met(t.features(), t.options()) {
        possible &= t.reclaimed(t.reclaim(&volume)).await?.is_some();
    }
    if ONLINE.is_met(t.features(), t.options()) {
        let placed = t.placed(&volume, t.capability()).await?;
        possible &= t.reclaimed(t.reclaim_placed(&placed)).await?.is_some();
    }
    if possible { t.not_applicable("the storage can reclaim space") } else { Ok(()) }
}

async fn with_wrong_secrets(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let mut secrets: Pairs = t.secrets().into_keys().map(|key| (key, "wrong".into())).collect();
    secrets.insert("conformance".to_owned(), "wrong".to_owned());
    let request = ControllerReclaimSpaceRequest { secrets, ..t.reclaim(&volume) };
    match t.settled(request).await? {
        Ok(_) => t.not_applicable("the plugin needs no secrets to reclaim space"),
        Err(status) => t.expect(status.code() == Code::Unauthenticated, "UNAUTHENTICATED"),
    }
}

/// A plugin that knows what is wrong may say it by another code, but CSI-Addons has no INTERNAL.
async fn when_broken(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let answer = t.during_outage(t.ask(t.reclaim(&volume))).await?;
    let is_reported = !matches!(code_of(&answer), Code::Ok | Code::Internal);
    t.expect(is_reported, "UNKNOWN, or what is wrong, as the storage is away")
}

/// Longer than the 128 bytes that every path may have.
const LONG_PATH: usize = 256;

async fn at_a_long_path(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let staged = t.staged(&volume, t.capability()).await?;
    let target = t.path_of_length(&t.options().target_dir, LONG_PATH)?;
    let placed = t.published_at(staged, target).await?;
    t.reclaimed(t.reclaim_placed(&placed)).await?;
    Ok(())
}

async fn of_a_device(t: &CheckContext) -> Outcome {
    let capability = block(Mode::SingleNodeWriter);
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    let request = t.reclaim_placed(&placed);
    t.reclaimed(NodeReclaimSpaceRequest { volume_capability: None, ..request.clone() }).await?;
    t.reclaimed(request).await?;
    Ok(())
}
