//! From where snapshots can be used (SA), and what CSI 1.13 made stricter (VN).

use csi_conformance::wire::csi::v1::plugin_capability::service::Type as PluginService;
use csi_conformance::wire::csi::v1::{
    CreateSnapshotRequest, CreateVolumeRequest, GetSnapshotRequest, ListSnapshotsRequest,
};
use tonic::{Code, Status};

use super::without_plugin;
use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

type Create = CreateSnapshotRequest;

pub(super) const ALL: &[Violation] = &[
    violation(
        "snapshot-topology-is-a-surprise",
        "SA-01",
        "does not say that it knows places",
        || without_plugin(PluginService::SnapshotAccessibilityConstraints),
    ),
    violation("snapshot-requirement-is-refused", "SA-02", "makes no snapshot for a place", || {
        Interceptor::default().answer::<Create>(|request| {
            let refusal = || Err(Status::resource_exhausted("not there"));
            request.accessibility_requirements.is_some().then(refusal)
        })
    }),
    violation("snapshot-is-elsewhere", "SA-02", "makes the snapshot in another place", || {
        Interceptor::default().reply::<Create>(|_, reply| {
            let snapshot = reply.snapshot.get_or_insert_default();
            for place in &mut snapshot.accessible_topology {
                place.segments.values_mut().for_each(|value| value.push('x'));
            }
        })
    }),
    violation("snapshot-requirement-is-ignored", "SA-03", "makes it wherever it likes", || {
        Interceptor::default().ask::<Create>(|request| {
            let is_named = |wanted: &csi_conformance::wire::csi::v1::TopologyRequirement| {
                !wanted.requisite.is_empty() || !wanted.preferred.is_empty()
            };
            if request.accessibility_requirements.as_ref().is_some_and(is_named) {
                request.accessibility_requirements = None;
            }
        })
    }),
    violation("snapshot-requirement-has-another-code", "SA-03", "answers INVALID_ARGUMENT", || {
        Interceptor::default().recode::<Create>(Code::ResourceExhausted, Code::InvalidArgument)
    }),
    violation(
        "snapshot-cannot-be-restored-there",
        "SA-04",
        "makes no volume from it there",
        || {
            Interceptor::default().answer::<CreateVolumeRequest>(|request| {
                let is_copy = request.volume_content_source.is_some();
                let refusal = || Err(Status::resource_exhausted("not there"));
                (is_copy && request.accessibility_requirements.is_some()).then(refusal)
            })
        },
    ),
    violation("get-snapshot-knows-no-place", "SA-05", "leaves it out of GetSnapshot", || {
        Interceptor::default().reply::<GetSnapshotRequest>(|_, reply| {
            reply.snapshot.get_or_insert_default().accessible_topology.clear();
        })
    }),
    violation("list-snapshots-knows-no-place", "SA-05", "leaves it out of ListSnapshots", || {
        Interceptor::default().reply::<ListSnapshotsRequest>(|_, reply| {
            for snapshot in reply.entries.iter_mut().filter_map(|entry| entry.snapshot.as_mut()) {
                snapshot.accessible_topology.clear();
            }
        })
    }),
    violation("snapshot-takes-an-empty-requirement", "SA-06", "takes one without a place", || {
        Interceptor::default().ask::<Create>(|request| request.accessibility_requirements = None)
    }),
    violation("block-volume-beyond-its-limit", "VN-03", "reports more than the limit", || {
        Interceptor::default().reply::<CreateVolumeRequest>(|request, reply| {
            let limit = request.capacity_range.map_or(0, |range| range.limit_bytes);
            if let (Some(volume), true) = (&mut reply.volume, limit > 0) {
                volume.capacity_bytes = limit + 4096;
            }
        })
    }),
    violation("block-volume-size-is-not-the-device", "VN-04", "reports less than it has", || {
        Interceptor::default().reply::<CreateVolumeRequest>(|_, reply| {
            if let Some(volume) = &mut reply.volume {
                volume.capacity_bytes -= 4096;
            }
        })
    })
    .on_real(),
];
