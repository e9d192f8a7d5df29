//! Clone depth: copies of copies of copies.
//!
//! A clone reads what it did not write from its parent, which may be a clone itself. Every level
//! costs time, and the kernel's client gives up at 16. So a volume that is deeper than a few is
//! made independent of its parents in the background, while it is in use; and where that did not
//! keep up, no more is stacked on top.

use std::sync::Arc;

use orlop_model::{Error, PoolInfo, Result, VolumeId};
use orlop_sys::ceph::{Access, IoCtx, Update};

use super::garbage::Background;
use super::image_lock::open_to_change;
use super::images::named_image;
use super::layout::{FLATTEN, RECORDS, flatten_image_key, flatten_volume_key, image_to_flatten};
use super::records::Records;
use super::session::Session;

const FLATTENED_BEYOND: usize = 4;
const MAX_CLONE_DEPTH: usize = 12;

#[derive(Debug)]
pub(super) struct Flattening {
    session: Arc<Session>,
    info: Arc<PoolInfo>,
    records: Arc<Records>,
    background: Arc<Background>,
}

impl Flattening {
    pub(super) fn new(
        session: &Arc<Session>,
        info: &Arc<PoolInfo>,
        records: &Arc<Records>,
        background: &Arc<Background>,
    ) -> Self {
        Self {
            session: Arc::clone(session),
            info: Arc::clone(info),
            records: Arc::clone(records),
            background: Arc::clone(background),
        }
    }

    /// How many images the data of this one comes from, beside itself.
    fn depth_of(&self, image_id: &str) -> Result<usize> {
        let looking = || format!("read the parents of image {image_id}");
        self.session.ask(looking, |io| {
            let mut image = io.open_image_by_id(image_id, None, Access::ReadOnly)?;
            let mut depth = 0;
            while depth < MAX_CLONE_DEPTH
                && let Some(parent) = image.parent()?
            {
                depth += 1;
                image = io.open_image_by_id(&parent.image_id, None, Access::ReadOnly)?;
            }
            Ok(depth)
        })
    }

    /// A request that was made with a volume is gone if the volume was deleted before it was
    /// flattened; snapshots of it are as deep as it was.
    pub(super) fn check_depth(&self, source_image: &str) -> Result<()> {
        if self.depth_of(source_image)? < MAX_CLONE_DEPTH {
            return Ok(());
        }
        let requesting = || format!("request the flattening of image {source_image}");
        let request = Update::default().set(&flatten_image_key(source_image), b"1");
        self.records.update(requesting, &request)?;
        self.background.wake();
        Err(Error::busy(
            "the source volume",
            format!("its clone chain is {MAX_CLONE_DEPTH} images deep and is being flattened"),
        ))
    }

    /// Its volume is there already: if the request fails, it only stays deep.
    pub(super) fn request_if_deep(&self, id: &VolumeId, image_id: &str) {
        let requesting = || format!("request the flattening of volume {id}");
        let requested = self.depth_of(image_id).and_then(|depth| {
            if depth <= FLATTENED_BEYOND {
                return Ok(());
            }
            let request = Update::default().set(&flatten_volume_key(id), b"1");
            self.records.update(requesting, &request)?;
            self.background.wake();
            Ok(())
        });
        if let Err(error) = requested {
            tracing::warn!(%error, volume = %id, "cannot read the clone depth of a volume");
        }
    }

    pub(super) fn is_requested(&self, id: &VolumeId, image_id: &str) -> Result<bool> {
        let looking = || format!("check whether volume {id} is to be flattened");
        let by_image = flatten_image_key(image_id);
        Ok(self.records.get(looking, &flatten_volume_key(id))?.is_some()
            || self.records.get(looking, &by_image)?.is_some())
    }

    pub(super) fn flatten_requested(&self) -> Result<()> {
        let listing = || format!("list the volumes to flatten in pool {}", self.info.name);
        let mut left = 0;
        for (key, _) in self.records.list(listing, "", FLATTEN, 0)? {
            let volume = key.strip_prefix(FLATTEN).and_then(|id| id.parse::<VolumeId>().ok());
            // An image that cannot be flattened must not prevent that others are flattened.
            let flattened = match (image_to_flatten(&key), volume) {
                (Some(image_id), _) => {
                    self.flatten(image_id, |_| Ok(Some(image_id.to_owned())), &key)
                }
                (None, Some(id)) => self.flatten(&id.to_string(), |io| named_image(io, &id), &key),
                (None, None) => continue,
            };
            match flattened {
                // What it was copied from may be free now.
                Ok(()) => self.background.wake(),
                Err(error) => {
                    // What an operator has to do first may take hours.
                    left += usize::from(!matches!(error, Error::Precondition(_)));
                    tracing::warn!(%error, key, "cannot flatten an image yet; it will be retried");
                }
            }
        }
        match left {
            0 => Ok(()),
            left => Err(Error::busy(
                format!("pool {}", self.info.name),
                format!("{left} images cannot be flattened yet"),
            )),
        }
    }

    /// `what` is flattened: a volume or an image, by id.
    fn flatten(
        &self,
        what: &str,
        find_image: impl Fn(&IoCtx) -> orlop_sys::Result<Option<String>>,
        request: &str,
    ) -> Result<()> {
        let flattening = || format!("flatten {what}");
        self.session.ask(flattening, |io| {
            if let Some(image_id) = find_image(io)? {
                match open_to_change(io, &image_id) {
                    Err(error) if error.is_not_found() => {}
                    image => image?.flatten()?,
                }
            }
            io.update(RECORDS, &Update::default().remove(request)).map(drop)
        })?;
        tracing::info!(image = what, "flattened an image");
        Ok(())
    }
}
