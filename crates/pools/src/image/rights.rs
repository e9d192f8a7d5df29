//! Devices that this process may not open.

use orlop_model::{Error, Result};
use orlop_sys::loopdev;

use super::failure::cannot;
use super::layout::Layout;

/// Without root nothing is attached, and most loop devices of a machine are none of this pool's. But
/// a volume that an earlier daemon attached is in use, and would look as if it were not.
pub(super) fn check_devices(layout: &Layout) -> Result<()> {
    let listing = || "list the loop devices".to_owned();
    let root = layout.root().canonicalize().map_err(cannot(listing))?;
    let closed = loopdev::closed_to_us().map_err(cannot(listing))?;
    match closed.into_iter().find(|backed| backed.file.starts_with(&root)) {
        None => Ok(()),
        Some(backed) => Err(Error::failed(
            format!("open the pool at {}", root.display()),
            format!(
                "{} is attached to {}, which this process may not open; start it as root, or \
                 detach the device",
                backed.file.display(),
                backed.device.path().display()
            ),
        )),
    }
}
