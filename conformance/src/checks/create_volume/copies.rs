//! CreateVolume (CV): from a snapshot or from another volume.

use tonic::{Code, Status};

use super::NEEDS;
use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CloneVolume, CreateDeleteSnapshot,
};
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use crate::wire::csi::v1::{
    CreateVolumeRequest, DeleteSnapshotRequest, Volume, VolumeContentSource,
};

pub(in crate::checks) const SECTION: Section = Section {
    title: "CreateVolume: copies",
    service: Service::Controller,
    needs: NEEDS,
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check("create-volume-sourceless", "names no kind of source", &["CV-22"], run!(sourceless)),
    check(
        "create-volume-empty-source",
        "leaves the source's id empty",
        &["CV-23"],
        run!(empty_source),
    ),
    check(
        "create-volume-from-snapshot",
        "creates a volume from a snapshot",
        &["CV-24", "CC-03"],
        run!(from_snapshot),
    )
    .needs(&[Need::Controller(CreateDeleteSnapshot)]),
    check(
        "create-volume-from-volume",
        "creates a volume from another one",
        &["CV-25"],
        run!(from_volume),
    )
    .needs(&[Need::Controller(CloneVolume)]),
    check(
        "create-volume-copy-twice",
        "creates each kind of copy twice and gets the same one",
        &["CV-02"],
        run!(copy_twice),
    ),
    check(
        "create-volume-clone-not-offered",
        "names a volume as the source at a plugin that says it cannot clone",
        &["CV-26"],
        run!(clone_not_offered),
    )
    .needs(&[Need::NoController(CloneVolume)]),
    check(
        "create-volume-clashing-source",
        "asks for a copy with parameters of another kind of volume than the source",
        &["CV-26"],
        run!(clashing_source),
    )
    .needs(&[Need::OtherParameters]),
    check(
        "create-volume-lost-source",
        "names a source that was deleted",
        &["CV-28"],
        run!(lost_source),
    ),
    check(
        "create-volume-blames-source",
        "reads why a lost source was refused",
        &["CV-27"],
        run!(blames_source),
    ),
    check(
        "create-volume-foreign-source",
        "names a volume as the source that is no volume of this plugin",
        &["CV-36"],
        run!(foreign_source),
    )
    .needs(&[Need::Controller(CloneVolume)]),
    check(
        "create-volume-copy-within-range",
        "asks for copies of a larger size and compares what is returned",
        &["CV-12"],
        run!(copy_within_range),
    ),
    check(
        "create-volume-copy-too-small",
        "asks for copies that are smaller than their source",
        &["CV-14"],
        run!(copy_too_small),
    ),
    check(
        "create-volume-copy-of-any-size",
        "asks for copies without a range and compares their sizes with that of the source",
        &["CV-17"],
        run!(copy_of_any_size),
    ),
    check(
        "create-volume-copy-holds-data",
        "writes to a volume, copies it, and compares; then writes to both",
        &["CV-34", "CV-24", "CV-25"],
        run!(copy_holds_data),
    )
    .needs(&[Need::LocalFiles, Need::NodeService]),
    check(
        "create-volume-larger-copy",
        "makes a larger copy of a written volume, publishes it, and looks at data and size",
        &["CV-15", "CV-16"],
        run!(larger_copy),
    )
    .needs(&[Need::LocalFiles, Need::NodeService, Need::MountAccess]),
];

fn volume_source(volume_id: impl Into<String>) -> Type {
    Type::Volume(VolumeSource { volume_id: volume_id.into() })
}

fn snapshot_source(snapshot_id: impl Into<String>) -> Type {
    Type::Snapshot(SnapshotSource { snapshot_id: snapshot_id.into() })
}

/// Everything that can be made of the volume and be a source.
async fn sources_of(t: &CheckContext, volume: &Volume) -> Outcome<Vec<Type>> {
    let mut sources = Vec::new();
    if t.features().has_controller(CreateDeleteSnapshot) {
        sources.push(snapshot_source(t.snapshot(volume).await?.snapshot_id));
    }
    if t.features().has_controller(CloneVolume) {
        sources.push(volume_source(&volume.volume_id));
    }
    if sources.is_empty() {
        return t.not_applicable("neither CREATE_DELETE_SNAPSHOT nor CLONE_VOLUME is offered");
    }
    Ok(sources)
}

async fn sourceless(t: &CheckContext) -> Outcome {
    let volume_content_source = Some(VolumeContentSource { r#type: None });
    let request = CreateVolumeRequest { volume_content_source, ..t.new_volume() };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn empty_source(t: &CheckContext) -> Outcome {
    for source in [volume_source(""), snapshot_source("")] {
        t.refused(t.new_copy(source, t.capability()), Code::InvalidArgument).await?;
    }
    Ok(())
}

async fn from_snapshot(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let snapshot = t.snapshot(&volume).await?;
    let request = t.new_copy(snapshot_source(&snapshot.snapshot_id), t.capability());
    let restored = t.create(request).await?;
    t.expect(restored.volume_id != volume.volume_id, "a volume of its own")
}

async fn from_volume(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let copy = t.create(t.new_copy(volume_source(&volume.volume_id), t.capability())).await?;
    t.expect(copy.volume_id != volume.volume_id, "a volume of its own")
}

async fn copy_twice(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    for source in sources_of(t, &volume).await? {
        let request = t.new_copy(source, t.capability());
        let first = t.create(request.clone()).await?;
        let second = t.create(request).await?;
        t.expect(first.volume_id == second.volume_id, "the same volume_id again")?;
    }
    Ok(())
}

async fn clone_not_offered(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let request = t.new_copy(volume_source(&volume.volume_id), t.capability());
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn clashing_source(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    for source in sources_of(t, &volume).await? {
        let parameters = t.options().other_parameters.clone();
        let request = CreateVolumeRequest { parameters, ..t.new_copy(source, t.capability()) };
        match t.settled(request).await? {
            Err(status) if status.code() == Code::InvalidArgument => {}
            Err(_) => return Err(t.failed("INVALID_ARGUMENT")),
            Ok(_) => return t.not_applicable("copies may be of another kind than their source"),
        }
    }
    Ok(())
}

/// How a source is refused that was there once.
async fn refused_lost_sources(t: &CheckContext) -> Outcome<Vec<Status>> {
    let volume = t.volume().await?;
    let sources = sources_of(t, &volume).await?;
    for source in &sources {
        if let Type::Snapshot(SnapshotSource { snapshot_id }) = source {
            let snapshot_id = snapshot_id.clone();
            t.ok(DeleteSnapshotRequest { snapshot_id, secrets: t.secrets() }).await?;
        }
    }
    t.ok(t.delete(&volume)).await?;
    let mut refusals = Vec::new();
    for source in sources {
        let request = t.new_copy(source, t.capability());
        refusals.push(t.refused(request, Code::NotFound).await?);
    }
    Ok(refusals)
}

async fn lost_source(t: &CheckContext) -> Outcome {
    refused_lost_sources(t).await?;
    Ok(())
}

async fn blames_source(t: &CheckContext) -> Outcome {
    for status in refused_lost_sources(t).await? {
        let text = status.message().to_lowercase();
        let blamed = ["source", "snapshot", "volume"].iter().any(|word| text.contains(word));
        t.expect(blamed, "a text that says what is wrong with the source")?;
    }
    Ok(())
}

async fn foreign_source(t: &CheckContext) -> Outcome {
    let request = t.new_copy(volume_source(t.unknown_id()), t.capability());
    t.refused(request, Code::NotFound).await?;
    Ok(())
}

async fn copy_within_range(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let (least, most) = (2 * t.size(), 3 * t.size());
    for source in sources_of(t, &volume).await? {
        let capacity_range = t.range(least, most);
        let request = CreateVolumeRequest { capacity_range, ..t.new_copy(source, t.capability()) };
        match t.settled(request).await? {
            Ok(reply) => {
                let size = t.some(reply.volume, "a volume in the reply")?.capacity_bytes;
                let fits = size == 0 || (least..=most).contains(&size);
                t.expect(fits, format!("{least} to {most} bytes"))?;
            }
            Err(status) => t.expect(status.code() == Code::OutOfRange, "OK or OUT_OF_RANGE")?,
        }
    }
    Ok(())
}

async fn copy_too_small(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    for source in sources_of(t, &volume).await? {
        let capacity_range = t.range(0, t.size() - 1);
        let request = CreateVolumeRequest { capacity_range, ..t.new_copy(source, t.capability()) };
        t.refused(request, Code::OutOfRange).await?;
    }
    Ok(())
}

async fn copy_of_any_size(t: &CheckContext) -> Outcome {
    // Larger than what a plugin takes if nothing is said.
    let capacity_range = t.range(4 * t.size(), 0);
    let volume = t.create(CreateVolumeRequest { capacity_range, ..t.new_volume() }).await?;
    for source in sources_of(t, &volume).await? {
        let request =
            CreateVolumeRequest { capacity_range: None, ..t.new_copy(source, t.capability()) };
        let copy = t.create(request).await?;
        let fits = copy.capacity_bytes == 0 || copy.capacity_bytes >= volume.capacity_bytes;
        t.expect(fits, format!("at least {} bytes", volume.capacity_bytes))?;
    }
    Ok(())
}

async fn copy_holds_data(t: &CheckContext) -> Outcome {
    for capability in t.capabilities(Mode::SingleNodeWriter) {
        let volume = t.volume_for(capability.clone()).await?;
        let original = t.placed(&volume, capability.clone()).await?;
        let content = t.fill(&original)?;
        let mut copies = Vec::new();
        for source in sources_of(t, &volume).await? {
            copies.push(t.create(t.new_copy(source, capability.clone())).await?);
        }
        let later = t.fill(&original)?;
        for copy in &copies {
            let copy = t.placed(copy, capability.clone()).await?;
            t.holds(&copy, &content)?;
            // Neither sees what is written to the other.
            t.fill(&copy)?;
            t.holds(&original, &later)?;
            t.withdrawn(&copy).await?;
        }
    }
    Ok(())
}

async fn larger_copy(t: &CheckContext) -> Outcome {
    let capability = t.mount(Mode::SingleNodeWriter);
    let volume = t.volume_for(capability.clone()).await?;
    let original = t.placed(&volume, capability.clone()).await?;
    let content = t.fill(&original)?;
    let before = t.statfs(&original.target_path())?.total_bytes;
    for source in sources_of(t, &volume).await? {
        let asked = 2 * t.size();
        let capacity_range = t.range(asked, 0);
        let request =
            CreateVolumeRequest { capacity_range, ..t.new_copy(source, capability.clone()) };
        let copy = match t.settled(request).await? {
            Ok(reply) => t.some(reply.volume, "a volume in the reply")?,
            Err(status) if status.code() == Code::OutOfRange => {
                return t.not_applicable("copies are as large as their source");
            }
            Err(_) => return Err(t.failed("OK or OUT_OF_RANGE")),
        };
        let copy = t.placed(&copy, capability.clone()).await?;
        t.holds(&copy, &content)?;
        let now = t.statfs(&copy.target_path())?.total_bytes;
        // Filesystems keep some of the room for themselves; one that volumes share has enough.
        let fills = now > before + before / 2 || i64::try_from(now).is_ok_and(|it| it >= asked);
        t.expect(fills, "a filesystem that fills the larger volume")?;
    }
    Ok(())
}
