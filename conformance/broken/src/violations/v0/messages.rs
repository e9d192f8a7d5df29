//! Other methods, other fields.

use csi_conformance::fields::{GARBAGE, delimited_field, varint_field};
use csi_conformance::wire::csi::v0::{
    ControllerGetCapabilitiesRequest, ControllerPublishVolumeRequest, CreateVolumeRequest,
    DeleteVolumeRequest, GetCapacityRequest, GetPluginCapabilitiesRequest, ListVolumesRequest,
    NodeGetCapabilitiesRequest, NodeGetIdRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    ProbeRequest, ValidateVolumeCapabilitiesRequest,
};
use csi_conformance::wire::csi::v1;

use crate::interceptor::Interceptor;
use crate::renumber::{has, inside, moved, renumbered, with, without};
use crate::violation::{Violation, violation};

pub(in crate::violations) const ALL: &[Violation] = &[
    violation("v0-has-no-controller", "V0-01", "serves csi.v0 only in part", || {
        Interceptor::default().unimplemented::<ControllerGetCapabilitiesRequest>()
    }),
    violation("v1-speaks-v0", "V0-02", "answers csi.v1 with messages of csi.v0", || {
        Interceptor::default()
            .reply_bytes::<v1::ControllerGetCapabilitiesRequest>(|reply| moved(&reply, 1, 2))
    }),
    violation("v0-has-snapshots", "V0-03", "has a method of a later version", || {
        Interceptor::default().serve("/csi.v0.Controller/CreateSnapshot")
    }),
    violation("v0-has-no-delete", "V0-03", "lacks a method that it offers", || {
        Interceptor::default().unimplemented::<DeleteVolumeRequest>()
    }),
    violation("v0-has-node-info", "V0-04", "has a method of a later version", || {
        Interceptor::default().serve("/csi.v0.Node/NodeGetInfo")
    }),
    violation("v0-node-id-elsewhere", "V0-05", "puts the node's id into another field", || {
        Interceptor::default().reply_bytes::<NodeGetIdRequest>(|reply| moved(&reply, 1, 2))
    }),
    violation("v0-volume-has-topology", "V0-08", "sends a field that csi.v1 has", || {
        Interceptor::default().reply_bytes::<CreateVolumeRequest>(|reply| {
            inside(&reply, 1, |volume| with(volume, &delimited_field(5, &[])))
        })
    }),
    violation("v0-volume-id-elsewhere", "V0-08", "changes the numbers of two fields", || {
        Interceptor::default().reply_bytes::<CreateVolumeRequest>(|reply| {
            inside(&reply, 1, |volume| moved(&volume, 2, 3))
        })
    }),
    violation("v0-stage-knows-no-attributes", "V0-10", "does not read the attributes", || {
        Interceptor::default().ask_bytes::<NodeStageVolumeRequest>(|asked| without(&asked, 6))
    }),
    violation("v0-attach-knows-no-attributes", "V0-10", "does not read the attributes", || {
        Interceptor::default()
            .ask_bytes::<ControllerPublishVolumeRequest>(|asked| without(&asked, 6))
    }),
    violation("v0-publish-knows-no-info", "V0-11", "does not read publish_info", || {
        Interceptor::default().ask_bytes::<NodePublishVolumeRequest>(|asked| without(&asked, 2))
    }),
    violation("v0-publish-info-elsewhere", "V0-11", "puts publish_info into another field", || {
        let entry = [delimited_field(1, b"key"), delimited_field(2, b"value")].concat();
        let entry = delimited_field(2, &entry);
        Interceptor::default()
            .reply_bytes::<ControllerPublishVolumeRequest>(move |reply| with(reply, &entry))
    }),
    violation("v0-publish-knows-no-secrets", "V0-12", "does not read the secrets", || {
        Interceptor::default().ask_bytes::<NodePublishVolumeRequest>(|asked| without(&asked, 7))
    }),
    violation("v0-delete-knows-no-secrets", "V0-12", "does not read the secrets", || {
        Interceptor::default().ask_bytes::<DeleteVolumeRequest>(|asked| without(&asked, 2))
    }),
    violation("v0-plugin-capabilities-of-v1", "V0-14", "numbers a field as csi.v1 does", || {
        Interceptor::default()
            .reply_bytes::<GetPluginCapabilitiesRequest>(|reply| moved(&reply, 2, 1))
    }),
    violation("v0-controller-capabilities-of-v1", "V0-15", "numbers as csi.v1 does", || {
        Interceptor::default()
            .reply_bytes::<ControllerGetCapabilitiesRequest>(|reply| moved(&reply, 2, 1))
    }),
    violation("v0-node-capabilities-in-2", "V0-16", "numbers a field as the others", || {
        Interceptor::default()
            .reply_bytes::<NodeGetCapabilitiesRequest>(|reply| moved(&reply, 1, 2))
    }),
    violation("v0-validate-numbers-of-v1", "V0-17", "numbers fields as csi.v1 does", || {
        Interceptor::default().ask_bytes::<ValidateVolumeCapabilitiesRequest>(|asked| {
            renumbered(&asked, |number| match number {
                2 => Some(3),
                3 => Some(2),
                other => Some(other),
            })
        })
    }),
    violation("v0-probe-says-ready", "V0-19", "answers Probe as csi.v1 does", || {
        let ready = delimited_field(1, &varint_field(1, 1));
        Interceptor::default().reply_bytes::<ProbeRequest>(move |reply| with(reply, &ready))
    }),
    violation("v0-reads-content-source", "V0-25", "reads a field that csi.v1 has", || {
        Interceptor::default().ask_bytes::<CreateVolumeRequest>(|asked| {
            if has(&asked, 6) { GARBAGE.to_vec() } else { asked }
        })
    }),
    violation("v0-entries-have-status", "V0-26", "sends the status of listed volumes", || {
        Interceptor::default().reply_bytes::<ListVolumesRequest>(|reply| {
            inside(&reply, 1, |entry| with(entry, &delimited_field(2, &[])))
        })
    }),
    violation("v0-capacity-has-more", "V0-27", "sends a field that csi.v1 has", || {
        let largest = delimited_field(2, &varint_field(1, 1));
        Interceptor::default().reply_bytes::<GetCapacityRequest>(move |reply| with(reply, &largest))
    }),
    violation("v0-capacity-knows-no-parameters", "V0-27", "does not read parameters", || {
        Interceptor::default().ask_bytes::<GetCapacityRequest>(|asked| without(&asked, 2))
    }),
];
