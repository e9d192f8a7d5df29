//! Volume capabilities and access modes (AM).

use csi_conformance::wire::csi::v1::controller_service_capability::rpc::Type as Rpc;
use csi_conformance::wire::csi::v1::volume_capability::access_mode::Mode;
use csi_conformance::wire::csi::v1::volume_capability::{
    AccessMode, AccessType, BlockVolume, MountVolume,
};
use csi_conformance::wire::csi::v1::{
    ControllerPublishVolumeRequest, CreateVolumeRequest, NodePublishVolumeRequest,
    NodeStageVolumeRequest, ValidateVolumeCapabilitiesRequest, VolumeCapability,
};
use tonic::{Code, Status};

use super::without_controller;
use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

type Change = fn(&mut VolumeCapability);

/// In every call that takes one, so that calls agree with each other.
fn everywhere(change: Change) -> Interceptor {
    Interceptor::default()
        .ask::<CreateVolumeRequest>(move |request| {
            request.volume_capabilities.iter_mut().for_each(change);
        })
        .ask::<ValidateVolumeCapabilitiesRequest>(move |request| {
            request.volume_capabilities.iter_mut().for_each(change);
        })
        .ask::<ControllerPublishVolumeRequest>(move |request| {
            request.volume_capability.iter_mut().for_each(change);
        })
        .ask::<NodeStageVolumeRequest>(move |request| {
            request.volume_capability.iter_mut().for_each(change);
        })
        .ask::<NodePublishVolumeRequest>(move |request| {
            request.volume_capability.iter_mut().for_each(change);
        })
}

fn mounted(capability: &mut VolumeCapability) -> Option<&mut MountVolume> {
    match &mut capability.access_type {
        Some(AccessType::Mount(mount)) => Some(mount),
        Some(AccessType::Block(_)) | None => None,
    }
}

fn mode_of(capability: &VolumeCapability) -> Option<Mode> {
    capability.access_mode.and_then(|it| Mode::try_from(it.mode).ok())
}

fn set_mode(capability: &mut VolumeCapability, mode: Mode) {
    capability.access_mode = Some(AccessMode { mode: mode.into() });
}

/// To the node that is not this one.
fn no_second_node() -> Interceptor {
    Interceptor::default().answer::<ControllerPublishVolumeRequest>(|request| {
        let refusal = Status::failed_precondition("another node has it");
        (request.node_id == "node-2").then_some(Err(refusal))
    })
}

pub(super) const ALL: &[Violation] = &[
    violation("no-access-type-means-block", "AM-01", "takes no access type for block", || {
        Interceptor::default().ask::<NodeStageVolumeRequest>(|request| {
            if let Some(capability) = &mut request.volume_capability {
                capability.access_type.get_or_insert(AccessType::Block(BlockVolume {}));
            }
        })
    }),
    violation("no-access-type-when-publishing", "AM-01", "publishes whatever is staged", || {
        Interceptor::default().accept::<NodePublishVolumeRequest>(Code::InvalidArgument)
    }),
    violation("no-mode-means-writer", "AM-02", "takes no mode for SINGLE_NODE_WRITER", || {
        everywhere(|capability| {
            if matches!(mode_of(capability), None | Some(Mode::Unknown)) {
                set_mode(capability, Mode::SingleNodeWriter);
            }
        })
    }),
    violation("filesystem-is-required", "AM-03", "has no filesystem by default", || {
        Interceptor::default().answer::<NodeStageVolumeRequest>(|request| {
            let refusal = Status::invalid_argument("fs_type is missing");
            let mut capability = request.volume_capability.clone()?;
            mounted(&mut capability)?.fs_type.is_empty().then_some(Err(refusal))
        })
    }),
    violation("any-filesystem-will-do", "AM-04", "makes a volume for an unknown one", || {
        Interceptor::default().ask::<CreateVolumeRequest>(|request| {
            for mount in request.volume_capabilities.iter_mut().filter_map(mounted) {
                mount.fs_type.clear();
            }
        })
    }),
    violation("any-filesystem-is-confirmed", "AM-04", "confirms an unknown one", || {
        Interceptor::default().ask::<ValidateVolumeCapabilitiesRequest>(|request| {
            for mount in request.volume_capabilities.iter_mut().filter_map(mounted) {
                mount.fs_type.clear();
            }
        })
    }),
    violation("flags-without-limit", "AM-05", "takes mount flags of any size", || {
        everywhere(|capability| {
            mounted(capability).into_iter().for_each(|mount| mount.mount_flags.truncate(10));
        })
    }),
    violation("flags-are-dropped", "AM-06", "mounts without the flags", || {
        everywhere(|capability| {
            mounted(capability).into_iter().for_each(|mount| mount.mount_flags.clear());
        })
    })
    .on_real(),
    violation("group-is-dropped", "AM-07", "mounts without the group", || {
        everywhere(|capability| {
            mounted(capability).into_iter().for_each(|mount| mount.volume_mount_group.clear());
        })
    })
    .on_real(),
    violation("a-writer-twice-on-a-node", "AM-09", "publishes for one writer twice", || {
        Interceptor::default().accept::<NodePublishVolumeRequest>(Code::FailedPrecondition)
    }),
    violation("a-writer-on-two-nodes", "AM-09", "attaches for one writer to two nodes", || {
        Interceptor::default().accept::<ControllerPublishVolumeRequest>(Code::FailedPrecondition)
    })
    .on_shared(),
    violation("a-reader-twice-on-a-node", "AM-10", "publishes for one reader twice", || {
        Interceptor::default().accept::<NodePublishVolumeRequest>(Code::FailedPrecondition)
    }),
    violation("a-reader-writes", "AM-10", "publishes SINGLE_NODE_READER_ONLY writable", || {
        everywhere(|capability| {
            if mode_of(capability) == Some(Mode::SingleNodeReaderOnly) {
                set_mode(capability, Mode::SingleNodeWriter);
            }
        })
    })
    .on_real(),
    violation("readers-write", "AM-11", "publishes MULTI_NODE_READER_ONLY writable", || {
        everywhere(|capability| {
            if mode_of(capability) == Some(Mode::MultiNodeReaderOnly) {
                set_mode(capability, Mode::MultiNodeMultiWriter);
            }
        })
    })
    .on_real(),
    violation("readers-on-one-node-only", "AM-11", "keeps out a second reader", no_second_node)
        .on_shared(),
    violation("two-writers-of-one", "AM-12", "lets a second node write", || {
        Interceptor::default().accept::<ControllerPublishVolumeRequest>(Code::FailedPrecondition)
    })
    .on_shared(),
    violation("writers-on-one-node-only", "AM-13", "keeps out a second writer", no_second_node)
        .on_shared(),
    violation("a-single-writer-twice", "AM-14", "publishes for a single writer twice", || {
        Interceptor::default().accept::<NodePublishVolumeRequest>(Code::FailedPrecondition)
    }),
    violation("many-writers-once", "AM-15", "publishes for many writers only once", || {
        everywhere(|capability| {
            if mode_of(capability) == Some(Mode::SingleNodeMultiWriter) {
                set_mode(capability, Mode::SingleNodeSingleWriter);
            }
        })
    }),
    violation("older-modes-are-forgotten", "AM-16", "wants modes 6 and 7 only", || {
        Interceptor::default().answer::<CreateVolumeRequest>(|request| {
            let refusal = Status::invalid_argument("SINGLE_NODE_WRITER is not supported");
            let is_old = |it: &VolumeCapability| mode_of(it) == Some(Mode::SingleNodeWriter);
            request.volume_capabilities.iter().any(is_old).then_some(Err(refusal))
        })
    }),
    violation("new-modes-in-secret", "AM-17", "takes modes that it does not advertise", || {
        without_controller(&[Rpc::SingleNodeMultiWriter])
    }),
    violation("unknown-modes-are-taken", "AM-18", "takes a mode that it does not know", || {
        everywhere(|capability| {
            if capability.access_mode.is_some_and(|it| it.mode == 99) {
                set_mode(capability, Mode::SingleNodeWriter);
            }
        })
    }),
];
