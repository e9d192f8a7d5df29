//! Generates the wire types and services of `proto/` without a system `protoc`.
//!
//! Messages through which a secret could reach a log get no `Debug`: formatting one is a compile
//! error, not a matter of care (GEN-37, GEN-38, V0-13).

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};

use protox::prost_reflect::{DescriptorPool, ExtensionDescriptor, FieldDescriptor};

const PROTOS: [&str; 7] = [
    "csi/v1/csi.proto",
    "csi/v0/csi.proto",
    "csiaddons/identity.proto",
    "csiaddons/volumegroup.proto",
    "csiaddons/reclaimspace.proto",
    "csiaddons/encryptionkeyrotation.proto",
    "orlop/monitor.proto",
];

/// Not served on the CSI socket.
const APART: [&str; 2] = ["orlop/peer.proto", "kubelet/pluginregistration.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    // Relative, so that a build directory stays good when the checkout moves.
    let include = Path::new("../../proto");
    for proto in PROTOS {
        println!("cargo::rerun-if-changed={}", include.join(proto).display());
    }

    let mut compiler = protox::Compiler::new([include])?;
    compiler.include_imports(true).include_source_info(true).open_files(PROTOS)?;

    // Encoded by protox, because the types of prost would drop the options of csi.v1.
    let out_dir = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    std::fs::write(out_dir.join("wire.bin"), compiler.encode_file_descriptor_set())?;
    let mut methods = methods_of(&compiler.descriptor_pool());

    tonic_prost_build::configure()
        .btree_map(".")
        .skip_debug(messages_without_debug(&compiler.descriptor_pool())?)
        .compile_fds(compiler.file_descriptor_set())?;

    // Apart: they are no part of what a plugin serves to its orchestrator.
    for proto in APART {
        println!("cargo::rerun-if-changed={}", include.join(proto).display());
    }
    let mut compiler = protox::Compiler::new([include])?;
    compiler.include_imports(true).include_source_info(true).open_files(APART)?;
    methods.extend(methods_of(&compiler.descriptor_pool()));
    let list = format!("&{:?}", methods.iter().collect::<Vec<_>>());
    std::fs::write(out_dir.join("methods.in"), list)?;
    tonic_prost_build::configure().btree_map(".").compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

/// As `csi.v1.Controller/CreateVolume`, in order.
fn methods_of(pool: &DescriptorPool) -> BTreeSet<String> {
    let services = pool.services().collect::<Vec<_>>();
    let named = |service: &protox::prost_reflect::ServiceDescriptor| {
        let name = service.full_name().to_owned();
        service.methods().map(move |method| format!("{name}/{}", method.name())).collect::<Vec<_>>()
    };
    services.iter().flat_map(named).collect()
}

/// Full names of all messages that hold something sensitive, directly or in a message within.
///
/// The names have no leading dot: prost takes `.a.B` to mean everything nested in `B` as well,
/// and harmless types such as `VolumeCapability.AccessMode` shall keep their `Debug`.
fn messages_without_debug(pool: &DescriptorPool) -> Result<BTreeSet<String>, Box<dyn Error>> {
    let csi_secret = pool
        .get_extension_by_name("csi.v1.csi_secret")
        .ok_or("csi.v1 does not declare the option csi_secret")?;

    let mut found = BTreeSet::new();
    loop {
        let known = found.len();
        for message in pool.all_messages() {
            let sensitive = message
                .fields()
                .any(|field| is_sensitive(&field, &csi_secret) || holds_message_of(&field, &found));
            if sensitive {
                found.insert(message.full_name().to_owned());
            }
        }
        if found.len() == known {
            return Ok(found);
        }
    }
}

fn is_sensitive(field: &FieldDescriptor, csi_secret: &ExtensionDescriptor) -> bool {
    field.options().get_extension(csi_secret).as_bool() == Some(true)
        || field.name().ends_with("secrets")
        || field.name() == "mount_flags"
}

fn holds_message_of(field: &FieldDescriptor, messages: &BTreeSet<String>) -> bool {
    field.kind().as_message().is_some_and(|message| messages.contains(message.full_name()))
}
