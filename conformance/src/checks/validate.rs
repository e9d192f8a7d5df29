//! ValidateVolumeCapabilities (VC).

use tonic::Code;

use crate::capability::{in_no_mode, mount_of};
use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::CreateDeleteVolume;
use crate::wire::csi::v1::validate_volume_capabilities_response::Confirmed;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::{
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, Volume,
};

pub(super) const SECTION: Section = Section {
    title: "ValidateVolumeCapabilities",
    service: Service::Controller,
    needs: &[Need::ControllerService, Need::Controller(CreateDeleteVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "validate-twice",
        "asks twice about what a volume was made for, and it is confirmed",
        &["VC-01", "VC-02", "VC-03"],
        run!(twice),
    ),
    check(
        "validate-lists-what-it-confirms",
        "looks for capabilities in the confirmation",
        &["VC-06"],
        run!(lists_what_it_confirms),
    ),
    check(
        "validate-echoes-what-was-asked",
        "compares the confirmation with the question, with little and with much in it",
        &["VC-07"],
        run!(echoes_what_was_asked),
    ),
    check(
        "validate-unsupported-use",
        "asks about a good and an impossible capability, in both orders",
        &["VC-04"],
        run!(unsupported_use),
    ),
    check("validate-without-volume", "leaves out the id", &["VC-08"], run!(without_volume)),
    check(
        "validate-without-capabilities",
        "leaves out the capabilities",
        &["VC-09"],
        run!(without_capabilities),
    ),
    check(
        "validate-unknown-volume",
        "asks about a volume that is gone, and about one that never was",
        &["VC-10"],
        run!(unknown_volume),
    ),
    check(
        "validate-altered-context",
        "sends a volume_context that is not the volume's",
        &["VC-11"],
        run!(altered_context),
    ),
    check(
        "validate-without-storage",
        "asks about a volume, and about one that is gone, while the storage is away",
        &["VC-12"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

const UNSEEN: &[(&str, &str)] = &[("VC-05", "a permission: a reason may be given or not")];

fn confirmed(t: &CheckContext, reply: ValidateVolumeCapabilitiesResponse) -> Outcome<Confirmed> {
    t.some(reply.confirmed, "confirmed to be set")
}

async fn twice(t: &CheckContext) -> Outcome {
    let request = t.validate(&t.volume().await?);
    let first = t.ok(request.clone()).await?;
    let second = t.ok(request).await?;
    t.expect(first == second, "the same answer again")?;
    confirmed(t, first)?;
    Ok(())
}

async fn lists_what_it_confirms(t: &CheckContext) -> Outcome {
    let reply = t.ok(t.validate(&t.volume().await?)).await?;
    let confirmed = confirmed(t, reply)?;
    t.expect(!confirmed.volume_capabilities.is_empty(), "at least one confirmed capability")
}

async fn echoes_what_was_asked(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let little = ValidateVolumeCapabilitiesRequest {
        volume_context: Default::default(),
        ..t.validate(&volume)
    };
    let much = ValidateVolumeCapabilitiesRequest {
        parameters: t.options().parameters.clone(),
        mutable_parameters: t.options().mutable_parameters.clone(),
        ..t.validate(&volume)
    };
    for asked in [little, much] {
        let answer = confirmed(t, t.ok(asked.clone()).await?)?;
        let of = |answer: &crate::options::Pairs, asked: &crate::options::Pairs| {
            answer.iter().all(|(key, value)| asked.get(key) == Some(value))
        };
        let only_asked = answer.volume_capabilities.iter().all(|it| *it == t.capability())
            && of(&answer.volume_context, &asked.volume_context)
            && of(&answer.parameters, &asked.parameters)
            && of(&answer.mutable_parameters, &asked.mutable_parameters);
        t.expect(only_asked, "nothing to be confirmed that was not asked about")?;
    }
    Ok(())
}

async fn unsupported_use(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let good = t.capability();
    // An unknown mode may also be treated as a malformed request.
    let mut bad = vec![(in_no_mode(&good), true)];
    if t.options().access.mount() {
        bad.push((mount_of("no-such-filesystem", Mode::SingleNodeWriter), false));
    }
    for (bad, may_refuse) in bad {
        for volume_capabilities in
            [vec![good.clone(), bad.clone()], vec![bad.clone(), good.clone()]]
        {
            let request =
                ValidateVolumeCapabilitiesRequest { volume_capabilities, ..t.validate(&volume) };
            let fits = match t.settled(request).await? {
                Ok(reply) => reply.confirmed.is_none(),
                Err(status) => may_refuse && status.code() == Code::InvalidArgument,
            };
            t.expect(fits, "OK without confirmed")?;
        }
    }
    Ok(())
}

async fn without_volume(t: &CheckContext) -> Outcome {
    t.refused(t.validate(&Volume::default()), Code::InvalidArgument).await?;
    Ok(())
}

async fn without_capabilities(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let request = ValidateVolumeCapabilitiesRequest {
        volume_capabilities: Vec::new(),
        ..t.validate(&volume)
    };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn unknown_volume(t: &CheckContext) -> Outcome {
    let gone = t.deleted_volume().await?;
    for volume_id in [gone, t.unknown_id()] {
        let volume = Volume { volume_id, ..Volume::default() };
        t.refused(t.validate(&volume), Code::NotFound).await?;
    }
    Ok(())
}

async fn altered_context(t: &CheckContext) -> Outcome {
    let mut request = t.validate(&t.volume().await?);
    match request.volume_context.values_mut().next() {
        Some(value) => value.push_str("-altered"),
        None => return t.not_applicable("volumes have no volume_context"),
    }
    match t.settled(request).await? {
        Ok(reply) => t.expect(reply.confirmed.is_none(), "OK without confirmed"),
        Err(status) => t.expect(
            status.code() == Code::InvalidArgument,
            "OK without confirmed, or INVALID_ARGUMENT",
        ),
    }
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let gone = Volume { volume_id: t.deleted_volume().await?, ..Volume::default() };
    let answer = t.during_outage(t.ask(t.validate(&gone))).await?;
    t.expect(answer.is_err(), "a refusal for a volume that is gone, also without storage")?;
    let request = t.validate(&t.volume().await?);
    let answer = t.during_outage(t.ask(request.clone())).await?;
    let whole = t.ok(request).await?;
    let Ok(reply) = answer else { return Ok(()) };
    t.expect(reply == whole, "a refusal while the storage was away, or the answer that is right")
}
