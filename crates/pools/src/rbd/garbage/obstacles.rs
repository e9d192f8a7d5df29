//! What an operator has put on a deleted image, and what keeps it from being freed until it is taken
//! away: a lock, a group, a snapshot. Nothing of this is Orlop's to remove.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use orlop_model::PoolId;
use orlop_sys::ceph::{Access, Image, ImageSnapshot, IoCtx, SnapshotNamespace};

use super::super::layout::{is_own_snapshot, name_of_snapshot_group};
use crate::poison::lock;

/// The first one that there is, with what to do about it.
pub(in super::super) fn obstacle(
    io: &Arc<IoCtx>,
    pool: &PoolId,
    image_id: &str,
) -> orlop_sys::Result<Option<String>> {
    if let Some(holder) = io.hand_lock(image_id)? {
        return io.about_hand_lock(image_id, &holder).map(Some);
    }
    let image = match io.open_image_by_id(image_id, None, Access::ReadOnly) {
        Err(error) if error.is_not_found() => return Ok(None),
        image => image?,
    };
    if let Some(group) = image.group()?
        && name_of_snapshot_group(&group).is_none()
    {
        return Ok(Some(format!(
            "it is in the RBD group {group}; take it out with `rbd group image rm --group {group} \
             --image-id {image_id}`, or remove the group"
        )));
    }
    for snapshot in image.snapshots()? {
        if let Some(obstacle) = about_snapshot(pool, &image, image_id, &snapshot)? {
            return Ok(Some(obstacle));
        }
    }
    Ok(None)
}

fn about_snapshot(
    pool: &PoolId,
    image: &Image,
    image_id: &str,
    snapshot: &ImageSnapshot,
) -> orlop_sys::Result<Option<String>> {
    let ImageSnapshot { number, name, namespace, .. } = snapshot;
    let group = match namespace {
        SnapshotNamespace::Group => image.group_of(*number)?,
        SnapshotNamespace::User | SnapshotNamespace::Trash | SnapshotNamespace::Other => None,
    };
    Ok(match namespace {
        SnapshotNamespace::Group => group.filter(|of| name_of_snapshot_group(of).is_none()).map(|of| {
            format!(
                "it is in a snapshot of the RBD group {of}, which is not Orlop's; remove that with `rbd group snap \
                 rm` (`rbd group snap ls {of}` lists those of the group)"
            )
        }),
        SnapshotNamespace::Other => Some(format!(
            "it has the snapshot {name}, which mirroring has made; restore the image under another name with `rbd trash \
             restore --image NAME --image-id {image_id}`, then run `rbd mirror image disable NAME` and `rbd rm NAME`"
        )),
        SnapshotNamespace::User if !is_own_snapshot(pool, name) => Some(format!(
            "it has the snapshot {name}, which is not Orlop's; remove that with `rbd snap rm \
             --image-id {image_id} --snap {name}`"
        )),
        SnapshotNamespace::User if image.is_protected(name)? => Some(format!(
            "its snapshot {name} is protected; allow its removal with `rbd snap unprotect --image-id \
             {image_id} --snap {name}`"
        )),
        SnapshotNamespace::User | SnapshotNamespace::Trash => None,
    })
}

/// What was said of which image: each is said once.
#[derive(Debug, Default)]
pub(super) struct ReportedObstacles(Mutex<BTreeMap<String, String>>);

impl ReportedObstacles {
    pub(super) fn report(&self, image: &str, obstacle: Option<&str>) {
        let mut reported = lock(&self.0);
        let Some(obstacle) = obstacle else {
            reported.remove(image);
            return;
        };
        if reported.insert(image.to_owned(), obstacle.to_owned()).as_deref() != Some(obstacle) {
            tracing::warn!(image, obstacle, "a deleted image is kept");
        }
    }
}
