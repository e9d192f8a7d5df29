//! Which client may change the size of an image.
//!
//! librbd refuses to shrink an image, but not if two requests meet at the client that holds the
//! image's lock: there the smaller one, if it comes second, cuts off what the larger one has just
//! added. An export even shrinks the image when it is given a smaller size to show. So a client that
//! changes the size holds a lock of Orlop's for as long: ourselves, or an export.

use orlop_model::{Error, Result, VolumeId, VolumeRecord};
use orlop_sys::ceph::header_of;
use orlop_sys::rbd_export::Export;

use super::image_lock::{ImageLock, held_for};
use super::images::shrunk;
use super::session::{Session, cannot};

const LOCK: &str = "orlop.size";

/// While this lives, no other client changes the size of the image.
#[derive(Debug)]
pub(super) struct SizeLock(ImageLock);

impl SizeLock {
    /// For ourselves.
    pub(super) fn acquire(session: &Session, id: &VolumeId, image_id: &str) -> Result<Self> {
        ImageLock::acquire(session, image_id, LOCK, &size_of(id)).map(Self)
    }

    /// For an export of this node, which is then asked to show another size.
    pub(super) fn acquire_for(
        session: &Session,
        id: &VolumeId,
        image_id: &str,
        export: &Export,
    ) -> Result<Self> {
        release_orphaned(session, id, image_id, export)?;
        let address = address_of(id, export)?.ok_or_else(|| {
            Error::precondition(format!(
                "cannot grow volume {id}: the cluster does not know its export yet; try again"
            ))
        })?;
        ImageLock::acquire_for(session, &address, image_id, LOCK, &size_of(id)).map(Self)
    }

    /// The size that the image has. An image that was shrunk is not grown: that would hide the loss.
    pub(super) fn size(&self, record: &VolumeRecord) -> Result<u64> {
        let Self(lock) = self;
        // librbd gives the size that it has heard of last, which may be older than the lock.
        let size = lock.io().image_size(lock.image_id());
        let size = size.map_err(cannot(|| format!("grow volume {}", record.id)))?;
        if size < record.capacity_bytes {
            return Err(shrunk(record, size));
        }
        Ok(size)
    }

    pub(super) fn ensure_size(&self, record: &VolumeRecord, bytes: u64) -> Result<()> {
        let Self(lock) = self;
        if self.size(record)? >= bytes {
            return Ok(());
        }
        let growing = || format!("grow volume {}", record.id);
        lock.image().ensure_size(bytes).map_err(cannot(growing))
    }
}

/// A lock that an earlier daemon of this node held for the export. What it asked of the export
/// may still be under way; when that is done, the lock protects nothing.
pub(super) fn release_orphaned(
    session: &Session,
    id: &VolumeId,
    image_id: &str,
    export: &Export,
) -> Result<()> {
    let releasing = || format!("release the size lock of volume {id}");
    let header = header_of(image_id);
    let holder = session.ask(releasing, |io| io.lock_holder(&header, LOCK))?;
    let address = address_of(id, export)?;
    let Some(holder) =
        holder.filter(|it| held_for(it).is_some() && held_for(it) == address.as_deref())
    else {
        return Ok(());
    };
    export.wait_until_idle().map_err(cannot(releasing))?;
    session.ask(releasing, |io| io.ensure_lock_broken(&header, LOCK, &holder))
}

fn size_of(id: &VolumeId) -> String {
    format!("the size of volume {id}")
}

fn address_of(id: &VolumeId, export: &Export) -> Result<Option<String>> {
    export.remembered_address().map_err(cannot(|| format!("inspect the export of volume {id}")))
}
