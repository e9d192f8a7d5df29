//! ControllerPublishVolume (CP).

use tonic::Code;

use crate::capability::{in_mode, in_no_mode};
use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::options::Pairs;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteVolume, PublishReadonly, PublishUnpublishVolume,
};
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::{
    ControllerPublishVolumeRequest, CreateVolumeRequest, GetCapacityRequest, Volume,
};

pub(super) const SECTION: Section = Section {
    title: "ControllerPublishVolume",
    service: Service::Controller,
    needs: &[
        Need::Controller(PublishUnpublishVolume),
        Need::Controller(CreateDeleteVolume),
        Need::NodeService,
    ],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "controller-publish-twice",
        "publishes a volume twice and compares what is returned",
        &["CP-01", "CP-04", "CP-19"],
        run!(twice),
    ),
    check(
        "controller-publish-makes-available",
        "publishes a volume to the node and then uses it there",
        &["CP-03"],
        run!(makes_available),
    ),
    check("controller-publish-without-volume", "leaves out the id", &["CP-05"], run!(no_volume)),
    check("controller-publish-without-node", "leaves out the node", &["CP-06"], run!(no_node)),
    check(
        "controller-publish-without-capability",
        "leaves out the capability",
        &["CP-07"],
        run!(no_capability),
    ),
    check(
        "controller-publish-unsupported-use",
        "asks for an access mode that nobody can have",
        &["CP-08"],
        run!(unsupported_use),
    ),
    check(
        "controller-publish-readonly",
        "publishes a volume read-only and tries to write on the node",
        &["CP-09", "CC-05"],
        run!(readonly),
    )
    .needs(&[Need::Controller(PublishReadonly), Need::LocalFiles]),
    check(
        "controller-publish-readonly-not-offered",
        "asks a plugin for read-only that says it cannot",
        &["CP-10"],
        run!(readonly_not_offered),
    )
    .needs(&[Need::NoController(PublishReadonly)]),
    check(
        "controller-publish-altered-context",
        "sends a volume_context that is not the volume's",
        &["CP-11"],
        run!(altered_context),
    ),
    check(
        "controller-publish-unknown-volume",
        "publishes a volume that is gone, and one that never was",
        &["CP-12"],
        run!(unknown_volume),
    ),
    check(
        "controller-publish-unknown-node",
        "publishes to a node that does not exist",
        &["CP-13"],
        run!(unknown_node),
    ),
    check(
        "controller-publish-otherwise",
        "publishes a volume again with the other value of readonly",
        &["CP-14"],
        run!(otherwise),
    )
    .needs(&[Need::Controller(PublishReadonly)]),
    check(
        "controller-publish-second-node",
        "publishes a volume for one node to a second one",
        &["CP-15"],
        run!(second_node),
    )
    .needs(&[Need::OtherNode]),
    check(
        "controller-publish-names-holder",
        "reads which node holds a volume that cannot go to a second one",
        &["CP-16"],
        run!(names_holder),
    )
    .needs(&[Need::OtherNode]),
    check(
        "controller-publish-to-full-node",
        "publishes as many volumes as the node says it can take, and one more",
        &["CP-17"],
        run!(to_full_node),
    )
    .alone(),
    check(
        "controller-publish-many-nodes",
        "publishes a volume for many nodes to two",
        &["CP-18"],
        run!(many_nodes),
    )
    .needs(&[Need::OtherNode]),
    check(
        "controller-publish-keeps-secrets",
        "sends a secret and looks for it in the publish_context",
        &["CP-20"],
        run!(keeps_secrets),
    ),
    check(
        "controller-publish-without-storage",
        "publishes a volume, and one that is gone, while the storage is away",
        &["CP-22"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

const UNSEEN: &[(&str, &str)] = &[
    ("CP-02", "which machine a plugin takes itself to be on does not show in its answers"),
    (
        "CP-21",
        "a plugin gets the volume_id with every publish_context, so what it goes by is unseen",
    ),
];

async fn twice(t: &CheckContext) -> Outcome {
    let capability = t.capability();
    let volume = t.volume_for(capability.clone()).await?;
    let first = t.ok(t.attach(&volume, &capability)).await?;
    let second = t.ok(t.attach(&volume, &capability)).await?;
    t.expect(first.publish_context == second.publish_context, "the same publish_context again")
}

async fn makes_available(t: &CheckContext) -> Outcome {
    let capability = t.capability();
    let volume = t.volume_for(capability.clone()).await?;
    t.placed(&volume, capability).await?;
    Ok(())
}

/// A publication of a new volume that is right, to be made wrong.
async fn good(t: &CheckContext) -> Outcome<ControllerPublishVolumeRequest> {
    let capability = t.capability();
    let volume = t.volume_for(capability.clone()).await?;
    Ok(t.attach(&volume, &capability))
}

async fn no_volume(t: &CheckContext) -> Outcome {
    let request = ControllerPublishVolumeRequest { volume_id: String::new(), ..good(t).await? };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn no_node(t: &CheckContext) -> Outcome {
    let request = ControllerPublishVolumeRequest { node_id: String::new(), ..good(t).await? };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn no_capability(t: &CheckContext) -> Outcome {
    let request = ControllerPublishVolumeRequest { volume_capability: None, ..good(t).await? };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn unsupported_use(t: &CheckContext) -> Outcome {
    let volume_capability = Some(in_no_mode(&t.capability()));
    let request = ControllerPublishVolumeRequest { volume_capability, ..good(t).await? };
    t.refused_with(request, &[Code::InvalidArgument, Code::FailedPrecondition]).await?;
    Ok(())
}

async fn readonly(t: &CheckContext) -> Outcome {
    for capability in t.capabilities(Mode::SingleNodeWriter) {
        let volume = t.volume_for(capability.clone()).await?;
        // A filesystem has to be made before it can be read.
        let written = t.placed(&volume, capability.clone()).await?;
        t.expect(t.is_writable(&written.target_path()), "a writable volume before")?;
        t.withdrawn(&written).await?;
        let mut placed = written;
        let request =
            ControllerPublishVolumeRequest { readonly: true, ..t.attach(&volume, &capability) };
        placed.publish_context = t.ok(request).await?.publish_context;
        if t.stages() {
            let request = t.stage(&volume, &capability, &placed.publish_context)?;
            placed.staging.clone_from(&request.staging_target_path);
            t.ok(request).await?;
        }
        let request = t.publish(&placed)?;
        placed.target.clone_from(&request.target_path);
        t.ok(request).await?;
        t.expect(!t.is_writable(&placed.target_path()), "that nothing can be written there")?;
    }
    Ok(())
}

async fn readonly_not_offered(t: &CheckContext) -> Outcome {
    let request = ControllerPublishVolumeRequest { readonly: true, ..good(t).await? };
    match t.settled(request).await? {
        Ok(_) => t.not_applicable("readonly is ignored where PUBLISH_READONLY is not offered"),
        Err(status) if status.code() == Code::InvalidArgument => Ok(()),
        Err(_) => Err(t.failed("INVALID_ARGUMENT")),
    }
}

async fn altered_context(t: &CheckContext) -> Outcome {
    let mut request = good(t).await?;
    match request.volume_context.values_mut().next() {
        Some(value) => value.push_str("-altered"),
        None => return t.not_applicable("volumes have no volume_context"),
    }
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn unknown_volume(t: &CheckContext) -> Outcome {
    let gone = t.deleted_volume().await?;
    for volume_id in [gone, t.unknown_id()] {
        let volume = Volume { volume_id, ..Volume::default() };
        t.refused(t.attach(&volume, &t.capability()), Code::NotFound).await?;
    }
    Ok(())
}

async fn unknown_node(t: &CheckContext) -> Outcome {
    let node_id = "no-such-node-4d1f5a".to_owned();
    let request = ControllerPublishVolumeRequest { node_id, ..good(t).await? };
    t.refused(request, Code::NotFound).await?;
    Ok(())
}

async fn otherwise(t: &CheckContext) -> Outcome {
    for readonly in [false, true] {
        let request = ControllerPublishVolumeRequest { readonly, ..good(t).await? };
        t.ok(request.clone()).await?;
        let other = ControllerPublishVolumeRequest { readonly: !readonly, ..request };
        t.refused(other, Code::AlreadyExists).await?;
    }
    Ok(())
}

/// The answer for a second node while one node holds the volume.
async fn refused_second(t: &CheckContext) -> Outcome<tonic::Status> {
    let request = good(t).await?;
    t.ok(request.clone()).await?;
    let second = ControllerPublishVolumeRequest { node_id: t.other_node(), ..request };
    t.refused(second, Code::FailedPrecondition).await
}

async fn second_node(t: &CheckContext) -> Outcome {
    refused_second(t).await?;
    Ok(())
}

async fn names_holder(t: &CheckContext) -> Outcome {
    let status = refused_second(t).await?;
    t.expect(status.message().contains(&t.node_id()), "the node_id of the one that holds it")
}

async fn many_nodes(t: &CheckContext) -> Outcome {
    for mode in [Mode::MultiNodeMultiWriter, Mode::MultiNodeReaderOnly] {
        let capability = in_mode(&t.capability(), mode);
        let Ok(reply) = t.settled(t.new_volume_for(capability.clone())).await? else { continue };
        let volume = t.some(reply.volume, "a volume in the reply")?;
        let request = t.attach(&volume, &capability);
        t.ok(request.clone()).await?;
        t.ok(ControllerPublishVolumeRequest { node_id: t.other_node(), ..request }).await?;
        return Ok(());
    }
    t.not_applicable("no volume is made for many nodes")
}

/// As small as they come, because there will be many.
async fn small_volume(t: &CheckContext) -> Outcome<Volume> {
    let question = GetCapacityRequest {
        volume_capabilities: vec![t.capability()],
        parameters: t.options().parameters.clone(),
        ..GetCapacityRequest::default()
    };
    let smallest = match t.settled(question).await? {
        Ok(reply) => reply.minimum_volume_size.filter(|size| *size > 0),
        Err(_) => None,
    };
    let capacity_range = t.range(smallest.unwrap_or(t.size()).min(t.size()), 0);
    t.create(CreateVolumeRequest { capacity_range, ..t.new_volume() }).await
}

async fn to_full_node(t: &CheckContext) -> Outcome {
    const MOST: i64 = 256;
    let room = t.features().node_info.max_volumes_per_node;
    if room == 0 || room > MOST {
        return t.not_applicable(format!("the node takes more than {MOST} volumes, or any number"));
    }
    for _ in 0..room {
        let volume = small_volume(t).await?;
        t.attached(&volume, &t.capability()).await?;
    }
    let volume = small_volume(t).await?;
    t.refused(t.attach(&volume, &t.capability()), Code::ResourceExhausted).await?;
    Ok(())
}

async fn keeps_secrets(t: &CheckContext) -> Outcome {
    const SECRET: &str = "a-secret-that-nobody-may-see-4d1f5a";
    let mut request = good(t).await?;
    if request.secrets.is_empty() {
        request.secrets = Pairs::from([("secret".to_owned(), SECRET.to_owned())]);
    }
    let secrets = request.secrets.clone();
    let Ok(reply) = t.settled(request).await? else {
        return t.not_applicable("needs --secret, as the plugin does not take any secret");
    };
    let shown = |secret: &String| {
        reply
            .publish_context
            .iter()
            .any(|(key, value)| key.contains(secret) || value.contains(secret))
    };
    t.expect(!secrets.values().any(shown), "no secret in the publish_context")
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let gone = Volume { volume_id: t.deleted_volume().await?, ..Volume::default() };
    let answer = t.during_outage(t.ask(t.attach(&gone, &t.capability()))).await?;
    t.expect(answer.is_err(), "a refusal for a volume that is gone, also without storage")?;
    let request = good(t).await?;
    let answer = t.during_outage(t.ask(request.clone())).await?;
    let repeated = t.ok(request).await?;
    let Ok(reply) = answer else { return Ok(()) };
    t.expect(
        reply.publish_context == repeated.publish_context,
        "a refusal while the storage was away, or the publication that is there now",
    )
}
