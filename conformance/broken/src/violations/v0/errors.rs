//! How it refuses, and what it does not.

use csi_conformance::wire::csi::v0::{
    ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest, CreateVolumeRequest,
    DeleteVolumeRequest, ListVolumesRequest, NodeGetIdRequest, NodePublishVolumeRequest,
    NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
    ValidateVolumeCapabilitiesRequest,
};
use tonic::{Code, Status};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

pub(in crate::violations) const ALL: &[Violation] = &[
    violation("v0-node-id-is-internal", "V0-06", "has another code for what is off", || {
        Interceptor::default()
            .answer::<NodeGetIdRequest>(|_| Some(Err(Status::internal("it is off"))))
    }),
    violation("v0-same-name-other-size", "V0-32", "takes a name for another size", || {
        Interceptor::default().accept::<CreateVolumeRequest>(Code::AlreadyExists)
    }),
    violation("v0-range-is-internal", "V0-32", "has no code for an impossible size", || {
        Interceptor::default().recode::<CreateVolumeRequest>(Code::OutOfRange, Code::Internal)
    }),
    violation("v0-deletes-in-use", "V0-34", "deletes a volume that is attached", || {
        Interceptor::default().accept::<DeleteVolumeRequest>(Code::FailedPrecondition)
    }),
    violation("v0-attach-unknown", "V0-35", "has no code for an unknown volume", || {
        Interceptor::default()
            .recode::<ControllerPublishVolumeRequest>(Code::NotFound, Code::Internal)
    }),
    violation("v0-attach-otherwise", "V0-35", "attaches again in another way", || {
        Interceptor::default().accept::<ControllerPublishVolumeRequest>(Code::AlreadyExists)
    }),
    violation("v0-attach-without-end", "V0-35", "has no limit, though it says one", || {
        Interceptor::default().accept::<ControllerPublishVolumeRequest>(Code::ResourceExhausted)
    }),
    violation(
        "v0-detach-is-lenient",
        "V0-36",
        "detaches what does not exist, as in csi.v1",
        || Interceptor::default().accept::<ControllerUnpublishVolumeRequest>(Code::NotFound),
    ),
    violation("v0-validate-unknown", "V0-37", "has no code for an unknown volume", || {
        Interceptor::default()
            .recode::<ValidateVolumeCapabilitiesRequest>(Code::NotFound, Code::InvalidArgument)
    }),
    violation("v0-bad-token", "V0-38", "has another code for a bad token", || {
        Interceptor::default().recode::<ListVolumesRequest>(Code::Aborted, Code::InvalidArgument)
    }),
    violation("v0-stage-otherwise", "V0-39", "stages again in another way", || {
        Interceptor::default().accept::<NodeStageVolumeRequest>(Code::AlreadyExists)
    }),
    violation("v0-stage-unknown", "V0-39", "has another code for an unknown volume", || {
        Interceptor::default()
            .recode::<NodeStageVolumeRequest>(Code::NotFound, Code::InvalidArgument)
    }),
    violation("v0-stage-for-many", "V0-39", "has another code for a mode that is lacking", || {
        Interceptor::default()
            .recode::<NodeStageVolumeRequest>(Code::FailedPrecondition, Code::InvalidArgument)
    }),
    violation("v0-unstage-unknown", "V0-40", "fails to undo what it does not know", || {
        Interceptor::default().recode::<NodeUnstageVolumeRequest>(Code::NotFound, Code::Internal)
    }),
    violation("v0-publish-otherwise", "V0-41", "publishes again in another way", || {
        Interceptor::default().accept::<NodePublishVolumeRequest>(Code::AlreadyExists)
    }),
    violation("v0-publish-unstaged", "V0-41", "publishes what is not staged", || {
        Interceptor::default().accept::<NodePublishVolumeRequest>(Code::FailedPrecondition)
    }),
    violation("v0-unpublish-unknown", "V0-42", "fails to undo what it does not know", || {
        Interceptor::default().recode::<NodeUnpublishVolumeRequest>(Code::NotFound, Code::Internal)
    }),
    violation("v0-new-codes", "V0-45", "refuses with a code that this version lacks", || {
        Interceptor::default()
            .recode::<NodeStageVolumeRequest>(Code::InvalidArgument, Code::Unauthenticated)
    }),
    violation("v0-takes-empty-requests", "V0-45", "does not look at required fields", || {
        Interceptor::default().accept::<NodeUnpublishVolumeRequest>(Code::InvalidArgument)
    }),
];
