//! NodeGetInfo (NI).

use std::sync::atomic::{AtomicUsize, Ordering};

use csi_conformance::wire::csi::v1::{
    GetPluginCapabilitiesRequest, NodeGetInfoRequest, NodeGetInfoResponse,
};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation("node-info-is-missing", "NI-01", "does not have the call", || {
        Interceptor::default().unimplemented::<NodeGetInfoRequest>()
    }),
    violation("node-id-of-another", "NI-02", "gives the id of another node", || {
        changing_info(|reply| reply.node_id.push_str("-elsewhere"))
    }),
    violation("node-id-too-long", "NI-03", "gives an id of 300 bytes", || {
        changing_info(|reply| reply.node_id = "n".repeat(300))
    }),
    violation("node-id-rather-long", "NI-04", "gives an id of 200 bytes", || {
        changing_info(|reply| reply.node_id = "n".repeat(200))
    }),
    violation("node-limit-below-zero", "NI-05", "says -1 for no limit", || {
        changing_info(|reply| reply.max_volumes_per_node = -1)
    }),
    violation("node-topology-is-not-announced", "NI-06", "lists no constraints", || {
        Interceptor::default()
            .reply::<GetPluginCapabilitiesRequest>(|_, reply| reply.capabilities.clear())
    }),
    violation("node-topology-has-odd-keys", "NI-06", "makes keys that end in a dash", || {
        changing_info(|reply| {
            if let Some(topology) = &mut reply.accessible_topology {
                topology.segments.insert("zone-".to_owned(), "one".to_owned());
            }
        })
    }),
    violation("node-info-is-of-another-machine", "NI-08", "answers for another machine", || {
        changing_info(|reply| reply.node_id = "controller-0".to_owned())
    }),
    violation("node-id-changes", "NI-09", "draws another id each time", || {
        let calls = AtomicUsize::new(0);
        Interceptor::default().reply::<NodeGetInfoRequest>(move |_, reply| {
            let number = calls.fetch_add(1, Ordering::Relaxed);
            reply.node_id = format!("{}-{number}", reply.node_id);
        })
    }),
    violation("node-topology-is-not-told", "NI-11", "leaves out accessible_topology", || {
        changing_info(|reply| reply.accessible_topology = None)
    }),
];

fn changing_info(change: fn(&mut NodeGetInfoResponse)) -> Interceptor {
    Interceptor::default().reply::<NodeGetInfoRequest>(move |_, reply| change(reply))
}
