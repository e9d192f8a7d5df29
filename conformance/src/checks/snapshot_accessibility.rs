//! From where snapshots can be used (SA), and what CSI 1.13 made stricter (VN).

use tonic::Code;

use crate::capability::block;
use crate::check::{Check, Outcome, Section, Service, blamed, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteSnapshot, CreateDeleteVolume, GetSnapshot,
};
use crate::wire::csi::v1::plugin_capability::service::Type::SnapshotAccessibilityConstraints;
use crate::wire::csi::v1::volume_capability::access_mode::Mode::SingleNodeWriter;
use crate::wire::csi::v1::{
    CreateSnapshotRequest, CreateVolumeRequest, Topology, TopologyRequirement, Volume,
};

pub(super) const SECTION: Section = Section {
    title: "Snapshot accessibility",
    service: Service::Controller,
    needs: &[Need::Controller(CreateDeleteSnapshot), Need::Controller(CreateDeleteVolume)],
    checks: CHECKS,
    unseen: &[("SA-07", "a permission: without a requirement the plugin chooses")],
};

pub(super) const STRICTER: Section = Section {
    title: "Stricter since 1.13",
    service: Service::Controller,
    needs: &[Need::Controller(CreateDeleteVolume), Need::BlockAccess],
    checks: SIZES,
    unseen: &[
        ("VN-01", "how long a group snapshot is pending cannot be chosen from outside"),
        (
            "VN-02",
            "no call fills the storage for group snapshots without harm to others who use it",
        ),
    ],
};

const PLACED: &[Need] = &[Need::Plugin(SnapshotAccessibilityConstraints), Need::NodeService];

const CHECKS: &[Check] = &[
    check(
        "snapshot-topology-needs-the-capability",
        "looks for a topology in a snapshot, and for the capability that allows it",
        &["SA-01"],
        run!(needs_the_capability),
    ),
    check(
        "snapshot-for-a-place",
        "makes a snapshot for the place of its source, and a volume there from it",
        &["SA-02", "SA-04", "SA-05"],
        run!(for_a_place),
    )
    .needs(PLACED),
    check(
        "snapshot-for-nowhere",
        "asks for a snapshot that can be used where nothing is",
        &["SA-03"],
        run!(for_nowhere),
    )
    .needs(PLACED),
    check(
        "snapshot-for-no-place-at-all",
        "sends a requirement that names no place",
        &["SA-06"],
        run!(empty_requirement),
    )
    .needs(PLACED),
];

const SIZES: &[Check] = &[
    check(
        "block-volume-size-within-range",
        "makes raw block volumes within ranges and reads their sizes",
        &["VN-03"],
        run!(within_range),
    ),
    check(
        "block-volume-size-is-the-device",
        "publishes a raw block volume and measures the device",
        &["VN-04"],
        run!(size_of_device),
    )
    .needs(&[Need::NodeService, Need::LocalFiles]),
];

fn snapshot_at(t: &CheckContext, volume: &Volume, place: &Topology) -> CreateSnapshotRequest {
    let places = || vec![place.clone()];
    let requirement = TopologyRequirement { requisite: places(), preferred: places() };
    CreateSnapshotRequest {
        accessibility_requirements: Some(requirement),
        ..t.new_snapshot(volume)
    }
}

async fn needs_the_capability(t: &CheckContext) -> Outcome {
    let snapshot = t.snapshot(&t.volume().await?).await?;
    let may_tell = t.features().has_plugin(SnapshotAccessibilityConstraints);
    let tells = !snapshot.accessible_topology.is_empty();
    t.expect(may_tell || !tells, "SNAPSHOT_ACCESSIBILITY_CONSTRAINTS, or no accessible_topology")
}

async fn for_a_place(t: &CheckContext) -> Outcome {
    let here = t.here()?;
    let volume = t.create(t.new_volume_at(&[&here], &[])).await?;
    let made = blamed("SA-02", t.ready_snapshot(snapshot_at(t, &volume, &here)).await)?;
    let is_within = |place: &Topology| {
        here.segments.iter().all(|(key, value)| place.segments.get(key) == Some(value))
    };
    let fits = made.accessible_topology.iter().all(is_within);
    blamed("SA-02", t.expect(fits, "only places within the requisite ones"))?;
    if t.features().has_controller(GetSnapshot) {
        let got = t.ok(t.get_snapshot(&made)).await?.snapshot.unwrap_or_default();
        let same = got.accessible_topology == made.accessible_topology;
        blamed("SA-05", t.expect(same, "the same accessible_topology in GetSnapshot"))?;
    }
    if t.lists_snapshots() {
        let listed = t.snapshot_listed_as(&made).await?.unwrap_or_default();
        let same = listed.accessible_topology == made.accessible_topology;
        blamed("SA-05", t.expect(same, "the same accessible_topology in ListSnapshots"))?;
    }
    let requirement = TopologyRequirement { requisite: vec![here], preferred: Vec::new() };
    let restored = CreateVolumeRequest {
        accessibility_requirements: Some(requirement),
        ..t.restore(&made, t.capability())
    };
    blamed("SA-04", t.create(restored).await)?;
    Ok(())
}

async fn for_nowhere(t: &CheckContext) -> Outcome {
    let nowhere = t.nowhere()?;
    let volume = t.volume().await?;
    if volume.accessible_topology.is_empty() {
        return t.not_applicable("volumes can be used from everywhere");
    }
    t.refused(snapshot_at(t, &volume, &nowhere), Code::ResourceExhausted).await?;
    Ok(())
}

async fn empty_requirement(t: &CheckContext) -> Outcome {
    let request = CreateSnapshotRequest {
        accessibility_requirements: Some(TopologyRequirement::default()),
        ..t.new_snapshot(&t.volume().await?)
    };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn within_range(t: &CheckContext) -> Outcome {
    let size = t.size();
    for (required, limit) in [(size, 0), (size, size), (size + 4096, 2 * size)] {
        let request = CreateVolumeRequest {
            capacity_range: t.range(required, limit),
            ..t.new_volume_for(block(SingleNodeWriter))
        };
        let made = t.create(request).await?.capacity_bytes;
        let fits = made == 0 || made >= required && (limit == 0 || made <= limit);
        t.expect(fits, format!("a size of at least {required} and at most {limit} bytes"))?;
    }
    Ok(())
}

async fn size_of_device(t: &CheckContext) -> Outcome {
    let capability = block(SingleNodeWriter);
    let volume = t.volume_for(capability.clone()).await?;
    if volume.capacity_bytes == 0 {
        return t.not_applicable("the plugin does not say how large volumes are");
    }
    let placed = t.placed(&volume, capability).await?;
    let device = t.device_size(&placed.target_path())?;
    let reported = u64::try_from(volume.capacity_bytes).unwrap_or_default();
    t.expect(device == reported, format!("a device of {reported} bytes, and not of {device}"))
}
