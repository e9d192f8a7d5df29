//! Identity of CSI-Addons (CA).

use std::sync::atomic::{AtomicUsize, Ordering};

use csi_conformance::wire::encryptionkeyrotation::EncryptionKeyRotateRequest;
use csi_conformance::wire::identity::capability::{NetworkFence, Service, Type, VolumeReplication};
use csi_conformance::wire::identity::{
    Capability, GetCapabilitiesRequest, GetIdentityRequest, ProbeRequest,
};
use csi_conformance::wire::reclaimspace::NodeReclaimSpaceRequest;
use csi_conformance::wire::volumegroup::ListVolumeGroupsRequest;
use tonic::Code;

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

/// Offers what it does not serve.
fn offering(r#type: fn() -> Option<Type>) -> Interceptor {
    Interceptor::default().reply::<GetCapabilitiesRequest>(move |_, reply| {
        reply.capabilities.push(Capability { r#type: r#type() });
    })
}

/// The suite asks twice before it breaks anything.
const BEFORE_IT_BREAKS: usize = 2;

pub(super) const ALL: &[Violation] = &[
    violation("addons-without-identity", "CA-01", "has no GetIdentity", || {
        Interceptor::default().unimplemented::<GetIdentityRequest>()
    }),
    violation("addons-name-too-long", "CA-02", "has a name of 64 characters", || {
        Interceptor::default().reply::<GetIdentityRequest>(|_, reply| reply.name = "n".repeat(64))
    }),
    violation("addons-without-name", "CA-02", "has no name", || {
        Interceptor::default().reply::<GetIdentityRequest>(|_, reply| reply.name.clear())
    }),
    violation("addons-name-is-odd", "CA-03", "has an underscore in its name", || {
        Interceptor::default().reply::<GetIdentityRequest>(|_, reply| reply.name.push_str("_x"))
    }),
    violation("addons-has-another-name", "CA-05", "has another name than the driver", || {
        Interceptor::default()
            .reply::<GetIdentityRequest>(|_, reply| reply.name.insert_str(0, "addons."))
    }),
    violation("addons-without-version", "CA-06", "has no version", || {
        Interceptor::default().reply::<GetIdentityRequest>(|_, reply| reply.vendor_version.clear())
    }),
    violation("addons-identity-when-broken", "CA-08", "makes up what it cannot find out", || {
        let calls = AtomicUsize::new(0);
        Interceptor::default().reply::<GetIdentityRequest>(move |_, reply| {
            if calls.fetch_add(1, Ordering::Relaxed) > 0 {
                reply.vendor_version = "unknown".to_owned();
            }
        })
    }),
    violation("addons-empty-capability", "CA-09", "has a capability that says nothing", || {
        offering(|| None)
    }),
    violation("addons-unknown-capability", "CA-09", "has a capability of no type", || {
        offering(|| Some(Type::NetworkFence(NetworkFence { r#type: 0 })))
    }),
    violation("addons-without-node", "CA-10", "does not say that it serves the node", || {
        Interceptor::default().reply::<GetCapabilitiesRequest>(|_, reply| {
            let node = Type::Service(Service { r#type: 2 });
            reply.capabilities.retain(|entry| entry.r#type.as_ref() != Some(&node));
        })
    }),
    violation("addons-reclaims-in-words", "CA-11", "offers ONLINE and does not serve it", || {
        Interceptor::default().unimplemented::<NodeReclaimSpaceRequest>()
    }),
    violation("addons-fences-in-words", "CA-12", "offers a fence and has none", || {
        offering(|| Some(Type::NetworkFence(NetworkFence { r#type: 1 })))
    }),
    violation("addons-replicates-in-words", "CA-13", "offers replication and has none", || {
        offering(|| Some(Type::VolumeReplication(VolumeReplication { r#type: 1 })))
    }),
    violation("addons-lists-in-words", "CA-14", "offers lists of groups and has none", || {
        Interceptor::default().unimplemented::<ListVolumeGroupsRequest>()
    }),
    violation("addons-rotates-in-words", "CA-15", "offers new keys and has none", || {
        Interceptor::default().unimplemented::<EncryptionKeyRotateRequest>()
    }),
    violation("addons-capabilities-when-broken", "CA-16", "forgets what it offers", || {
        let calls = AtomicUsize::new(0);
        Interceptor::default().reply::<GetCapabilitiesRequest>(move |_, reply| {
            if calls.fetch_add(1, Ordering::Relaxed) >= BEFORE_IT_BREAKS {
                reply.capabilities.clear();
            }
        })
    }),
    violation("addons-is-always-well", "CA-17", "says that it is well whatever happened", || {
        Interceptor::default().accept::<ProbeRequest>(Code::FailedPrecondition)
    }),
    violation("addons-probe-is-internal", "CA-18", "has no code for missing storage", || {
        Interceptor::default().recode::<ProbeRequest>(Code::FailedPrecondition, Code::Internal)
    }),
    violation("addons-is-never-ready", "CA-20", "is ready and says that it is not", || {
        Interceptor::default().reply::<ProbeRequest>(|_, reply| reply.ready = Some(false))
    }),
    violation("addons-probe-cannot-fail", "CA-22", "does not look when it is probed", || {
        Interceptor::default().forget::<ProbeRequest>()
    }),
];
