//! NodePublishVolume (NP).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use csi_conformance::wire::csi::v1::volume_capability::access_mode::Mode;
use csi_conformance::wire::csi::v1::volume_capability::{AccessMode, AccessType};
use csi_conformance::wire::csi::v1::{
    CreateVolumeRequest, NodePublishVolumeRequest, NodePublishVolumeResponse,
    NodeStageVolumeRequest, VolumeCapability,
};
use tonic::{Code, Status};

use super::node_stage::{absolute, known_mode};
use crate::interceptor::Interceptor;
use crate::mistakes::{
    hiding_failures, pretending, refusing, refusing_long_paths, refusing_repeats,
};
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation("publish-is-missing", "NP-01", "does not have the call", || {
        Interceptor::default().unimplemented::<NodePublishVolumeRequest>()
    }),
    violation("publish-is-not-idempotent", "NP-03", "refuses what it has published", || {
        refusing_repeats::<NodePublishVolumeRequest>(Code::Internal, |it| it.target_path.clone())
    }),
    violation("publish-takes-no-volume-id", "NP-04", "does not look for volume_id", || {
        Interceptor::default().accept::<NodePublishVolumeRequest>(Code::InvalidArgument)
    }),
    violation("publish-misses-a-target-late", "NP-05", "says INTERNAL", || {
        Interceptor::default()
            .recode::<NodePublishVolumeRequest>(Code::InvalidArgument, Code::Internal)
    }),
    violation("publish-guesses-the-capability", "NP-06", "does not need a capability", || {
        pretending::<NodePublishVolumeRequest>(|it| it.volume_capability.is_none())
    }),
    violation("publish-wants-the-staging-path", "NP-07", "says INVALID_ARGUMENT", || {
        refusing::<NodePublishVolumeRequest>(Code::InvalidArgument, |it| {
            it.staging_target_path.is_empty()
        })
    }),
    violation("publish-takes-relative-paths", "NP-08", "takes a path from where it runs", || {
        Interceptor::default().ask::<NodePublishVolumeRequest>(|it| absolute(&mut it.target_path))
    }),
    violation("publish-wants-a-ready-target", "NP-09", "leaves it to others to make it", || {
        refusing::<NodePublishVolumeRequest>(Code::FailedPrecondition, |it| {
            !Path::new(&it.target_path).exists()
        })
    })
    .on_real(),
    violation("publish-places-a-file", "NP-10", "puts a file where a device should be", || {
        Interceptor::default().answer::<NodePublishVolumeRequest>(|it| {
            is_block(it).then(|| put(std::fs::write(&it.target_path, vec![0; 4 << 20])))
        })
    })
    .on_real(),
    violation("publish-makes-a-directory", "NP-11", "mounts nothing", || {
        Interceptor::default().answer::<NodePublishVolumeRequest>(|it| {
            (!is_block(it)).then(|| put(std::fs::create_dir(&it.target_path)))
        })
    })
    .on_real(),
    violation("publish-ignores-readonly", "NP-12", "publishes for writing", || {
        Interceptor::default().ask::<NodePublishVolumeRequest>(|it| it.readonly = false)
    })
    .on_real(),
    violation("publish-devices-for-writing", "NP-12", "makes only mounts read-only", || {
        Interceptor::default().ask::<NodePublishVolumeRequest>(|it| it.readonly &= !is_block(it))
    })
    .on_real(),
    violation("publish-ignores-the-mode", "NP-13", "does not look at the access mode", || {
        Interceptor::default()
            .ask::<NodePublishVolumeRequest>(|it| known_mode(it.volume_capability.as_mut()))
    }),
    violation("publish-takes-short-paths-only", "NP-14", "refuses a path of 128 bytes", || {
        refusing_long_paths::<NodePublishVolumeRequest>(|it| &it.target_path)
    }),
    violation("publish-has-an-internal-error", "NP-15", "says INTERNAL for NOT_FOUND", || {
        Interceptor::default().recode::<NodePublishVolumeRequest>(Code::NotFound, Code::Internal)
    }),
    violation("publish-compares-the-path-only", "NP-16", "takes any arguments again", || {
        Interceptor::default().accept::<NodePublishVolumeRequest>(Code::AlreadyExists)
    }),
    violation("publish-compares-readonly-only", "NP-16", "takes any capability again", || {
        Interceptor::default().refusal::<NodePublishVolumeRequest>(|it, status| {
            let other = status.code() == Code::AlreadyExists && !it.readonly;
            if other { Ok(NodePublishVolumeResponse {}) } else { Err(status) }
        })
    }),
    violation("publish-blames-the-argument", "NP-17", "says INVALID_ARGUMENT", || {
        Interceptor::default()
            .recode::<NodePublishVolumeRequest>(Code::FailedPrecondition, Code::InvalidArgument)
    }),
    violation("publish-forgets-the-first-use", "NP-18", "takes another capability", || {
        Interceptor::default().refusal::<NodePublishVolumeRequest>(|it, status| {
            let reads = mode_of(it) == Some(Mode::SingleNodeReaderOnly);
            if reads { Ok(NodePublishVolumeResponse {}) } else { Err(status) }
        })
    }),
    violation("publish-ignores-volume-context", "NP-19", "does not compare volume_context", || {
        Interceptor::default().ask::<NodePublishVolumeRequest>(|it| it.volume_context.clear())
    }),
    violation("publish-forgets-the-old-mode", "NP-20", "takes the new modes only", || {
        refusing::<NodePublishVolumeRequest>(Code::InvalidArgument, |it| {
            mode_of(it) == Some(Mode::SingleNodeWriter)
        })
    }),
    violation("publish-a-copy-too-small", "NP-21", "does not grow the copy", || {
        Interceptor::default()
            .ask::<CreateVolumeRequest>(|it| {
                if it.volume_content_source.is_some() {
                    it.capacity_range = None;
                }
            })
            .reply::<CreateVolumeRequest>(|it, reply| {
                if let (Some(range), Some(volume)) = (&it.capacity_range, &mut reply.volume) {
                    volume.capacity_bytes = range.required_bytes;
                }
            })
    })
    .on_real(),
    violation("publish-again-fails-on-many-nodes", "NP-22", "refuses a repeat", || {
        refusing_repeats::<NodePublishVolumeRequest>(Code::AlreadyExists, |it| {
            it.target_path.clone()
        })
    }),
    violation("publish-again-changes-readonly", "NP-23", "takes another readonly", || {
        Interceptor::default().accept::<NodePublishVolumeRequest>(Code::AlreadyExists)
    }),
    violation(
        "publish-one-target-on-many-nodes",
        "NP-24",
        "has one target for all modes",
        one_target,
    ),
    violation("publish-two-single-writers", "NP-26", "takes a second target", || {
        Interceptor::default().accept::<NodePublishVolumeRequest>(Code::FailedPrecondition)
    }),
    violation("publish-single-writer-differently", "NP-27", "says FAILED_PRECONDITION", || {
        Interceptor::default()
            .recode::<NodePublishVolumeRequest>(Code::AlreadyExists, Code::FailedPrecondition)
    }),
    violation("publish-multi-writer-differently", "NP-29", "says INVALID_ARGUMENT", || {
        Interceptor::default()
            .recode::<NodePublishVolumeRequest>(Code::AlreadyExists, Code::InvalidArgument)
    }),
    violation("publish-one-of-many-writers", "NP-30", "refuses a reader beside a writer", || {
        Interceptor::default().outcome::<NodePublishVolumeRequest>(|it, answer| {
            answer.and_then(|reply| {
                if it.readonly { Err(Status::failed_precondition("in use")) } else { Ok(reply) }
            })
        })
    }),
    violation("publish-again-silently", "NP-32", "takes another readonly", || {
        Interceptor::default().accept::<NodePublishVolumeRequest>(Code::AlreadyExists)
    }),
    violation("publish-two-writers", "NP-33", "says INTERNAL", || {
        Interceptor::default()
            .recode::<NodePublishVolumeRequest>(Code::FailedPrecondition, Code::Internal)
    }),
    violation("publish-compares-secrets", "NP-34", "takes new secrets for new arguments", secrets),
    violation("publish-lets-readers-write", "NP-35", "looks at readonly only", || {
        Interceptor::default()
            .ask::<NodeStageVolumeRequest>(|it| writing(it.volume_capability.as_mut()))
            .ask::<NodePublishVolumeRequest>(|it| writing(it.volume_capability.as_mut()))
    })
    .on_real(),
    violation("publish-hides-failures", "NP-36", "says OK whatever happens", || {
        hiding_failures::<NodePublishVolumeRequest>()
    }),
    violation("publish-leaves-a-stray-target", "NP-37", "makes the target too early", || {
        Interceptor::default().refusal::<NodePublishVolumeRequest>(|it, status| {
            let _ = std::fs::create_dir(&it.target_path);
            Err(status)
        })
    })
    .on_real(),
    violation("publish-an-empty-directory", "NP-38", "publishes what is not staged", || {
        Interceptor::default()
            .refusal::<NodePublishVolumeRequest>(|it, _| put(std::fs::create_dir(&it.target_path)))
    })
    .on_real(),
    violation("publish-misses-the-volume", "NP-38", "says NOT_FOUND", || {
        Interceptor::default()
            .recode::<NodePublishVolumeRequest>(Code::FailedPrecondition, Code::NotFound)
    }),
    violation("publish-refuses-a-ready-target", "NP-39", "insists on making it", || {
        refusing::<NodePublishVolumeRequest>(Code::Internal, |it| {
            Path::new(&it.target_path).exists()
        })
    })
    .on_real(),
];

fn is_block(request: &NodePublishVolumeRequest) -> bool {
    let access = request.volume_capability.as_ref().and_then(|it| it.access_type.as_ref());
    matches!(access, Some(AccessType::Block(_)))
}

fn mode_of(request: &NodePublishVolumeRequest) -> Option<Mode> {
    request.volume_capability.as_ref()?.access_mode.as_ref().map(AccessMode::mode)
}

fn writing(capability: Option<&mut VolumeCapability>) {
    if let Some(mode) = capability.and_then(|it| it.access_mode.as_mut()) {
        mode.mode = Mode::SingleNodeWriter.into();
    }
}

fn put(done: std::io::Result<()>) -> Result<NodePublishVolumeResponse, Status> {
    done.map(|()| NodePublishVolumeResponse {}).map_err(|error| Status::internal(error.to_string()))
}

fn one_target() -> Interceptor {
    let first = Mutex::new(BTreeMap::new());
    Interceptor::default().answer::<NodePublishVolumeRequest>(move |it| {
        let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
        let known = first.entry(it.volume_id.clone()).or_insert_with(|| it.target_path.clone());
        let elsewhere = *known != it.target_path;
        elsewhere.then(|| Err(Status::failed_precondition("published elsewhere")))
    })
}

fn secrets() -> Interceptor {
    let first = Mutex::new(BTreeMap::new());
    Interceptor::default().answer::<NodePublishVolumeRequest>(move |it| {
        let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
        let known = first.entry(it.target_path.clone()).or_insert_with(|| it.secrets.clone());
        (*known != it.secrets).then(|| Err(Status::already_exists("with other secrets")))
    })
}
