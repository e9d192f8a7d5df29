//! The Snapshot message (SN).

use csi_conformance::wire::csi::v1::volume_content_source::Type;
use csi_conformance::wire::csi::v1::{
    CreateSnapshotRequest, CreateVolumeGroupSnapshotRequest, CreateVolumeRequest,
    DeleteSnapshotRequest, GetSnapshotRequest, GetVolumeGroupSnapshotRequest, ListSnapshotsRequest,
    Snapshot,
};
use tonic::{Code, Status};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

fn created(change: fn(&mut Snapshot)) -> Interceptor {
    Interceptor::default().reply::<CreateSnapshotRequest>(move |_, reply| {
        reply.snapshot.iter_mut().for_each(change);
    })
}

/// In every reply that contains members of groups.
fn members(change: fn(&mut Snapshot)) -> Interceptor {
    Interceptor::default()
        .reply::<CreateVolumeGroupSnapshotRequest>(move |_, reply| {
            reply.group_snapshot.iter_mut().flat_map(|it| &mut it.snapshots).for_each(change);
        })
        .reply::<GetVolumeGroupSnapshotRequest>(move |_, reply| {
            reply.group_snapshot.iter_mut().flat_map(|it| &mut it.snapshots).for_each(change);
        })
}

fn is_restored(request: &CreateVolumeRequest) -> bool {
    let source = request.volume_content_source.as_ref();
    matches!(source.and_then(|it| it.r#type.as_ref()), Some(Type::Snapshot(_)))
}

pub(super) const ALL: &[Violation] = &[
    violation("one-id-for-all-snapshots", "SN-01", "gives every snapshot the same id", || {
        created(|snapshot| snapshot.snapshot_id = "snapshot".to_owned())
    }),
    violation("snapshots-of-something", "SN-02", "lists a wrong source", || {
        Interceptor::default().reply::<ListSnapshotsRequest>(|_, reply| {
            for snapshot in reply.entries.iter_mut().filter_map(|it| it.snapshot.as_mut()) {
                snapshot.source_volume_id = "volume".to_owned();
            }
        })
    }),
    violation("snapshots-of-1970", "SN-03", "does not know when it took a snapshot", || {
        created(|snapshot| {
            snapshot.creation_time.iter_mut().for_each(|time| time.seconds = 1);
        })
    }),
    violation("snapshots-are-always-new", "SN-03", "tells another time at each call", || {
        Interceptor::default().reply::<GetSnapshotRequest>(|_, reply| {
            if let Some(snapshot) = &mut reply.snapshot {
                snapshot.creation_time.iter_mut().for_each(|time| time.seconds += 1);
            }
        })
    }),
    violation("ready-too-early", "SN-04", "says ready of what cannot be restored", || {
        Interceptor::default().answer::<CreateVolumeRequest>(|request| {
            let refusal = Status::failed_precondition("the snapshot is being uploaded");
            is_restored(request).then_some(Err(refusal))
        })
    }),
    violation("snapshots-below-zero", "SN-05", "tells a negative size", || {
        created(|snapshot| snapshot.size_bytes = -1)
    }),
    violation("restored-too-small", "SN-06", "restores into a smaller volume", || {
        Interceptor::default().reply::<CreateVolumeRequest>(|request, reply| {
            for volume in reply.volume.iter_mut().filter(|_| is_restored(request)) {
                volume.capacity_bytes /= 2;
            }
        })
    }),
    violation("size-is-what-is-used", "SN-06", "tells the used bytes of a snapshot", || {
        created(|snapshot| snapshot.size_bytes = 1 << 20)
    }),
    violation("members-of-no-group", "SN-07", "hides the group of members that stay", || {
        members(|snapshot| snapshot.group_snapshot_id.clear())
    }),
    violation("single-snapshots-stay", "SN-08", "does not delete a snapshot of no group", || {
        Interceptor::default().answer::<DeleteSnapshotRequest>(|_| {
            Some(Err(Status::failed_precondition("it is a member of a group")))
        })
    }),
    violation("members-of-another-group", "SN-09", "tells a wrong group of members", || {
        members(|snapshot| snapshot.group_snapshot_id = "another".to_owned())
    }),
    violation("snapshots-of-snapshots-are-made", "SN-10", "takes a snapshot of one", || {
        Interceptor::default()
            .accept::<CreateSnapshotRequest>(Code::NotFound)
            .accept::<CreateSnapshotRequest>(Code::InvalidArgument)
    }),
];
