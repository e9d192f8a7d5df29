//! Snapshots whose removal was not carried to the end.
//!
//! librbd moves a snapshot to the trash namespace of its image and then removes it; one that clones
//! need stays there until the last of them is gone. A process that is killed between these steps
//! leaves it there without clones, and librbd never looks for such: it would keep its space, and
//! that of a deleted volume, for good.
//!
//! Nothing can be cloned from the trash namespace. So what has no clone there never has one again,
//! and may be removed by any process at any time.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use orlop_sys::ceph::{Access, IoCtx, SnapshotNamespace};

use super::super::image_lock::open_to_remove;

/// Longer than librbd mostly takes from one step to the next: what is just being removed is left
/// to the process that removes it.
const REMOVAL_STEP_TIME: Duration = Duration::from_secs(1);

/// By number.
pub(in super::super) fn unfinished_removals(
    io: &Arc<IoCtx>,
    image_id: &str,
) -> orlop_sys::Result<Vec<u64>> {
    let first = trashed_without_clones(io, image_id)?;
    if first.is_empty() {
        return Ok(first);
    }
    thread::sleep(REMOVAL_STEP_TIME);
    let mut still = trashed_without_clones(io, image_id)?;
    still.retain(|number| first.contains(number));
    Ok(still)
}

fn trashed_without_clones(io: &Arc<IoCtx>, image_id: &str) -> orlop_sys::Result<Vec<u64>> {
    let mut found = Vec::new();
    if !io.has_snapshots(image_id)? {
        return Ok(found);
    }
    let all = match io.open_image_by_id(image_id, None, Access::ReadOnly) {
        Err(error) if error.is_not_found() => return Ok(found),
        image => image?.snapshots()?,
    };
    for snapshot in all.into_iter().filter(|one| one.namespace == SnapshotNamespace::Trash) {
        if !io.has_clones(image_id, snapshot.number)? {
            found.push(snapshot.number);
        }
    }
    Ok(found)
}

/// Also of an image that others use: the client that holds its lock is asked to do it.
pub(in super::super) fn finish_removals(io: &Arc<IoCtx>, image_id: &str) -> orlop_sys::Result<()> {
    let unfinished = unfinished_removals(io, image_id)?;
    if unfinished.is_empty() {
        return Ok(());
    }
    let image = open_to_remove(io, image_id)?;
    for number in unfinished {
        if image.try_remove_trashed_snapshot(number)? {
            tracing::info!(
                image = image_id,
                number,
                "finished the removal of a snapshot that was interrupted"
            );
        }
    }
    Ok(())
}
