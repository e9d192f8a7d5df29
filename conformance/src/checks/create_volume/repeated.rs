//! CreateVolume (CV): a name that was used before.

use std::time::Duration;

use tonic::Code;

use super::NEEDS;
use crate::capability::{block, in_mode, is_block};
use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{CheckContext, code_of};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{CloneVolume, ListVolumes};
use crate::wire::csi::v1::plugin_capability::service::Type::VolumeAccessibilityConstraints;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::volume_content_source::{Type, VolumeSource};
use crate::wire::csi::v1::{
    CreateVolumeRequest, TopologyRequirement, ValidateVolumeCapabilitiesRequest,
    VolumeContentSource,
};

pub(in crate::checks) const SECTION: Section = Section {
    title: "CreateVolume: a name that was used before",
    service: Service::Controller,
    needs: NEEDS,
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "create-volume-compatibly",
        "repeats a call with other values that the volume fits as well",
        &["CV-03"],
        run!(compatibly),
    ),
    check(
        "create-volume-in-parallel",
        "makes the same call several times at once and counts the volumes",
        &["CV-04"],
        run!(in_parallel),
    )
    .needs(&[Need::Controller(ListVolumes)])
    .alone(),
    check(
        "create-volume-other-size",
        "repeats a call with a size that the volume does not have",
        &["CV-29"],
        run!(other_size),
    ),
    check(
        "create-volume-other-capabilities",
        "repeats a call with a capability that the volume does not have",
        &["CV-29"],
        run!(other_capabilities),
    ),
    check(
        "create-volume-other-parameters",
        "repeats a call with parameters of another kind of volume",
        &["CV-29"],
        run!(other_parameters),
    )
    .needs(&[Need::OtherParameters]),
    check(
        "create-volume-other-place",
        "repeats a call with a place from where the volume cannot be reached",
        &["CV-29"],
        run!(other_place),
    )
    .needs(&[Need::Plugin(VolumeAccessibilityConstraints)]),
    check(
        "create-volume-other-source",
        "repeats a call with a source, with none, and with another one",
        &["CV-29"],
        run!(other_source),
    )
    .needs(&[Need::Controller(CloneVolume)]),
    check(
        "create-volume-after-hanging-up",
        "hangs up during the call, repeats it and counts the volumes",
        &["CV-35"],
        run!(after_hanging_up),
    )
    .needs(&[Need::Controller(ListVolumes)])
    .alone(),
    check(
        "create-volume-after-crash",
        "ends the plugin during the call, repeats the call and counts the volumes",
        &["CV-35"],
        run!(after_crash),
    )
    .needs(&[Need::Controller(ListVolumes), Need::Restart])
    .alone(),
];

async fn compatibly(t: &CheckContext) -> Outcome {
    let request = t.new_volume();
    let volume = t.create(request.clone()).await?;
    let size = volume.capacity_bytes.max(t.size());
    let ranges = [None, t.range(t.size(), 0), t.range(1, 0), t.range(0, size), t.range(1, size)];
    for capacity_range in ranges {
        let again = t.create(CreateVolumeRequest { capacity_range, ..request.clone() }).await?;
        t.expect(again == volume, "the volume of the first call, as it was returned then")?;
    }
    Ok(())
}

async fn in_parallel(t: &CheckContext) -> Outcome {
    let before = t.listed(0).await?.len();
    let request = t.new_volume();
    let ask = || t.ask(request.clone());
    let answers = tokio::join!(ask(), ask(), ask(), ask(), ask(), ask());
    let answers: [_; 6] = answers.into();
    for answer in answers {
        let code = code_of(&answer?);
        t.expect(matches!(code, Code::Ok | Code::Aborted), "OK or ABORTED for each of the calls")?;
    }
    t.create(request).await?;
    let after = t.listed(0).await?.len();
    t.expect(after == before + 1, "one volume more than before the calls")
}

async fn other_size(t: &CheckContext) -> Outcome {
    let request = t.new_volume();
    let volume = t.create(request.clone()).await?;
    let size = volume.capacity_bytes.max(t.size());
    for capacity_range in [t.range(2 * size, 0), t.range(0, t.size() / 2)] {
        let other = CreateVolumeRequest { capacity_range, ..request.clone() };
        t.refused(other, Code::AlreadyExists).await?;
    }
    Ok(())
}

async fn other_capabilities(t: &CheckContext) -> Outcome {
    let request = t.new_volume();
    let volume = t.create(request.clone()).await?;
    let mut others = vec![in_mode(&t.capability(), Mode::MultiNodeMultiWriter)];
    if t.options().access.block() && !is_block(&t.capability()) {
        others.push(block(Mode::SingleNodeWriter));
    }
    let mut clashes = false;
    for other in others {
        // What the volume can do anyway is no clash.
        let question = ValidateVolumeCapabilitiesRequest {
            volume_capabilities: vec![other.clone()],
            ..t.validate(&volume)
        };
        if t.ok(question).await?.confirmed.is_none() {
            clashes = true;
            let volume_capabilities = vec![other];
            let other = CreateVolumeRequest { volume_capabilities, ..request.clone() };
            t.refused(other, Code::AlreadyExists).await?;
        }
    }
    if clashes { Ok(()) } else { t.not_applicable("every volume can be used in every way") }
}

async fn other_parameters(t: &CheckContext) -> Outcome {
    let request = t.new_volume();
    t.create(request.clone()).await?;
    let parameters = t.options().other_parameters.clone();
    t.refused(CreateVolumeRequest { parameters, ..request }, Code::AlreadyExists).await?;
    Ok(())
}

async fn other_place(t: &CheckContext) -> Outcome {
    let nowhere = t.nowhere()?;
    let request = t.new_volume();
    let volume = t.create(request.clone()).await?;
    if volume.accessible_topology.is_empty() {
        return t.not_applicable("the volume can be reached from everywhere");
    }
    let elsewhere = TopologyRequirement { requisite: vec![nowhere], preferred: Vec::new() };
    let other = CreateVolumeRequest { accessibility_requirements: Some(elsewhere), ..request };
    t.refused(other, Code::AlreadyExists).await?;
    Ok(())
}

async fn other_source(t: &CheckContext) -> Outcome {
    let source = |volume_id: &str| {
        let volume_id = volume_id.to_owned();
        Some(VolumeContentSource { r#type: Some(Type::Volume(VolumeSource { volume_id })) })
    };
    let (first, second) = (t.volume().await?, t.volume().await?);
    let plain = t.new_volume();
    t.create(plain.clone()).await?;
    let volume_content_source = source(&first.volume_id);
    let copy = CreateVolumeRequest { volume_content_source, ..plain.clone() };
    t.refused(copy, Code::AlreadyExists).await?;

    let volume_content_source = source(&first.volume_id);
    let copy = CreateVolumeRequest { volume_content_source, ..t.new_volume() };
    t.create(copy.clone()).await?;
    for volume_content_source in [None, source(&second.volume_id)] {
        let other = CreateVolumeRequest { volume_content_source, ..copy.clone() };
        t.refused(other, Code::AlreadyExists).await?;
    }
    Ok(())
}

async fn after_hanging_up(t: &CheckContext) -> Outcome {
    let before = t.listed(0).await?.len();
    let moments = [0, 200, 1000, 3000].map(Duration::from_micros);
    for after in moments {
        let request = t.new_volume();
        t.abandoned(request.clone(), after).await?;
        t.create(request).await?;
    }
    let after = t.listed(0).await?.len();
    t.expect(after == before + moments.len(), "one volume for each name")
}

async fn after_crash(t: &CheckContext) -> Outcome {
    let before = t.listed(0).await?.len();
    let request = t.new_volume();
    t.abandoned(request.clone(), Duration::from_millis(1)).await?;
    t.restart_plugin()?;
    t.create(request).await?;
    let after = t.listed(0).await?.len();
    t.expect(after == before + 1, "one volume more than before the call")
}
