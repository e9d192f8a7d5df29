//! The wire: messages, servers and clients generated from `proto/`, one module for each package.
//!
//! Messages that hold secrets or mount flags, at any depth, have no `Debug`; see `build.rs`.

// The modules nest as the packages do, since generated code refers from one package to another
// by relative paths such as `super::csi::v1`.
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

/// CSI-Addons: another key for an encrypted volume.
pub mod encryptionkeyrotation {
    tonic::include_proto!("encryptionkeyrotation");
}

/// What a daemon says of itself to people on its machine; no part of any specification.
pub mod monitor {
    tonic::include_proto!("orlop.monitor.v1");
}

/// What daemons ask each other; no part of any specification.
pub mod peer {
    tonic::include_proto!("orlop.peer.v1");
}

/// How kubelet learns of a plugin.
pub mod pluginregistration {
    tonic::include_proto!("pluginregistration");
}

/// All of the above but the last two as an encoded `google.protobuf.FileDescriptorSet`, options included.
pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("wire");

#[cfg(test)]
mod tests;
