//! How the controller refuses.

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{Answer, CheckContext, code_of};
use crate::need::Need;
use crate::wire::csi::v0::controller_service_capability::rpc::Type as ControllerRpc;
use crate::wire::csi::v0::volume_capability::access_mode::Mode;
use crate::wire::csi::v0::{
    CapacityRange, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest,
    CreateVolumeRequest, ListVolumesRequest, Volume,
};

pub(in crate::checks) const SECTION: Section = Section {
    title: "csi.v0: controller errors",
    service: Service::V0,
    needs: &[Need::V0, Need::V0Controller(ControllerRpc::CreateDeleteVolume)],
    checks: CHECKS,
    unseen: &[],
};

const ATTACHES: Need = Need::V0Controller(ControllerRpc::PublishUnpublishVolume);
/// A plugin that takes more volumes per node is not filled.
const MOST: i64 = 100;

const CHECKS: &[Check] = &[
    check(
        "v0-create-errors",
        "creates another volume under a name, one of an impossible size, and one twice at once",
        &["V0-32"],
        run!(create_errors),
    ),
    check(
        "v0-delete-errors",
        "deletes an attached volume, and a free one twice at once",
        &["V0-34"],
        run!(delete_errors),
    )
    .needs(&[ATTACHES]),
    check(
        "v0-attach-errors",
        "attaches an unknown volume, to an unknown node, in another way, and twice at once",
        &["V0-35"],
        run!(attach_errors),
    )
    .needs(&[ATTACHES]),
    check(
        "v0-attach-to-two-nodes",
        "attaches a volume of one node to another node",
        &["V0-35"],
        run!(attach_to_two_nodes),
    )
    .needs(&[ATTACHES, Need::OtherNode]),
    check(
        "v0-node-full",
        "attaches one volume more than fit on the node",
        &["V0-35"],
        run!(node_full),
    )
    .needs(&[ATTACHES])
    .alone(),
    check(
        "v0-detach-errors",
        "detaches an unknown volume, and from an unknown node",
        &["V0-36"],
        run!(detach_errors),
    )
    .needs(&[ATTACHES]),
    check(
        "v0-validate-unknown",
        "validates the capabilities of a volume that does not exist",
        &["V0-37"],
        run!(validate_unknown),
    ),
    check(
        "v0-list-bad-token",
        "lists volumes from a token that was never issued",
        &["V0-38"],
        run!(list_bad_token),
    )
    .needs(&[Need::V0Controller(ControllerRpc::ListVolumes)]),
];

/// Two of the same at once: each succeeds or is refused because the other is in progress.
fn both_cope<T>(t: &CheckContext, first: &Answer<T>, second: &Answer<T>) -> Outcome {
    let copes = |answer: &Answer<T>| matches!(code_of(answer), Code::Ok | Code::Aborted);
    t.expect(copes(first) && copes(second), "OK or ABORTED for each of two calls at once")
}

/// As unknown as [`CheckContext::unknown_id`].
fn unknown(t: &CheckContext) -> Volume {
    Volume { id: t.unknown_id(), ..Volume::default() }
}

async fn create_errors(t: &CheckContext) -> Outcome {
    let request = t.v0_new_volume();
    let (first, second) = tokio::join!(t.ask(request.clone()), t.ask(request.clone()));
    both_cope(t, &first?, &second?)?;
    t.v0_create(request.clone()).await?;
    let range = |required_bytes, limit_bytes| Some(CapacityRange { required_bytes, limit_bytes });
    let larger = CreateVolumeRequest { capacity_range: range(2 * t.size(), 0), ..request.clone() };
    t.refused(larger, Code::AlreadyExists).await?;
    let endless = CreateVolumeRequest { capacity_range: range(1 << 62, 0), ..t.v0_new_volume() };
    t.refused(endless, Code::OutOfRange).await?;
    Ok(())
}

async fn delete_errors(t: &CheckContext) -> Outcome {
    let volume = t.v0_volume().await?;
    t.v0_attached(&volume, t.v0_capability(Mode::SingleNodeWriter)).await?;
    t.refused(t.v0_delete(&volume), Code::FailedPrecondition).await?;
    t.ok(t.v0_detach(&volume)).await?;
    let request = t.v0_delete(&volume);
    let (first, second) = tokio::join!(t.ask(request.clone()), t.ask(request.clone()));
    both_cope(t, &first?, &second?)?;
    t.ok(request).await?;
    Ok(())
}

async fn attach_errors(t: &CheckContext) -> Outcome {
    let capability = t.v0_capability(Mode::SingleNodeWriter);
    t.refused(t.v0_attach(&unknown(t), &capability), Code::NotFound).await?;
    let volume = t.v0_volume().await?;
    let request = t.v0_attach(&volume, &capability);
    let elsewhere = ControllerPublishVolumeRequest { node_id: t.unknown_id(), ..request.clone() };
    t.refused(elsewhere, Code::NotFound).await?;
    let (first, second) = tokio::join!(t.ask(request.clone()), t.ask(request.clone()));
    both_cope(t, &first?, &second?)?;
    t.ok(request.clone()).await?;
    let other = t.v0_attach(&volume, &t.v0_capability(Mode::SingleNodeReaderOnly));
    t.refused(other, Code::AlreadyExists).await?;
    let readonly = ControllerPublishVolumeRequest { readonly: true, ..request };
    // Where a plugin cannot attach read-only, it may say so before it compares.
    t.refused_with(readonly, &[Code::AlreadyExists, Code::InvalidArgument]).await?;
    Ok(())
}

async fn attach_to_two_nodes(t: &CheckContext) -> Outcome {
    let volume = t.v0_volume().await?;
    let capability = t.v0_capability(Mode::SingleNodeWriter);
    let request = t.v0_attach(&volume, &capability);
    t.ok(request.clone()).await?;
    let node_id = t.options().other_node.clone().unwrap_or_default();
    let elsewhere = ControllerPublishVolumeRequest { node_id, ..request };
    t.refused(elsewhere, Code::FailedPrecondition).await?;
    Ok(())
}

/// One byte is the least that can be asked for; the plugin makes of it what it has to.
async fn node_full(t: &CheckContext) -> Outcome {
    let most = t.features().node_info.max_volumes_per_node;
    if !(1..=MOST).contains(&most) {
        return t.not_applicable(format!("the node takes more than {MOST} volumes, or any number"));
    }
    let capability = t.v0_capability(Mode::SingleNodeWriter);
    for number in 0..=most {
        let least = Some(CapacityRange { required_bytes: 1, limit_bytes: 0 });
        let request = CreateVolumeRequest { capacity_range: least, ..t.v0_new_volume() };
        let volume = t.v0_create(request).await?;
        let attach = t.v0_attach(&volume, &capability);
        if number == most {
            t.refused(attach, Code::ResourceExhausted).await?;
        } else {
            t.ok(attach).await?;
        }
    }
    Ok(())
}

/// There is no "safe to regard as unpublished" in this version.
async fn detach_errors(t: &CheckContext) -> Outcome {
    t.refused(t.v0_detach(&unknown(t)), Code::NotFound).await?;
    let volume = t.v0_volume().await?;
    let request = t.v0_detach(&volume);
    let elsewhere = ControllerUnpublishVolumeRequest { node_id: t.unknown_id(), ..request.clone() };
    t.refused(elsewhere, Code::NotFound).await?;
    t.ok(t.v0_delete(&volume)).await?;
    t.refused(request, Code::NotFound).await?;
    Ok(())
}

async fn validate_unknown(t: &CheckContext) -> Outcome {
    let capability = t.v0_capability(Mode::SingleNodeWriter);
    t.refused(t.v0_validate(&unknown(t), &[&capability]), Code::NotFound).await?;
    Ok(())
}

async fn list_bad_token(t: &CheckContext) -> Outcome {
    let starting_token = "no token that anybody issued".to_owned();
    t.refused(ListVolumesRequest { max_entries: 0, starting_token }, Code::Aborted).await?;
    Ok(())
}
