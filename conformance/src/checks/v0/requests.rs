//! Under which numbers requests have their fields: what cannot be read under a number that the
//! plugin knows is refused, and under one that it does not know, passed over.

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::fields::{Field, GARBAGE, Value, delimited_field, varint_field};
use crate::need::Need;
use crate::wire::csi::v0::controller_service_capability::rpc::Type as ControllerRpc;
use crate::wire::csi::v0::volume_capability::access_mode::Mode;
use crate::wire::csi::v0::{CreateVolumeRequest, ValidateVolumeCapabilitiesRequest};
use prost::Message;

pub(in crate::checks) const SECTION: Section = Section {
    title: "csi.v0: requests",
    service: Service::V0,
    needs: &[Need::V0, Need::V0Controller(ControllerRpc::CreateDeleteVolume)],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "v0-create-request",
        "puts something unreadable into each field of CreateVolume and into those of csi.v1",
        &["V0-25"],
        run!(create_request),
    ),
    check(
        "v0-capability-message",
        "asks for access modes of later versions, and for a mount with a field of csi.v1",
        &["V0-24"],
        run!(capability_message),
    ),
    check(
        "v0-validate-request",
        "writes ValidateVolumeCapabilities byte by byte",
        &["V0-17"],
        run!(validate_request),
    ),
    check(
        "v0-secrets-fields",
        "puts something unreadable into the field of the secrets of each call",
        &["V0-12"],
        run!(secrets_fields),
    ),
    check(
        "v0-attributes-fields",
        "puts something unreadable into the field of the attributes of each call",
        &["V0-10"],
        run!(attributes_fields),
    ),
];

async fn create_request(t: &CheckContext) -> Outcome {
    let request = t.v0_new_volume();
    t.v0_create(request.clone()).await?;
    for number in [2, 3, 4, 5] {
        t.reads_field(&request, number).await?;
    }
    // volume_content_source, accessibility_requirements, mutable_parameters
    for number in [6, 7, 8] {
        t.ignores_field(&request, number).await?;
    }
    Ok(())
}

async fn capability_message(t: &CheckContext) -> Outcome {
    let good = t.v0_capability(Mode::SingleNodeWriter);
    let volume = t.v0_volume().await?;
    for mode in [6, 7] {
        let mut later = good.clone();
        later.access_mode.get_or_insert_default().mode = mode;
        let request =
            CreateVolumeRequest { volume_capabilities: vec![later.clone()], ..t.v0_new_volume() };
        t.refused_somehow(request, &format!("there is no access mode {mode}")).await?;
        let answer = t.settled(t.v0_validate(&volume, &[&later])).await?;
        let supported = answer.is_ok_and(|reply| reply.supported);
        t.expect(!supported, format!("access mode {mode} not to be supported"))?;
    }
    if !t.options().access.mount() {
        return Ok(());
    }
    // volume_mount_group of csi.v1
    let mount = delimited_field(3, &GARBAGE);
    let mode = varint_field(1, 1);
    let capability = [delimited_field(2, &mount), delimited_field(3, &mode)].concat();
    let request = CreateVolumeRequest { volume_capabilities: Vec::new(), ..t.v0_new_volume() };
    let encoded = [request.encode_to_vec(), delimited_field(3, &capability)].concat();
    let answer = t.ask_bytes::<CreateVolumeRequest>(encoded).await?;
    t.expect(answer.is_ok(), "OK, as a mount has no field 3")
}

async fn validate_request(t: &CheckContext) -> Outcome {
    let volume = t.v0_volume().await?;
    let capability = t.v0_capability(Mode::SingleNodeWriter).encode_to_vec();
    let mut encoded =
        [delimited_field(1, volume.id.as_bytes()), delimited_field(2, &capability)].concat();
    for (key, value) in &volume.attributes {
        let entry =
            [delimited_field(1, key.as_bytes()), delimited_field(2, value.as_bytes())].concat();
        encoded.extend(delimited_field(3, &entry));
    }
    let answer = t.ask_bytes::<ValidateVolumeCapabilitiesRequest>(encoded).await?;
    let reply = answer.unwrap_or_default();
    let supported = Field { number: 1, value: Value::Varint(1) };
    t.expect(
        t.fields_of(&reply)?.contains(&supported),
        "`supported` for what the volume was made with",
    )?;
    let request = t.v0_validate(&volume, &[&t.v0_capability(Mode::SingleNodeWriter)]);
    for number in [1, 2, 3] {
        t.reads_field(&request, number).await?;
    }
    // Parameters and secrets of csi.v1
    for number in [4, 5, 6] {
        t.ignores_field(&request, number).await?;
    }
    Ok(())
}

async fn secrets_fields(t: &CheckContext) -> Outcome {
    let request = t.v0_new_volume();
    let volume = t.v0_create(request.clone()).await?;
    t.reads_field(&request, 5).await?;
    let capability = t.v0_capability(Mode::SingleNodeWriter);
    let placed = t.v0_placed(&volume, capability.clone()).await?;
    if t.v0_attaches() {
        t.reads_field(&t.v0_attach(&volume, &capability), 5).await?;
    }
    if t.features().v0_stages {
        t.reads_field(&t.v0_stage(&placed), 5).await?;
    }
    t.reads_field(&t.v0_publish(&placed), 7).await?;
    t.v0_withdrawn(&placed).await?;
    if t.v0_attaches() {
        t.v0_attached(&volume, capability).await?;
        t.reads_field(&t.v0_detach(&volume), 3).await?;
        t.ignores_field(&t.v0_detach(&volume), 4).await?;
    }
    t.reads_field(&t.v0_delete(&volume), 2).await?;
    t.ignores_field(&t.v0_delete(&volume), 3).await
}

async fn attributes_fields(t: &CheckContext) -> Outcome {
    let volume = t.v0_volume().await?;
    let capability = t.v0_capability(Mode::SingleNodeWriter);
    t.reads_field(&t.v0_validate(&volume, &[&capability]), 3).await?;
    let placed = t.v0_placed(&volume, capability.clone()).await?;
    if t.v0_attaches() {
        t.reads_field(&t.v0_attach(&volume, &capability), 6).await?;
        t.ignores_field(&t.v0_attach(&volume, &capability), 7).await?;
    }
    if t.features().v0_stages {
        t.reads_field(&t.v0_stage(&placed), 6).await?;
        t.ignores_field(&t.v0_stage(&placed), 7).await?;
    }
    t.reads_field(&t.v0_publish(&placed), 8).await?;
    t.ignores_field(&t.v0_publish(&placed), 9).await
}
