//! A snapshot of one image that nobody answers for yet.

use std::sync::Arc;

use orlop_model::Result;
use orlop_sys::ceph::{Image, Update};
use serde::{Deserialize, Serialize};

use super::fence::open_to_change;
use super::layout::PENDING;
use super::pending::{Gone, Leftover, Pending};
use super::store::Store;

/// A snapshot of this image.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct OfImage {
    pub(super) image: String,
}

impl Leftover for OfImage {
    const PREFIX: &'static str = PENDING;

    /// Clones of it, if there are any, keep it alive out of sight.
    fn ensure_gone(&self, store: &Store, name: &str) -> Result<Gone> {
        let removing = || format!("remove snapshot {name}");
        let found = store.ask(removing, |io| match open_to_change(io, &self.image) {
            // The image went with all that was in it.
            Err(error) if error.is_not_found() => Ok(true),
            image => image?.ensure_no_snapshot(name),
        })?;
        Ok(if found { Gone::ForGood } else { Gone::NotFound })
    }
}

/// Dropped, it takes the snapshot away again, unless it was made lasting.
#[derive(Debug)]
pub(super) struct Cut {
    pending: Pending<OfImage>,
    /// Of the image, when it was cut.
    pub(super) size: u64,
}

impl Cut {
    pub(super) fn make(store: &Arc<Store>, image_id: &str, purpose: &str) -> Result<Self> {
        let cutting = || format!("cut {purpose}");
        let pending = Pending::note(store, purpose, OfImage { image: image_id.to_owned() })?;
        let name = &pending.name;
        let size = store.ask(cutting, |io| {
            let image = open_to_change(io, image_id)?;
            image.create_snapshot(name)?;
            size_at(&image, name)
        })?;
        Ok(Self { pending, size })
    }

    pub(super) fn image_id(&self) -> &str {
        &self.pending.what.image
    }

    pub(super) fn snapshot(&self) -> &str {
        &self.pending.name
    }

    pub(super) fn try_commit(self, update: Update) -> Result<bool> {
        self.pending.try_commit(update)
    }
}

fn size_at(image: &Image, snapshot: &str) -> orlop_sys::Result<u64> {
    let all = image.snapshots()?;
    match all.into_iter().find(|one| one.name == snapshot) {
        Some(found) => Ok(found.size),
        None => image.size(),
    }
}
