//! ControllerExpandVolume: what it answers.

mod growing;

use tonic::Code;

use crate::capability::{block, in_mode, is_block};
use crate::check::{Check, Outcome, Section, Service, check, optional, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteVolume, ExpandVolume,
};
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::{
    ControllerExpandVolumeRequest, ValidateVolumeCapabilitiesRequest, Volume, VolumeCapability,
};

pub(super) use growing::SECTION as GROWING;

pub(super) const SECTION: Section = Section {
    title: "ControllerExpandVolume",
    service: Service::Controller,
    needs: &[Need::Controller(ExpandVolume), Need::Controller(CreateDeleteVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check("expand-volume-twice", "grows a volume twice", &["CE-01", "CE-02"], run!(twice)),
    check(
        "expand-volume-reply",
        "compares the size that is returned with what was asked for",
        &["CE-06"],
        run!(reply),
    ),
    check(
        "expand-volume-not-needed",
        "asks for the present size and for less, and looks for the size afterwards",
        &["CE-03", "CE-17"],
        run!(not_needed),
    ),
    check("expand-volume-without-id", "leaves out the id", &["CE-04"], run!(without_id)),
    check("expand-volume-without-range", "leaves out the range", &["CE-05"], run!(without_range)),
    check(
        "expand-volume-without-capability",
        "leaves out the capability",
        &["CE-19"],
        run!(without_capability),
    ),
    check(
        "expand-volume-with-foreign-capability",
        "names a capability that the volume does not have",
        &["CE-10"],
        run!(with_foreign_capability),
    ),
    check("expand-volume-of-nothing", "names a deleted volume", &["CE-11"], run!(of_nothing)),
    check(
        "expand-volume-without-end",
        "asks for more than any storage holds",
        &["CE-13"],
        run!(without_end),
    ),
    check(
        "expand-volume-within-a-limit",
        "asks for one byte more and allows no more than that",
        &["CE-16"],
        run!(within_a_limit),
    ),
    check(
        "expand-volume-without-storage",
        "takes the storage away, grows, and looks afterwards whether the answer was true",
        &["CE-20"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

const UNSEEN: &[(&str, &str)] = &[];

/// Without a capability, and without a limit.
/// What the plugin says about the volume now; `None` if it has no call for that.
async fn known_capacity(t: &CheckContext, volume: &Volume) -> Outcome<Option<i64>> {
    Ok(optional(t.known(volume).await)?.map(|known| known.volume.capacity_bytes))
}

/// A volume may be larger than the smallest one that was asked for.
fn doubled(t: &CheckContext, volume: &Volume) -> i64 {
    volume.capacity_bytes.max(t.size()).saturating_mul(2)
}

async fn twice(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let request = t.expand(&volume, doubled(t, &volume));
    let first = t.ok(request.clone()).await?;
    let second = t.ok(request).await?;
    t.expect(second.capacity_bytes == first.capacity_bytes, "the same capacity_bytes again")
}

async fn reply(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let required = doubled(t, &volume);
    let grown = t.ok(t.expand(&volume, required)).await?.capacity_bytes;
    t.expect(grown >= required, format!("capacity_bytes of at least {required}"))?;
    if let Some(known) = known_capacity(t, &volume).await? {
        t.expect(known == grown, format!("the capacity that the expansion returned, {grown}"))?;
    }
    Ok(())
}

async fn not_needed(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let grown = t.ok(t.expand(&volume, doubled(t, &volume))).await?.capacity_bytes;
    for required in [grown, grown / 2, 1] {
        let now = t.ok(t.expand(&volume, required)).await?.capacity_bytes;
        t.expect(now == grown, format!("capacity_bytes to stay at {grown}"))?;
        if let Some(known) = known_capacity(t, &volume).await? {
            t.expect(known == grown, format!("the volume to keep its {grown} bytes"))?;
        }
    }
    Ok(())
}

async fn without_id(t: &CheckContext) -> Outcome {
    let request = t.expand(&Volume::default(), t.size());
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn without_range(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let request =
        ControllerExpandVolumeRequest { capacity_range: None, ..t.expand(&volume, t.size()) };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn without_capability(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let required = doubled(t, &volume);
    let grown = t.ok(t.expand(&volume, required)).await?.capacity_bytes;
    t.expect(grown >= required, format!("capacity_bytes of at least {required}"))
}

/// The other access type first; a plugin may allow that, but hardly all modes.
fn others(t: &CheckContext, own: &VolumeCapability) -> Vec<VolumeCapability> {
    let other =
        if is_block(own) { t.mount(Mode::SingleNodeWriter) } else { block(Mode::SingleNodeWriter) };
    let modes = [Mode::MultiNodeMultiWriter, Mode::MultiNodeSingleWriter];
    let widened = modes.map(|mode| in_mode(own, mode));
    [other].into_iter().chain(widened).collect()
}

async fn is_confirmed(
    t: &CheckContext,
    volume: &Volume,
    capability: &VolumeCapability,
) -> Outcome<bool> {
    let request = ValidateVolumeCapabilitiesRequest {
        volume_capabilities: vec![capability.clone()],
        parameters: t.options().parameters.clone(),
        ..t.validate(volume)
    };
    Ok(t.ok(request).await?.confirmed.is_some())
}

async fn with_foreign_capability(t: &CheckContext) -> Outcome {
    let own = t.capability();
    let volume = t.volume_for(own.clone()).await?;
    for other in others(t, &own) {
        if is_confirmed(t, &volume, &other).await? {
            continue;
        }
        let request = ControllerExpandVolumeRequest {
            volume_capability: Some(other),
            ..t.expand(&volume, doubled(t, &volume))
        };
        t.refused(request, Code::InvalidArgument).await?;
        return Ok(());
    }
    t.not_applicable("the volume can be used in every way")
}

async fn of_nothing(t: &CheckContext) -> Outcome {
    let volume = Volume { volume_id: t.deleted_volume().await?, ..Volume::default() };
    t.refused(t.expand(&volume, t.size()), Code::NotFound).await?;
    Ok(())
}

/// 4 EiB
const NO_STORAGE_HOLDS: i64 = 1 << 62;

async fn without_end(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    t.refused(t.expand(&volume, NO_STORAGE_HOLDS), Code::OutOfRange).await?;
    Ok(())
}

async fn within_a_limit(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let before = volume.capacity_bytes.max(t.size());
    let limit = before + 1;
    let capacity_range = t.range(limit, limit);
    let request = ControllerExpandVolumeRequest { capacity_range, ..t.expand(&volume, limit) };
    match t.settled(request).await? {
        Ok(reply) => t.expect(reply.capacity_bytes == limit, format!("exactly {limit} bytes"))?,
        Err(status) => {
            let code = status.code();
            t.expect(code == Code::OutOfRange, "OK, or OUT_OF_RANGE if no step is that small")?;
        }
    }
    match known_capacity(t, &volume).await? {
        Some(now) => t.expect(now <= limit, format!("at most {limit} bytes")),
        None => Ok(()),
    }
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let required = doubled(t, &volume);
    let answer = t.during_outage(t.ask(t.expand(&volume, required))).await?;
    match (answer, known_capacity(t, &volume).await?) {
        (Err(status), _) => t.expect_fitting(&status),
        (Ok(_), Some(now)) => t.expect(now >= required, "an error, as the volume has not grown"),
        (Ok(_), None) => t.not_applicable("there is no call that tells a volume's size"),
    }
}
