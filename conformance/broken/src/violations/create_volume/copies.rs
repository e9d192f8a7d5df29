//! CreateVolume (CV): from a snapshot or from another volume.

use csi_conformance::wire::csi::v1::volume_content_source::Type;
use csi_conformance::wire::csi::v1::{
    CapacityRange, CreateVolumeRequest, controller_service_capability,
};
use tonic::{Code, Status};

use super::without;
use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

pub(in crate::violations) const ALL: &[Violation] = &[
    violation(
        "create-volume-copies-ignore-the-range",
        "CV-12",
        "makes copies as large as their source whatever is asked for",
        || {
            Interceptor::default().ask::<CreateVolumeRequest>(|request| {
                if request.volume_content_source.is_some() {
                    request.capacity_range = None;
                }
            })
        },
    ),
    violation(
        "create-volume-small-copies-are-invalid",
        "CV-14",
        "answers INVALID_ARGUMENT where a copy is to be smaller than its source",
        || {
            let (from, to) = (Code::OutOfRange, Code::InvalidArgument);
            Interceptor::default().recode::<CreateVolumeRequest>(from, to)
        },
    ),
    violation(
        "create-volume-larger-copies-are-empty",
        "CV-15",
        "forgets the source if the copy is to be larger",
        || {
            Interceptor::default().ask::<CreateVolumeRequest>(|request| {
                let larger = |it: &CapacityRange| it.required_bytes > 1 << 30;
                if request.capacity_range.as_ref().is_some_and(larger) {
                    request.volume_content_source = None;
                }
            })
        },
    )
    .on_real(),
    violation(
        "create-volume-larger-copies-are-not",
        "CV-16",
        "says that a copy is larger and makes it as large as its source",
        || {
            Interceptor::default()
                .ask::<CreateVolumeRequest>(|request| {
                    if request.volume_content_source.is_some() {
                        request.capacity_range = None;
                    }
                })
                .reply::<CreateVolumeRequest>(|request, reply| {
                    let range = request.capacity_range.unwrap_or_default();
                    if let Some(volume) = &mut reply.volume {
                        volume.capacity_bytes = volume.capacity_bytes.max(range.required_bytes);
                    }
                })
        },
    )
    .on_real(),
    violation(
        "create-volume-copies-have-default-size",
        "CV-17",
        "gives copies without a range the size of any other volume",
        || {
            Interceptor::default().reply::<CreateVolumeRequest>(|request, reply| {
                if let (None, Some(volume)) = (&request.capacity_range, &mut reply.volume) {
                    volume.capacity_bytes = 1 << 30;
                }
            })
        },
    ),
    violation(
        "create-volume-takes-an-empty-source",
        "CV-22",
        "makes an empty volume where the source is of no kind",
        || {
            Interceptor::default().ask::<CreateVolumeRequest>(|request| {
                request.volume_content_source.take_if(|source| source.r#type.is_none());
            })
        },
    ),
    violation(
        "create-volume-does-not-find-an-empty-id",
        "CV-23",
        "answers NOT_FOUND where the id of the source is missing",
        || {
            let (from, to) = (Code::InvalidArgument, Code::NotFound);
            Interceptor::default().recode::<CreateVolumeRequest>(from, to)
        },
    ),
    violation(
        "create-volume-cannot-restore",
        "CV-24",
        "offers snapshots and makes no volume from them",
        || {
            Interceptor::default().answer::<CreateVolumeRequest>(|request| {
                let source = request.volume_content_source.as_ref();
                let from_snapshot =
                    matches!(source.and_then(|it| it.r#type.as_ref()), Some(Type::Snapshot(_)));
                from_snapshot.then(|| Err(Status::invalid_argument("not from snapshots")))
            })
        },
    ),
    violation(
        "create-volume-restores-nothing",
        "CV-24",
        "makes an empty volume where a snapshot is to be restored",
        || {
            Interceptor::default().ask::<CreateVolumeRequest>(|request| {
                request
                    .volume_content_source
                    .take_if(|it| matches!(it.r#type, Some(Type::Snapshot(_))));
            })
        },
    )
    .on_real(),
    violation("create-volume-cannot-clone", "CV-25", "offers cloning and cannot do it", || {
        Interceptor::default().answer::<CreateVolumeRequest>(|request| {
            let source = request.volume_content_source.as_ref();
            let from_volume =
                matches!(source.and_then(|it| it.r#type.as_ref()), Some(Type::Volume(_)));
            from_volume.then(|| Err(Status::unimplemented("no cloning")))
        })
    }),
    violation(
        "create-volume-clones-secretly",
        "CV-26",
        "clones although it does not offer it",
        || without(controller_service_capability::rpc::Type::CloneVolume),
    ),
    violation(
        "create-volume-says-nothing-of-the-source",
        "CV-27",
        "does not say what was not found",
        || {
            Interceptor::default().refusal::<CreateVolumeRequest>(|_, status| {
                Err(Status::new(status.code(), "this cannot be done"))
            })
        },
    ),
    violation(
        "create-volume-lost-source-is-invalid",
        "CV-28",
        "answers INVALID_ARGUMENT where the source is gone",
        || {
            let (from, to) = (Code::NotFound, Code::InvalidArgument);
            Interceptor::default().recode::<CreateVolumeRequest>(from, to)
        },
    ),
    violation(
        "create-volume-copies-nothing",
        "CV-34",
        "makes an empty volume where a copy is asked for",
        || {
            Interceptor::default()
                .ask::<CreateVolumeRequest>(|request| request.volume_content_source = None)
                .reply::<CreateVolumeRequest>(|request, reply| {
                    if let Some(volume) = &mut reply.volume {
                        volume.content_source.clone_from(&request.volume_content_source);
                    }
                })
        },
    )
    .on_real(),
    violation(
        "create-volume-foreign-source-is-invalid",
        "CV-36",
        "answers INVALID_ARGUMENT where the source is of another plugin",
        || {
            let (from, to) = (Code::NotFound, Code::InvalidArgument);
            Interceptor::default().recode::<CreateVolumeRequest>(from, to)
        },
    ),
];
