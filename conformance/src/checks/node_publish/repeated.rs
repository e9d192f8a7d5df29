//! NodePublishVolume (NP), called again for a volume that is published.

use std::path::PathBuf;

use tonic::Code::{AlreadyExists, FailedPrecondition};

use crate::capability::{block, in_mode, is_block};
use crate::check::{Check, Outcome, Section, Service, check, optional, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::CreateDeleteVolume;
use crate::wire::csi::v1::node_service_capability::rpc::Type::SingleNodeMultiWriter;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::{CreateVolumeRequest, NodePublishVolumeRequest, VolumeCapability};

pub(in crate::checks) const SECTION: Section = Section {
    title: "NodePublishVolume: second call",
    service: Service::Node,
    needs: &[Need::NodeService, Need::Controller(CreateDeleteVolume)],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "publish-twice",
        "publishes a volume, then again with the same arguments, and counts the mounts",
        &["NP-01", "NP-03"],
        run!(twice),
    ),
    check(
        "publish-again-otherwise",
        "repeats the call with the other readonly, then with the other access type",
        &["NP-16"],
        run!(again_otherwise),
    ),
    check(
        "publish-again-for-another-use",
        "repeats the call with another access mode, at the same target and at another one",
        &["NP-18"],
        run!(again_for_another_use),
    ),
    check(
        "publish-again-multi-node",
        "repeats the call for a volume of many nodes",
        &["NP-22"],
        |t| Box::pin(unchanged(t, MULTI_NODE)),
    ),
    check(
        "publish-again-multi-node-changed",
        "changes readonly for a volume of many nodes",
        &["NP-23"],
        |t| Box::pin(changed(t, MULTI_NODE)),
    ),
    check(
        "publish-again-multi-node-elsewhere",
        "publishes at other targets for a volume of many nodes, unchanged and changed",
        &["NP-24"],
        |t| Box::pin(elsewhere(t, MULTI_NODE)),
    ),
    check(
        "publish-again-single-writer",
        "repeats the call in SINGLE_NODE_SINGLE_WRITER",
        &["NP-25"],
        |t| Box::pin(unchanged(t, SINGLE_WRITER)),
    )
    .needs(&[Need::Node(SingleNodeMultiWriter)]),
    check(
        "publish-again-single-writer-changed",
        "changes readonly in SINGLE_NODE_SINGLE_WRITER",
        &["NP-27"],
        |t| Box::pin(changed(t, SINGLE_WRITER)),
    )
    .needs(&[Need::Node(SingleNodeMultiWriter)]),
    check(
        "publish-again-single-writer-elsewhere",
        "publishes at other targets in SINGLE_NODE_SINGLE_WRITER, unchanged and changed",
        &["NP-26"],
        |t| Box::pin(nowhere_else(t, SINGLE_WRITER)),
    )
    .needs(&[Need::Node(SingleNodeMultiWriter)]),
    check(
        "publish-again-multi-writer",
        "repeats the call in SINGLE_NODE_MULTI_WRITER",
        &["NP-28"],
        |t| Box::pin(unchanged(t, MULTI_WRITER)),
    )
    .needs(&[Need::Node(SingleNodeMultiWriter)]),
    check(
        "publish-again-multi-writer-changed",
        "changes readonly in SINGLE_NODE_MULTI_WRITER",
        &["NP-29"],
        |t| Box::pin(changed(t, MULTI_WRITER)),
    )
    .needs(&[Need::Node(SingleNodeMultiWriter)]),
    check(
        "publish-again-multi-writer-elsewhere",
        "publishes at other targets in SINGLE_NODE_MULTI_WRITER, unchanged and changed",
        &["NP-30"],
        |t| Box::pin(elsewhere(t, MULTI_WRITER)),
    )
    .needs(&[Need::Node(SingleNodeMultiWriter)]),
    check("publish-again-single-node", "repeats the call in SINGLE_NODE_WRITER", &["NP-31"], |t| {
        Box::pin(unchanged(t, SINGLE_NODE))
    }),
    check(
        "publish-again-single-node-changed",
        "changes readonly in SINGLE_NODE_WRITER",
        &["NP-32"],
        |t| Box::pin(changed(t, SINGLE_NODE)),
    ),
    check(
        "publish-again-single-node-elsewhere",
        "publishes at other targets in SINGLE_NODE_WRITER, unchanged and changed",
        &["NP-33"],
        |t| Box::pin(nowhere_else(t, SINGLE_NODE)),
    ),
    check(
        "publish-in-the-old-mode",
        "publishes with SINGLE_NODE_WRITER although the plugin knows its successors",
        &["NP-20"],
        run!(in_the_old_mode),
    )
    .needs(&[Need::Node(SingleNodeMultiWriter)]),
    check(
        "publish-again-with-other-secrets",
        "repeats the call with one secret more",
        &["NP-34"],
        run!(again_with_other_secrets),
    ),
];

/// The call that brought a volume in one of these modes to a target.
async fn published(t: &CheckContext, modes: &[Mode]) -> Outcome<NodePublishVolumeRequest> {
    published_as(t, &t.quick_capability(), modes).await
}

async fn published_as(
    t: &CheckContext,
    capability: &VolumeCapability,
    modes: &[Mode],
) -> Outcome<NodePublishVolumeRequest> {
    let (volume, capability) = t.volume_in_any(capability, modes).await?;
    let staged = t.staged(&volume, capability).await?;
    let request = t.publish(&staged)?;
    t.ok(request.clone()).await?;
    Ok(request)
}

async fn twice(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let staged = t.staged(&volume, t.capability()).await?;
    let request = t.publish(&staged)?;
    t.ok(request.clone()).await?;
    let target = PathBuf::from(&request.target_path);
    let mounts = t.mounts_below(&target)?;
    t.ok(request).await?;
    t.expect(t.mounts_below(&target)? == mounts, "no further mount at the target")
}

async fn again_otherwise(t: &CheckContext) -> Outcome {
    let access = t.options().access;
    let both =
        if access.block() && access.mount() { optional(t.volume_for_both().await)? } else { None };
    let has_both = both.is_some();
    let volume = match both {
        Some(volume) => volume,
        None => t.volume().await?,
    };
    let staged = t.staged(&volume, t.capability()).await?;
    let request = t.publish(&staged)?;
    t.ok(request.clone()).await?;
    t.refused(NodePublishVolumeRequest { readonly: true, ..request.clone() }, AlreadyExists)
        .await?;
    if has_both {
        let volume_capability = Some(block(Mode::SingleNodeWriter));
        let other = NodePublishVolumeRequest { volume_capability, ..request.clone() };
        t.refused(other, AlreadyExists).await?;
    }
    // What was there before the refusals is what is there after them.
    t.ok(request).await?;
    Ok(())
}

/// The prose asks for FAILED_PRECONDITION, the tables for ALREADY_EXISTS at the same target.
async fn again_for_another_use(t: &CheckContext) -> Outcome {
    let writing = t.quick_capability();
    let reading = in_mode(&writing, Mode::SingleNodeReaderOnly);
    let request = CreateVolumeRequest {
        volume_capabilities: vec![writing.clone(), reading.clone()],
        ..t.new_volume()
    };
    let volume = t.volume_if_made(request, "for a writer and for a reader").await?;
    let placed = t.placed(&volume, writing).await?;
    let other = NodePublishVolumeRequest {
        target_path: placed.target.clone(),
        volume_capability: Some(reading),
        ..t.publish(&placed)?
    };
    t.refused_with(other.clone(), &[FailedPrecondition, AlreadyExists]).await?;
    let target_path = t.target_path()?;
    t.refused(NodePublishVolumeRequest { target_path, ..other }, FailedPrecondition).await?;
    Ok(())
}

// The table: what a second call gets, by access mode.

const MULTI_NODE: &[Mode] =
    &[Mode::MultiNodeMultiWriter, Mode::MultiNodeSingleWriter, Mode::MultiNodeReaderOnly];
const SINGLE_WRITER: &[Mode] = &[Mode::SingleNodeSingleWriter];
const MULTI_WRITER: &[Mode] = &[Mode::SingleNodeMultiWriter];
const SINGLE_NODE: &[Mode] = &[Mode::SingleNodeWriter];

async fn unchanged(t: &CheckContext, modes: &[Mode]) -> Outcome {
    t.ok(published(t, modes).await?).await?;
    Ok(())
}

async fn changed(t: &CheckContext, modes: &[Mode]) -> Outcome {
    let request = published(t, modes).await?;
    t.refused(NodePublishVolumeRequest { readonly: true, ..request }, AlreadyExists).await?;
    Ok(())
}

/// With each access type in which the plugin makes such a volume.
async fn elsewhere(t: &CheckContext, modes: &[Mode]) -> Outcome {
    let mut made = false;
    for capability in t.capabilities(Mode::SingleNodeWriter) {
        let Some(request) = optional(published_as(t, &capability, modes).await)? else { continue };
        made = true;
        let at_another = |readonly| -> Outcome<NodePublishVolumeRequest> {
            let target_path = t.target_path()?;
            Ok(NodePublishVolumeRequest { readonly, target_path, ..request.clone() })
        };
        t.ok(at_another(false)?).await?;
        // Only a second device can refuse the writes of a raw reader, and its cache would not know
        // of what is written to the first: a plugin may keep the two apart.
        if is_block(&capability) {
            let answer = t.settled(at_another(true)?).await?;
            let fits = answer.map_or_else(|it| it.code() == FailedPrecondition, |_| true);
            t.expect(fits, "OK, or FAILED_PRECONDITION for a raw reader beside a writer")?;
        } else {
            t.ok(at_another(true)?).await?;
        }
    }
    if made { Ok(()) } else { published(t, modes).await.map(drop) }
}

async fn nowhere_else(t: &CheckContext, modes: &[Mode]) -> Outcome {
    let request = published(t, modes).await?;
    for readonly in [false, true] {
        let target_path = t.target_path()?;
        let again = NodePublishVolumeRequest { readonly, target_path, ..request.clone() };
        t.refused(again, FailedPrecondition).await?;
    }
    Ok(())
}

async fn in_the_old_mode(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    t.refused(t.publish(&placed)?, FailedPrecondition).await?;
    Ok(())
}

async fn again_with_other_secrets(t: &CheckContext) -> Outcome {
    let mut request = published(t, &[Mode::SingleNodeWriter]).await?;
    request.secrets.insert("conformance".to_owned(), "of another workload".to_owned());
    t.ok(request).await?;
    Ok(())
}
