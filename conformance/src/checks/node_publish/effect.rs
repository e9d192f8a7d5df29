//! NodePublishVolume (NP): what a workload finds at the target.

use std::fs::{self, File};

use super::super::node_expand::growing::shows;
use crate::capability::{block, in_mode, is_block};
use crate::check::{Check, Outcome, Section, Service, check, optional, run};
use crate::check_context::{CheckContext, Placed, Placing};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CloneVolume, CreateDeleteSnapshot, CreateDeleteVolume,
};
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use crate::wire::csi::v1::{
    CreateVolumeRequest, NodePublishVolumeRequest, Volume, VolumeCapability,
};

pub(in crate::checks) const SECTION: Section = Section {
    title: "NodePublishVolume: effect",
    service: Service::Node,
    needs: &[Need::NodeService, Need::Controller(CreateDeleteVolume)],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "publish-mounts-a-directory",
        "publishes where only the parent exists, and uses the mounted directory",
        &["NP-02", "NP-09", "NP-11"],
        run!(mounts_a_directory),
    )
    .needs(&[Need::MountAccess, Need::LocalFiles]),
    check(
        "publish-places-a-device",
        "publishes a device, writes to it, publishes it elsewhere and compares",
        &["NP-09", "NP-10"],
        run!(places_a_device),
    )
    .needs(&[Need::BlockAccess, Need::LocalFiles]),
    check(
        "publish-read-only",
        "publishes what it wrote with readonly, for each access type, and tries to write",
        &["NP-12"],
        run!(read_only),
    )
    .needs(&[Need::LocalFiles]),
    check(
        "publish-at-long-paths",
        "publishes and unpublishes with paths of 128 bytes",
        &["NP-14", "NN-09"],
        run!(at_long_paths),
    ),
    check(
        "publish-a-larger-copy",
        "publishes a copy that is twice as large as its source and looks at the filesystem",
        &["NP-21"],
        run!(a_larger_copy),
    )
    .needs(&[Need::MountAccess, Need::LocalFiles]),
    check(
        "publish-for-readers",
        "publishes in the reader modes, without readonly, and tries to write",
        &["NP-35"],
        run!(for_readers),
    )
    .needs(&[Need::LocalFiles]),
    check(
        "publish-at-existing-target",
        "publishes at a target that is there already, for each access type",
        &["NP-39"],
        run!(at_existing_target),
    )
    .needs(&[Need::LocalFiles]),
];

async fn mounts_a_directory(t: &CheckContext) -> Outcome {
    let capability = t.mount(Mode::SingleNodeWriter);
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    let target = placed.target_path();
    t.expect(target.is_dir(), "a directory at the target")?;
    t.expect(t.is_mounted(&target)?, "the target in this machine's mount table")?;
    let content = t.fill(&placed)?;
    t.holds(&placed, &content)
}

async fn places_a_device(t: &CheckContext) -> Outcome {
    let capability = block(Mode::SingleNodeWriter);
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    let target = placed.target_path();
    t.expect(t.is_block_device(&target), "a block device at the target")?;
    let asked = u64::try_from(t.size()).unwrap_or_default();
    t.expect(t.device_size(&target)? >= asked, "a device of the size that was asked for")?;
    let content = t.fill(&placed)?;
    t.ok(t.unpublish(&placed)).await?;
    let placed = published_again(t, &placed, false).await?;
    t.holds(&placed, &content)
}

/// At a new target, from where it is staged.
async fn published_again(t: &CheckContext, staged: &Placed, readonly: bool) -> Outcome<Placed> {
    let request = NodePublishVolumeRequest { readonly, ..t.publish(staged)? };
    let target = request.target_path.clone();
    t.ok(request).await?;
    Ok(Placed { target, ..staged.clone() })
}

async fn read_only(t: &CheckContext) -> Outcome {
    for capability in t.capabilities(Mode::SingleNodeWriter) {
        let volume = t.volume_for(capability.clone()).await?;
        let placed = t.placed(&volume, capability).await?;
        let content = t.fill(&placed)?;
        t.ok(t.unpublish(&placed)).await?;
        let reading = published_again(t, &placed, true).await?;
        t.holds(&reading, &content)?;
        t.expect(
            !t.is_writable(&reading.target_path()),
            "what is published with readonly not to be writable",
        )?;
        t.ok(t.unpublish(&reading)).await?;
        let writing = published_again(t, &reading, false).await?;
        t.expect(t.is_writable(&writing.target_path()), "it to be writable without readonly")?;
    }
    Ok(())
}

async fn at_long_paths(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let staging = if t.stages() { t.long_staging_path()? } else { String::new() };
    let staged = t.staged_at(&volume, capability, staging).await?;
    let placed = t.published_at(staged, t.long_target_path()?).await?;
    t.ok(t.unpublish(&placed)).await?;
    Ok(())
}

async fn a_larger_copy(t: &CheckContext) -> Outcome {
    let capability = t.mount(Mode::SingleNodeWriter);
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability.clone()).await?;
    let content = t.fill(&placed)?;
    t.withdrawn(&placed).await?;
    let copy = larger_copy(t, &volume, &capability).await?;
    let placed = t.placed(&copy, capability).await?;
    t.holds(&placed, &content)?;
    shows(t, &placed, t.size().saturating_mul(2))
}

async fn larger_copy(
    t: &CheckContext,
    volume: &Volume,
    capability: &VolumeCapability,
) -> Outcome<Volume> {
    let source = if t.features().has_controller(CreateDeleteSnapshot) {
        let snapshot_id = t.snapshot(volume).await?.snapshot_id;
        Type::Snapshot(SnapshotSource { snapshot_id })
    } else if t.features().has_controller(CloneVolume) {
        Type::Volume(VolumeSource { volume_id: volume.volume_id.clone() })
    } else {
        return t.not_applicable("neither CREATE_DELETE_SNAPSHOT nor CLONE_VOLUME is offered");
    };
    let request = CreateVolumeRequest {
        capacity_range: t.range(t.size().saturating_mul(2), 0),
        ..t.new_copy(source, capability.clone())
    };
    // OUT_OF_RANGE is how a plugin says that its copies have the size of their source.
    match t.settled(request).await? {
        Ok(reply) => t.some(reply.volume, "a volume in the reply"),
        Err(status) if status.code() == tonic::Code::OutOfRange => {
            t.not_applicable("the plugin makes no copies that are larger than their source")
        }
        Err(_) => Err(t.failed("OK or OUT_OF_RANGE")),
    }
}

async fn for_readers(t: &CheckContext) -> Outcome {
    let mut tried = 0;
    for mode in [Mode::SingleNodeReaderOnly, Mode::MultiNodeReaderOnly] {
        for capability in t.capabilities(mode) {
            let writing = in_mode(&capability, Mode::SingleNodeWriter);
            let request = CreateVolumeRequest {
                volume_capabilities: vec![capability.clone(), writing],
                ..t.new_volume()
            };
            let made = t.volume_if_made(request, "for readers").await;
            let Some(volume) = optional(made)? else { continue };
            let placing = Placing { capability, readonly: false };
            let placed = t.placed_as(&volume, placing).await?;
            let expected = format!("{} not to be writable", mode.as_str_name());
            t.expect(!t.is_writable(&placed.target_path()), expected)?;
            t.withdrawn(&placed).await?;
            tried += 1;
        }
    }
    if tried == 0 {
        return t.not_applicable("the plugin has no reader modes");
    }
    Ok(())
}

async fn at_existing_target(t: &CheckContext) -> Outcome {
    for capability in t.capabilities(Mode::SingleNodeWriter) {
        let volume = t.volume_for(capability.clone()).await?;
        let staged = t.staged(&volume, capability).await?;
        let request = t.publish(&staged)?;
        let placed = Placed { target: request.target_path.clone(), ..staged };
        let target = placed.target_path();
        if is_block(&placed.capability) {
            t.could(File::create(&target), "make", &target)?;
        } else {
            t.could(fs::create_dir(&target), "make", &target)?;
        }
        t.ok(request).await?;
        t.expect(t.is_published(&placed).await?, "the volume at the target")?;
    }
    Ok(())
}
