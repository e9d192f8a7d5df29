//! Generates the messages of `proto/`, and says of each request which call it belongs to.

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use protox::prost_reflect::{DescriptorPool, MethodDescriptor};

const PROTOS: [&str; 6] = [
    "csi/v1/csi.proto",
    "csi/v0/csi.proto",
    "csiaddons/identity.proto",
    "csiaddons/volumegroup.proto",
    "csiaddons/reclaimspace.proto",
    "csiaddons/encryptionkeyrotation.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    // Relative, so that a build directory stays good when the checkout moves.
    let include = Path::new("../proto");
    for proto in PROTOS {
        println!("cargo::rerun-if-changed={}", include.join(proto).display());
    }

    let mut compiler = protox::Compiler::new([include])?;
    compiler.include_imports(true).open_files(PROTOS)?;

    let out_dir = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    std::fs::write(out_dir.join("wire.bin"), compiler.encode_file_descriptor_set())?;
    std::fs::write(out_dir.join("rpc.rs"), calls(&compiler.descriptor_pool())?)?;

    tonic_prost_build::configure()
        .build_client(false)
        .build_server(false)
        .btree_map(".")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

/// Every request message is that of exactly one call, so a request alone says where it goes.
fn calls(pool: &DescriptorPool) -> Result<String, std::fmt::Error> {
    let mut code = String::new();
    for method in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        let request = rust_path(method.input().full_name());
        writeln!(code, "impl Rpc for {request} {{")?;
        writeln!(code, "    type Reply = {};", rust_path(method.output().full_name()))?;
        writeln!(code, "    const PATH: &'static str = {:?};", path_of(&method))?;
        writeln!(code, "    const REQUEST: &'static str = {:?};", method.input().full_name())?;
        writeln!(code, "    const REPLY: &'static str = {:?};", method.output().full_name())?;
        writeln!(code, "}}")?;
    }
    Ok(code)
}

fn rust_path(message: &str) -> String {
    format!("crate::wire::{}", message.replace('.', "::"))
}

fn path_of(method: &MethodDescriptor) -> String {
    format!("/{}/{}", method.parent_service().full_name(), method.name())
}
