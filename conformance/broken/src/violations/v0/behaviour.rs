//! What it does and what it says of itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use csi_conformance::options::Pairs;
use csi_conformance::wire::Rpc;
use csi_conformance::wire::csi::v0::controller_service_capability::{
    Rpc as ControllerRpc, Type as ControllerType,
};
use csi_conformance::wire::csi::v0::node_service_capability::{Rpc as NodeRpc, Type as NodeType};
use csi_conformance::wire::csi::v0::plugin_capability::{Service, Type as PluginType};
use csi_conformance::wire::csi::v0::{
    ControllerGetCapabilitiesRequest, ControllerServiceCapability, CreateVolumeRequest,
    DeleteVolumeRequest, GetPluginCapabilitiesRequest, GetPluginInfoRequest,
    NodeGetCapabilitiesRequest, NodeGetIdRequest, NodePublishVolumeRequest, NodeServiceCapability,
    NodeStageVolumeRequest, NodeUnpublishVolumeRequest, PluginCapability, ProbeRequest,
    ValidateVolumeCapabilitiesRequest,
};
use tonic::{Code, Status};

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

pub(in crate::violations) const ALL: &[Violation] = &[
    violation("v0-node-id-too-long", "V0-07", "has a node_id as long as csi.v1 allows", || {
        Interceptor::default()
            .reply::<NodeGetIdRequest>(|_, reply| reply.node_id = format!("{:n<200}", "node"))
    }),
    violation("v0-attributes-change", "V0-09", "sends other attributes each time", || {
        let calls = AtomicUsize::new(0);
        Interceptor::default().reply::<CreateVolumeRequest>(move |_, reply| {
            let number = calls.fetch_add(1, Ordering::Relaxed);
            if let Some(volume) = &mut reply.volume {
                volume.attributes.insert("call".to_owned(), number.to_string());
            }
        })
    }),
    violation("v0-logs-secrets", "V0-13", "logs what it is asked, secrets and all", || {
        Interceptor::default().ask::<NodeStageVolumeRequest>(|request| {
            tracing::info!(secrets = ?request.node_stage_secrets, "NodeStageVolume");
        })
    }),
    violation("v0-validates-the-first", "V0-18", "looks at the first capability only", || {
        Interceptor::default().ask::<ValidateVolumeCapabilitiesRequest>(|request| {
            request.volume_capabilities.truncate(1);
        })
    }),
    violation("v0-supports-everything", "V0-18", "supports whatever it is asked", || {
        Interceptor::default()
            .reply::<ValidateVolumeCapabilitiesRequest>(|_, reply| reply.supported = true)
            .accept::<ValidateVolumeCapabilitiesRequest>(Code::InvalidArgument)
            .reply::<ValidateVolumeCapabilitiesRequest>(|_, reply| reply.supported = true)
    }),
    violation("v0-name-is-odd", "V0-20", "has a name with an underscore in front", || {
        Interceptor::default().reply::<GetPluginInfoRequest>(|_, reply| reply.name.insert(0, '_'))
    }),
    violation("v0-offers-topology", "V0-21", "offers what only later versions have", || {
        Interceptor::default().reply::<GetPluginCapabilitiesRequest>(|_, reply| {
            let later = PluginType::Service(Service { r#type: 2 });
            reply.capabilities.push(PluginCapability { r#type: Some(later) });
        })
    }),
    violation("v0-offers-snapshots", "V0-22", "offers what only later versions have", || {
        Interceptor::default().reply::<ControllerGetCapabilitiesRequest>(|_, reply| {
            let later = ControllerType::Rpc(ControllerRpc { r#type: 5 });
            reply.capabilities.push(ControllerServiceCapability { r#type: Some(later) });
        })
    }),
    violation("v0-offers-stats", "V0-23", "offers what only later versions have", || {
        Interceptor::default().reply::<NodeGetCapabilitiesRequest>(|_, reply| {
            let later = NodeType::Rpc(NodeRpc { r#type: 2 });
            reply.capabilities.push(NodeServiceCapability { r#type: Some(later) });
        })
    }),
    violation("v0-knows-later-modes", "V0-24", "takes access modes of later versions", || {
        Interceptor::default().ask::<CreateVolumeRequest>(|request| {
            for mode in request.volume_capabilities.iter_mut().flat_map(|it| &mut it.access_mode) {
                mode.mode = mode.mode.min(5);
            }
        })
    }),
    violation(
        "v0-wants-no-target",
        "V0-28",
        "makes the target itself and wants none there",
        || {
            Interceptor::default().answer::<NodePublishVolumeRequest>(|request| {
                let is_there = Path::new(&request.target_path).is_dir();
                is_there.then(|| Err(Status::internal("the target exists")))
            })
        },
    )
    .on_real(),
    violation("v0-leaves-the-mount", "V0-29", "says that it unpublished and did not", || {
        once::<NodeUnpublishVolumeRequest>(|request| request.target_path.clone())
    })
    .on_real(),
    violation("v0-takes-short-paths", "V0-30", "takes paths of 100 bytes at most", || {
        Interceptor::default().answer::<NodePublishVolumeRequest>(|request| {
            let is_long = request.target_path.len() > 100;
            is_long.then(|| Err(Status::invalid_argument("target_path is too long")))
        })
    }),
    violation("v0-deletes-nothing", "V0-31", "says that it deleted and did not", || {
        Interceptor::default().forget::<DeleteVolumeRequest>()
    }),
    violation("v0-gives-old-data", "V0-31", "gives a new volume the data of a deleted one", || {
        once::<DeleteVolumeRequest>(|request| request.volume_id.clone())
    })
    .on_real(),
    violation("v0-creates-for-the-first", "V0-33", "looks at the first capability only", || {
        Interceptor::default().ask::<CreateVolumeRequest>(|request| {
            request.volume_capabilities.truncate(1);
        })
    }),
    violation("v0-is-always-well", "V0-43", "says that it is well whatever happened", || {
        Interceptor::default().accept::<ProbeRequest>(Code::FailedPrecondition)
    }),
    violation("v0-compares-secrets", "V0-44", "takes other secrets for another request", || {
        let seen = Mutex::new(BTreeMap::<String, Pairs>::new());
        Interceptor::default().answer::<NodePublishVolumeRequest>(move |request| {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let secrets = request.node_publish_secrets.clone();
            let first = seen.entry(request.target_path.clone()).or_insert_with(|| secrets.clone());
            (*first != secrets).then(|| Err(Status::already_exists("published otherwise")))
        })
    }),
    violation("v0-publishes-many-once", "V0-44", "publishes a shared volume at one path", || {
        let seen = Mutex::new(BTreeMap::<String, String>::new());
        Interceptor::default().answer::<NodePublishVolumeRequest>(move |request| {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let target = request.target_path.clone();
            let first = seen.entry(request.volume_id.clone()).or_insert_with(|| target.clone());
            (*first != target).then(|| Err(Status::failed_precondition("published elsewhere")))
        })
    }),
    violation("v0-takes-short-names", "V0-46", "takes names of 100 bytes at most", || {
        Interceptor::default().answer::<CreateVolumeRequest>(|request| {
            let is_long = request.name.len() > 100;
            is_long.then(|| Err(Status::invalid_argument("the name is too long")))
        })
    }),
];

/// Does nothing the first time, and says that it did; later calls do it, so that checks can clean up.
fn once<R: Rpc>(what: fn(&R) -> String) -> Interceptor {
    let seen = Mutex::new(BTreeSet::new());
    Interceptor::default().answer::<R>(move |request| {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(what(request)).then(|| Ok(R::Reply::default()))
    })
}
