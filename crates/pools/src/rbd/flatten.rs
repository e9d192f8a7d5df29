//! Clone depth: copies of copies of copies.
//!
//! A clone reads what it did not write from its parent, which may be a clone itself. Every level
//! costs time, and the kernel's client gives up at 16. So a volume that is deeper than a few is
//! made independent of its parents in the background, while it is in use; and where that did not
//! keep up, no more is stacked on top.

use std::sync::Arc;

use orlop_model::{Error, PoolInfo, Result, VolumeId};
use orlop_sys::ceph::{Access, Update};

use super::garbage::Background;
use super::layout::{FLATTEN, RECORDS, image_of};
use super::records::Records;
use super::session::Session;

const FLATTENED_BEYOND: usize = 4;
const DEEPEST: usize = 12;

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
            while depth < DEEPEST
                && let Some(parent) = image.parent()?
            {
                depth += 1;
                image = io.open_image_by_id(&parent.image_id, None, Access::ReadOnly)?;
            }
            Ok(depth)
        })
    }

    pub(super) fn check_depth(&self, source_image: &str) -> Result<()> {
        if self.depth_of(source_image)? < DEEPEST {
            return Ok(());
        }
        self.background.wake();
        Err(Error::busy(
            "the source volume",
            format!("its clone chain is {DEEPEST} images deep and is being flattened"),
        ))
    }

    /// Its volume is there already: if the request fails, it only stays deep.
    pub(super) fn request_if_deep(&self, id: &VolumeId, image_id: &str) {
        let requesting = || format!("request the flattening of volume {id}");
        let requested = self.depth_of(image_id).and_then(|depth| {
            if depth <= FLATTENED_BEYOND {
                return Ok(());
            }
            let request = Update::default().set(&format!("{FLATTEN}{id}"), b"1");
            self.records.update(requesting, &request)?;
            self.background.wake();
            Ok(())
        });
        if let Err(error) = requested {
            tracing::warn!(%error, volume = %id, "cannot read the clone depth of a volume");
        }
    }

    pub(super) fn is_requested(&self, id: &VolumeId) -> Result<bool> {
        let looking = || format!("check whether volume {id} is to be flattened");
        Ok(self.records.get(looking, &format!("{FLATTEN}{id}"))?.is_some())
    }

    pub(super) fn flatten_requested(&self) -> Result<()> {
        let listing = || format!("list the volumes to flatten in pool {}", self.info.name);
        for (key, _) in self.records.list(listing, "", FLATTEN, 0)? {
            let Some(id) = key.strip_prefix(FLATTEN).and_then(|id| id.parse::<VolumeId>().ok())
            else {
                continue;
            };
            // One that cannot be flattened must not keep the others from it.
            match self.flatten(&id, &key) {
                // What it was copied from may be free now.
                Ok(()) => self.background.wake(),
                Err(error) => {
                    tracing::warn!(%error, volume = %id, "cannot flatten a volume yet; it will be \
                         retried")
                }
            }
        }
        Ok(())
    }

    fn flatten(&self, id: &VolumeId, request: &str) -> Result<()> {
        let flattening = || format!("flatten volume {id}");
        self.session.ask(flattening, |io| {
            match io.open_image(&image_of(id), Access::ReadWrite) {
                Err(error) if error.is_not_found() => {}
                image => image?.flatten()?,
            }
            io.update(RECORDS, &Update::default().remove(request)).map(drop)
        })?;
        tracing::info!(volume = %id, "flattened a volume");
        Ok(())
    }
}
