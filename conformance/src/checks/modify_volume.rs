//! ControllerModifyVolume (MV).

use tonic::Code;

use super::create_volume::spoilt;
use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::options::Pairs;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteVolume, ModifyVolume,
};
use crate::wire::csi::v1::{ControllerModifyVolumeRequest, Volume};

pub(super) const SECTION: Section = Section {
    title: "ControllerModifyVolume",
    service: Service::Controller,
    needs: &[
        Need::Controller(ModifyVolume),
        Need::Controller(CreateDeleteVolume),
        Need::MutableParameters,
    ],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "modify-volume-twice",
        "changes the mutable parameters of a volume twice, and back again",
        &["MV-01", "MV-02"],
        run!(twice),
    ),
    check("modify-volume-without-id", "leaves out the id", &["MV-03"], run!(without_id)),
    check(
        "modify-volume-without-parameters",
        "leaves out the parameters",
        &["MV-04"],
        run!(without_parameters),
    ),
    check(
        "modify-volume-bad-parameters",
        "sends an unknown parameter, and text where a number belongs",
        &["MV-05", "MV-06"],
        run!(bad_parameters),
    ),
    check(
        "modify-volume-unknown",
        "modifies a volume that is gone, and one that never was",
        &["MV-08"],
        run!(unknown),
    ),
    check(
        "modify-volume-keeps-context",
        "compares the volume_context before and after a change",
        &["MV-11"],
        run!(keeps_context),
    ),
    check(
        "modify-volume-without-storage",
        "modifies a volume that is gone while the storage is away",
        &["MV-12"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

const UNSEEN: &[(&str, &str)] = &[
    ("MV-07", "no call tells the value that a parameter of a volume has"),
    ("MV-09", "no call tells the value that a parameter of a volume has"),
    ("MV-10", "a permission: other keys than before may be taken or refused"),
];

fn modify(t: &CheckContext, volume_id: &str, parameters: &Pairs) -> ControllerModifyVolumeRequest {
    ControllerModifyVolumeRequest {
        volume_id: volume_id.to_owned(),
        secrets: t.secrets(),
        mutable_parameters: parameters.clone(),
    }
}

fn change(t: &CheckContext, volume: &Volume) -> ControllerModifyVolumeRequest {
    modify(t, &volume.volume_id, &t.options().changed_parameters)
}

async fn twice(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let (before, after) = (&t.options().mutable_parameters, &t.options().changed_parameters);
    for parameters in [before, after, after, before] {
        t.ok(modify(t, &volume.volume_id, parameters)).await?;
    }
    Ok(())
}

async fn without_id(t: &CheckContext) -> Outcome {
    t.refused(change(t, &Volume::default()), Code::InvalidArgument).await?;
    Ok(())
}

async fn without_parameters(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    t.refused(modify(t, &volume.volume_id, &Pairs::new()), Code::InvalidArgument).await?;
    Ok(())
}

async fn bad_parameters(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    for parameters in spoilt(&t.options().changed_parameters) {
        t.refused(modify(t, &volume.volume_id, &parameters), Code::InvalidArgument).await?;
    }
    Ok(())
}

async fn unknown(t: &CheckContext) -> Outcome {
    let gone = t.deleted_volume().await?;
    for volume_id in [gone, t.unknown_id()] {
        let request = modify(t, &volume_id, &t.options().changed_parameters);
        t.refused(request, Code::NotFound).await?;
    }
    Ok(())
}

async fn keeps_context(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    t.ok(change(t, &volume)).await?;
    let now = t.known(&volume).await?.volume;
    t.expect(now.volume_context == volume.volume_context, "the volume_context of the creation")
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let gone = Volume { volume_id: t.deleted_volume().await?, ..Volume::default() };
    let answer = t.during_outage(t.ask(change(t, &gone))).await?;
    t.expect(answer.is_err(), "a refusal for a volume that is gone, also without storage")
}
