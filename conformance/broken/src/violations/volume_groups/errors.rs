//! How it refuses, and what it does not.

use csi_conformance::wire::csi::v1::DeleteVolumeRequest;
use csi_conformance::wire::volumegroup::{
    ControllerGetVolumeGroupRequest, CreateVolumeGroupRequest, DeleteVolumeGroupRequest,
    ListVolumeGroupsRequest, ModifyVolumeGroupMembershipRequest,
};
use tonic::Code;

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

pub(in crate::violations) const ALL: &[Violation] = &[
    violation("group-has-no-name", "VG-04", "makes a group without a name", || {
        Interceptor::default().accept::<CreateVolumeGroupRequest>(Code::InvalidArgument)
    }),
    violation("group-parameters-internal", "VG-11", "has no code for bad parameters", || {
        Interceptor::default()
            .recode::<CreateVolumeGroupRequest>(Code::InvalidArgument, Code::Internal)
    }),
    violation("group-parameters-ignored", "VG-12", "does not compare parameters", || {
        Interceptor::default().accept::<CreateVolumeGroupRequest>(Code::AlreadyExists)
    }),
    violation("group-misfits-by-number", "VG-13", "uses the number that the table prints", || {
        Interceptor::default()
            .recode::<CreateVolumeGroupRequest>(Code::FailedPrecondition, Code::PermissionDenied)
    }),
    violation("group-deleted-for-nothing", "VG-16", "deletes without an id", || {
        Interceptor::default().accept::<DeleteVolumeGroupRequest>(Code::InvalidArgument)
    }),
    violation("group-in-use-internal", "VG-17", "has no code for a group in use", || {
        Interceptor::default()
            .recode::<DeleteVolumeGroupRequest>(Code::FailedPrecondition, Code::Internal)
    }),
    violation("group-member-deletable", "VG-19", "deletes a volume that is in a group", || {
        Interceptor::default().accept::<DeleteVolumeRequest>(Code::FailedPrecondition)
    }),
    violation("group-modified-for-nothing", "VG-27", "modifies without an id", || {
        Interceptor::default().accept::<ModifyVolumeGroupMembershipRequest>(Code::InvalidArgument)
    }),
    violation("group-takes-misfits", "VG-28", "adds a volume that does not fit", || {
        Interceptor::default().accept::<ModifyVolumeGroupMembershipRequest>(Code::InvalidArgument)
    }),
    violation("group-takes-unknown", "VG-29", "has another code for an unknown volume", || {
        Interceptor::default()
            .recode::<ModifyVolumeGroupMembershipRequest>(Code::NotFound, Code::FailedPrecondition)
    }),
    violation("group-is-never-full", "VG-30", "has another code for a full group", || {
        Interceptor::default().recode::<ModifyVolumeGroupMembershipRequest>(
            Code::ResourceExhausted,
            Code::FailedPrecondition,
        )
    }),
    violation("group-found-anyway", "VG-35", "finds a group that does not exist", || {
        Interceptor::default().accept::<ControllerGetVolumeGroupRequest>(Code::NotFound)
    }),
    violation("group-found-without-id", "VG-36", "takes no id for an unknown one", || {
        Interceptor::default()
            .recode::<ControllerGetVolumeGroupRequest>(Code::InvalidArgument, Code::NotFound)
    }),
    violation("groups-less-than-none", "VG-42", "lists fewer groups than none", || {
        Interceptor::default().accept::<ListVolumeGroupsRequest>(Code::InvalidArgument)
    }),
    violation("groups-from-nowhere", "VG-43", "begins again at a bad token", || {
        Interceptor::default()
            .ask::<ListVolumeGroupsRequest>(|request| request.starting_token.clear())
    }),
    violation("group-shares-volumes", "VG-46", "takes a volume of another group", || {
        Interceptor::default()
            .accept::<ModifyVolumeGroupMembershipRequest>(Code::FailedPrecondition)
    }),
    violation("group-made-of-others", "VG-46", "makes a group of another group's volume", || {
        Interceptor::default().accept::<CreateVolumeGroupRequest>(Code::FailedPrecondition)
    }),
];
