//! The messages, and which call each request belongs to.

use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, MessageDescriptor};

pub mod csi {
    /// CSI 1.12.
    pub mod v1 {
        tonic::include_proto!("csi.v1");
    }

    /// CSI 0.2.
    pub mod v0 {
        tonic::include_proto!("csi.v0");
    }
}

/// CSI-Addons: what the plugin offers beyond CSI.
pub mod identity {
    tonic::include_proto!("identity");
}

/// CSI-Addons: groups of volumes.
pub mod volumegroup {
    tonic::include_proto!("volumegroup");
}

/// CSI-Addons: returning unused space.
pub mod reclaimspace {
    tonic::include_proto!("reclaimspace");
}

/// CSI-Addons: new keys for encrypted volumes.
pub mod encryptionkeyrotation {
    tonic::include_proto!("encryptionkeyrotation");
}

/// A request, and thereby a call: one request message belongs to one method.
pub trait Rpc: prost::Message + Default + Clone + Send + 'static {
    type Reply: prost::Message + Default + Clone + Send + 'static;
    /// `/csi.v1.Controller/CreateVolume`
    const PATH: &'static str;
    /// Full name of the request's message.
    const REQUEST: &'static str;
    const REPLY: &'static str;
}

include!(concat!(env!("OUT_DIR"), "/rpc.rs"));

static DESCRIPTORS: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let encoded: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/wire.bin"));
    // Encoded by the build script from the same files; a pool without messages would show at once.
    DescriptorPool::decode(encoded).unwrap_or_default()
});

pub(crate) fn descriptor(message: &str) -> Option<MessageDescriptor> {
    DESCRIPTORS.get_message_by_name(message)
}

/// Full paths of all methods of a service, such as `csi.v1.Node`.
pub fn methods_of(service: &str) -> Vec<String> {
    let found = DESCRIPTORS.get_service_by_name(service);
    let methods = found.iter().flat_map(|service| service.methods().collect::<Vec<_>>());
    methods.map(|method| format!("/{service}/{}", method.name())).collect()
}
