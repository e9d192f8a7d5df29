//! Secrets, and flags that may hold some.

use prost::Message;
use tonic::Code;

use crate::capability::with;
use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::options::Pairs;
use crate::wire::csi::v1::controller_service_capability::rpc::Type as Rpc;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::volume_capability::{AccessType, MountVolume};
use crate::wire::csi::v1::*;

pub(in crate::checks) const SECTION: Section = Section {
    title: "General rules: secrets",
    service: Service::Protocol,
    needs: &[],
    checks: CHECKS,
    unseen: UNSEEN,
};

const MAKES: &[Need] = &[Need::Controller(Rpc::CreateDeleteVolume)];

const CHECKS: &[Check] = &[
    check(
        "secrets-without-the-right",
        "creates a volume with the secrets of somebody who may not",
        &["GEN-20"],
        run!(secrets_without_the_right),
    )
    .needs(&[Need::Controller(Rpc::CreateDeleteVolume), Need::WeakSecrets]),
    check(
        "secrets-that-are-wrong",
        "creates a volume with altered secrets",
        &["GEN-21"],
        run!(secrets_that_are_wrong),
    )
    .needs(&[Need::Controller(Rpc::CreateDeleteVolume), Need::Secrets]),
    check(
        "keys-of-secrets-are-well-formed",
        "reads the keys that the plugin asks for",
        &["GEN-30"],
        run!(keys_are_well_formed),
    )
    .needs(&[Need::Secrets]),
    check(
        "strange-keys-of-secrets-are-refused",
        "sends a secret whose key has a blank",
        &["GEN-31"],
        run!(strange_keys_are_refused),
    )
    .needs(MAKES),
    check(
        "secrets-are-text",
        "sends a secret that is not UTF-8",
        &["GEN-32"],
        run!(secrets_are_text),
    )
    .needs(MAKES),
    check(
        "secrets-of-others-are-ignored",
        "sends secrets that nobody asked for, one in base64, with every call that takes secrets",
        &["GEN-33", "GEN-36"],
        run!(secrets_of_others_are_ignored),
    )
    .needs(MAKES),
    check(
        "secrets-stay-secret",
        "sends a secret with every call that takes one and looks for it in the logs",
        &["GEN-37", "PR-11", "OP-14"],
        run!(secrets_stay_secret),
    )
    .needs(&[Need::Controller(Rpc::CreateDeleteVolume), Need::Logs]),
    check(
        "mount-flags-stay-secret",
        "sends a mount flag that nobody knows and looks for it in answers and logs",
        &["GEN-38"],
        run!(mount_flags_stay_secret),
    )
    .needs(&[Need::Controller(Rpc::CreateDeleteVolume), Need::MountAccess]),
];

const UNSEEN: &[(&str, &str)] = &[
    ("GEN-34", "Which secrets a plugin needs is said in its documents, not in an answer."),
    ("GEN-35", "Which keys mean what to which call is said in the plugin's documents."),
];

async fn secrets_without_the_right(t: &CheckContext) -> Outcome {
    let secrets = t.options().weak_secrets.clone();
    t.refused(CreateVolumeRequest { secrets, ..t.new_volume() }, Code::PermissionDenied).await?;
    Ok(())
}

async fn secrets_that_are_wrong(t: &CheckContext) -> Outcome {
    let mut secrets = t.secrets();
    secrets.values_mut().for_each(|value| value.push_str("-and-wrong"));
    match t.settled(CreateVolumeRequest { secrets, ..t.new_volume() }).await? {
        // This call may need none.
        Ok(_) => t.not_applicable("CreateVolume does not look at the secrets"),
        Err(status) => t.expect(status.code() == Code::Unauthenticated, "UNAUTHENTICATED"),
    }
}

async fn keys_are_well_formed(t: &CheckContext) -> Outcome {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let well_formed = |key: &String| !key.is_empty() && key.chars().all(allowed);
    t.expect(
        t.options().secrets.keys().all(well_formed),
        "keys of letters, digits, '-', '_' and '.' (those given with --secret)",
    )
}

async fn strange_keys_are_refused(t: &CheckContext) -> Outcome {
    let mut secrets = t.secrets();
    secrets.insert("a b".to_owned(), "value".to_owned());
    let request = CreateVolumeRequest { secrets: secrets.clone(), ..t.new_volume() };
    t.refused(request, Code::InvalidArgument).await?;
    let volume = t.volume().await?;
    let request = DeleteVolumeRequest { secrets, ..t.delete(&volume) };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn secrets_are_text(t: &CheckContext) -> Outcome {
    let mut encoded = t.new_volume().encode_to_vec();
    // Field 5, an entry: key "key", value of one byte that begins no character.
    encoded.extend([0x2a, 0x08, 0x0a, 0x03, b'k', b'e', b'y', 0x12, 0x01, 0xff]);
    let answer = t.ask_bytes::<CreateVolumeRequest>(encoded).await?;
    t.expect(answer.is_err(), "a refusal, as a secret is not valid UTF-8")
}

async fn secrets_of_others_are_ignored(t: &CheckContext) -> Outcome {
    let mut secrets = t.secrets();
    secrets.insert("conformance.some-other_key".to_owned(), "AAEC/wD+7+8=".to_owned());
    with_every_call(t, &secrets).await
}

async fn secrets_stay_secret(t: &CheckContext) -> Outcome {
    let marker = t.name("confidential");
    let mut secrets = t.secrets();
    secrets.insert("conformance".to_owned(), marker.clone());
    with_every_call(t, &secrets).await?;
    let refused = CreateVolumeRequest { name: String::new(), secrets, ..t.new_volume() };
    t.ask(refused).await?.ok();
    t.expect(!t.logs()?.contains(&marker), "no secret in the logs")
}

/// Each call that takes secrets, with these; all have to succeed.
async fn with_every_call(t: &CheckContext, secrets: &Pairs) -> Outcome {
    let capability = t.quick_capability();
    let secrets = || secrets.clone();
    let request =
        CreateVolumeRequest { secrets: secrets(), ..t.new_volume_for(capability.clone()) };
    let volume = t.create(request).await?;
    let features = t.features();
    let volume_capabilities = vec![capability.clone()];
    let request = ValidateVolumeCapabilitiesRequest {
        volume_capabilities,
        secrets: secrets(),
        ..t.validate(&volume)
    };
    t.ok(request).await?;
    if features.has_controller(Rpc::CreateDeleteSnapshot) {
        let request = CreateSnapshotRequest { secrets: secrets(), ..t.new_snapshot(&volume) };
        let reply = t.ok(request).await?;
        let snapshot_id = t.some(reply.snapshot, "a snapshot in the reply")?.snapshot_id;
        t.ok(DeleteSnapshotRequest { snapshot_id, secrets: secrets() }).await?;
    }
    if features.has_controller(Rpc::ExpandVolume) {
        let request = ControllerExpandVolumeRequest {
            secrets: secrets(),
            volume_capability: Some(capability.clone()),
            ..t.expand(&volume, 2 * t.size())
        };
        t.ok(request).await?;
    }
    if features.node.is_some() {
        placed_with(t, &volume, &capability, &secrets).await?;
    }
    t.ok(DeleteVolumeRequest { secrets: secrets(), ..t.delete(&volume) }).await?;
    Ok(())
}

async fn placed_with(
    t: &CheckContext,
    volume: &Volume,
    capability: &VolumeCapability,
    secrets: &(dyn Fn() -> Pairs + Sync),
) -> Outcome {
    let mut context = Pairs::new();
    if t.attaches() {
        let request =
            ControllerPublishVolumeRequest { secrets: secrets(), ..t.attach(volume, capability) };
        context = t.ok(request).await?.publish_context;
    }
    let mut staging = String::new();
    if t.stages() {
        let request = t.stage(volume, capability, &context)?;
        staging.clone_from(&request.staging_target_path);
        t.ok(NodeStageVolumeRequest { secrets: secrets(), ..request }).await?;
    }
    let mut placed = crate::check_context::Placed {
        volume: volume.clone(),
        capability: capability.clone(),
        publish_context: context,
        staging,
        target: String::new(),
    };
    let request = NodePublishVolumeRequest { secrets: secrets(), ..t.publish(&placed)? };
    placed.target.clone_from(&request.target_path);
    t.ok(request).await?;
    t.withdrawn(&placed).await
}

async fn mount_flags_stay_secret(t: &CheckContext) -> Outcome {
    let marker = t.name("flag");
    let mount = MountVolume {
        fs_type: t.options().fs_type.clone(),
        mount_flags: vec![format!("password={marker}")],
        ..Default::default()
    };
    let capability = with(AccessType::Mount(mount), Mode::SingleNodeWriter);
    let volume = t.volume().await?;
    let mut texts = Vec::new();
    let created = t.settled(t.new_volume_for(capability.clone())).await?;
    texts.extend(created.err());
    if t.attaches() {
        texts.extend(t.settled(t.attach(&volume, &capability)).await?.err());
    }
    if t.stages() {
        let request = t.stage(&volume, &capability, &Pairs::new())?;
        texts.extend(t.settled(request).await?.err());
    }
    let leaked = texts.iter().any(|status| status.message().contains(&marker));
    t.expect(!leaked, "no mount flag in the text of an error")?;
    if t.options().hooks.logs.is_some() {
        t.expect(!t.logs()?.contains(&marker), "no mount flag in the logs")?;
    }
    Ok(())
}
