//! The loop devices on a managed pool's image: the pool's own, and those that were attached by hand.

use std::path::Path;

use orlop_model::{PoolId, Result};
use orlop_sys::file::{self, Openers};
use orlop_sys::loopdev::{self, BackedDevice, LoopDevice};

use super::{image_in, label_of};
use crate::image::attach::foreign::{Harm, SharingCheck, reports_openers};
use crate::image::failure::cannot;
use crate::image::layout::STAGING;

/// The device that an earlier start attached. Without one the image is refused if something else uses it:
/// mounted twice, the filesystem in it is destroyed (decision 0046). Beside one that is in use already,
/// refusing would mend nothing.
pub(super) fn find_own_device(root: &Path, label: &str) -> Result<Option<LoopDevice>> {
    let image = image_in(root);
    let looking = || format!("inspect the pool's image {}", image.display());
    let OnImage { own, foreign } = devices_on_image(root, label)?;
    if own.is_none() {
        let object = format!("the pool's image {}", image.display());
        let is_open = file::openers(&image).map_err(cannot(looking))? != Openers::None;
        let check = SharingCheck {
            doing: "attach",
            object: &object,
            data: &image,
            harm: Harm::Any,
            own: &[],
            reports_openers: !is_open || reports_openers(&root.join(STAGING)),
        };
        check.run(|_| true)?;
    }
    for device in foreign {
        tracing::warn!(
            device = %device.path().display(),
            image = %image.display(),
            "a loop device that Orlop did not attach is on the pool's image, which is in use; unmount \
             what is on it and detach it"
        );
    }
    Ok(own)
}

/// The loop devices on a pool's image.
struct OnImage {
    own: Option<LoopDevice>,
    foreign: Vec<LoopDevice>,
}

fn devices_on_image(root: &Path, label: &str) -> Result<OnImage> {
    let image = image_in(root);
    let listing = || format!("list the loop devices on {}", image.display());
    let mut found = OnImage { own: None, foreign: Vec::new() };
    for there in loopdev::attached_to(&image, |_| true).map_err(cannot(listing))? {
        match is_own(&there, label)? {
            true => found.own = Some(there.device),
            false => found.foreign.push(there.device),
        }
    }
    Ok(found)
}

/// Devices on the pool's image that Orlop did not attach.
pub(in crate::image) fn foreign_devices(root: &Path, pool: &PoolId) -> Result<Vec<LoopDevice>> {
    Ok(devices_on_image(root, &label_of(pool))?.foreign)
}

/// As [`loopdev::attach`] makes it. A device by hand may begin elsewhere in the file, have other sectors
/// and no direct I/O.
fn is_own(there: &BackedDevice, label: &str) -> Result<bool> {
    let device = &there.device;
    let status = loopdev::status(device)
        .map_err(cannot(|| format!("inspect {}", device.path().display())))?;
    Ok(status.is_some_and(|it| it.label == label && it.offset == 0 && !it.read_only))
}
