//! Which libraries of Ceph this machine has.

use std::ffi::c_int;

use super::handle::call;
use crate::error::Result;

/// Of librados and librbd, as the libraries say; Ceph counts these apart from its releases.
pub fn library_versions() -> Result<String> {
    let [mut major, mut minor, mut patch]: [c_int; 3] = [0; 3];
    call!(rados.rados_version(&raw mut major, &raw mut minor, &raw mut patch));
    let rados = format!("librados {major}.{minor}.{patch}");
    call!(rbd.rbd_version(&raw mut major, &raw mut minor, &raw mut patch));
    Ok(format!("{rados}, librbd {major}.{minor}.{patch}"))
}
