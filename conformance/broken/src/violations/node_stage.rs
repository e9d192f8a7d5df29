//! NodeStageVolume (NS).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use csi_conformance::wire::csi::v1::volume_capability::AccessMode;
use csi_conformance::wire::csi::v1::{
    NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnstageVolumeRequest,
    NodeUnstageVolumeResponse, VolumeCapability,
};
use tonic::Code;

use crate::interceptor::Interceptor;
use crate::mistakes::{
    hiding_failures, pretending, refusing, refusing_long_paths, refusing_repeats,
};
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation("stage-is-missing", "NS-01", "lists a call that it does not have", || {
        Interceptor::default().unimplemented::<NodeStageVolumeRequest>()
    }),
    violation("stage-is-not-idempotent", "NS-03", "refuses to stage what it has staged", || {
        refusing_repeats::<NodeStageVolumeRequest>(Code::AlreadyExists, |it| it.volume_id.clone())
    }),
    violation("stage-takes-no-volume-id", "NS-04", "does not look for volume_id", || {
        Interceptor::default().accept::<NodeStageVolumeRequest>(Code::InvalidArgument)
    }),
    violation("stage-misses-a-path-late", "NS-05", "takes a missing path for a bad state", || {
        Interceptor::default()
            .recode::<NodeStageVolumeRequest>(Code::InvalidArgument, Code::FailedPrecondition)
    }),
    violation("stage-guesses-the-capability", "NS-06", "does not need a capability", || {
        pretending::<NodeStageVolumeRequest>(|it| it.volume_capability.is_none())
    }),
    violation("stage-takes-relative-paths", "NS-07", "takes a path from where it runs", || {
        Interceptor::default()
            .ask::<NodeStageVolumeRequest>(|it| absolute(&mut it.staging_target_path))
    }),
    violation("stage-wants-to-make-the-directory", "NS-08", "refuses a path that exists", || {
        refusing::<NodeStageVolumeRequest>(Code::FailedPrecondition, |it| {
            Path::new(&it.staging_target_path).exists()
        })
    })
    .on_real(),
    violation("stage-takes-short-paths-only", "NS-09", "refuses a path of 128 bytes", || {
        refusing_long_paths::<NodeStageVolumeRequest>(|it| &it.staging_target_path)
    }),
    violation("stage-ignores-the-mode", "NS-10", "does not look at the access mode", || {
        Interceptor::default()
            .ask::<NodeStageVolumeRequest>(|it| known_mode(it.volume_capability.as_mut()))
    }),
    violation("stage-has-an-internal-error", "NS-11", "says INTERNAL for NOT_FOUND", || {
        Interceptor::default().recode::<NodeStageVolumeRequest>(Code::NotFound, Code::Internal)
    }),
    violation("stage-compares-the-path-only", "NS-12", "takes any capability again", || {
        Interceptor::default().accept::<NodeStageVolumeRequest>(Code::AlreadyExists)
    }),
    violation("stage-blames-the-argument", "NS-13", "says INVALID_ARGUMENT", || {
        Interceptor::default()
            .recode::<NodeStageVolumeRequest>(Code::FailedPrecondition, Code::InvalidArgument)
    }),
    violation("stage-ignores-volume-context", "NS-14", "does not compare volume_context", || {
        Interceptor::default().ask::<NodeStageVolumeRequest>(|it| it.volume_context.clear())
    }),
    violation("stage-ignores-publish-context", "NS-15", "writes to what is read-only", || {
        Interceptor::default()
            .ask::<NodeStageVolumeRequest>(|it| it.publish_context.clear())
            .ask::<NodePublishVolumeRequest>(|it| it.publish_context.clear())
    })
    .on_real(),
    violation("stage-refuses-publish-context", "NS-15", "takes no publish_context", || {
        refusing::<NodeStageVolumeRequest>(Code::InvalidArgument, |it| {
            !it.publish_context.is_empty()
        })
    }),
    violation("stage-formats-each-time", "NS-16", "loses what was written", || {
        Interceptor::default()
            .reply::<NodePublishVolumeRequest>(|it, _| emptied(Path::new(&it.target_path)))
    })
    .on_real(),
    violation("stage-hides-failures", "NS-17", "says OK whatever happens", || {
        hiding_failures::<NodeStageVolumeRequest>()
    }),
    violation("stage-goes-elsewhere", "NS-18", "stages where nobody looks", || {
        pretending::<NodeStageVolumeRequest>(|it| !Path::new(&it.staging_target_path).exists())
    })
    .on_real(),
    violation("stage-counts-publications", "NS-19", "stays staged until unstaged twice", counting),
];

pub(super) fn absolute(path: &mut String) {
    if !path.starts_with('/') && !path.is_empty() {
        path.insert(0, '/');
    }
}

pub(super) fn known_mode(capability: Option<&mut VolumeCapability>) {
    if let Some(mode) = capability.and_then(|it| it.access_mode.as_mut())
        && mode.mode > 7
    {
        *mode = AccessMode { mode: 1 };
    }
}

/// As if the filesystem had been formatted again.
fn emptied(root: &Path) {
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        // A directory that a filesystem comes with may stay.
        let _ = std::fs::remove_file(entry.path());
    }
}

fn counting() -> Interceptor {
    let published = Arc::new(Mutex::new(BTreeMap::new()));
    let unstaged = Arc::clone(&published);
    Interceptor::default()
        .reply::<NodePublishVolumeRequest>(move |it, _| {
            changed(&published, &it.volume_id, 1);
        })
        .answer::<NodeUnstageVolumeRequest>(move |it| {
            let is_left = changed(&unstaged, &it.volume_id, -1) > 0;
            is_left.then(|| Ok(NodeUnstageVolumeResponse {}))
        })
}

fn changed(counts: &Mutex<BTreeMap<String, i32>>, volume_id: &str, by: i32) -> i32 {
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    let count = counts.entry(volume_id.to_owned()).or_insert(0);
    *count += by;
    *count
}
