//! Copies of copies of copies.
//!
//! A clone reads what it did not write from its parent, which may be a clone itself. Every level
//! costs time, and the kernel's client gives up at 16. So a volume that is deeper than a few is
//! made independent of its parents in the background, while it is in use; and where that did not
//! keep up, no more is stacked on top.

use orlop_model::{Error, Result, VolumeId};
use orlop_sys::ceph::{Access, Update};

use super::layout::{FLATTEN, RECORDS, image_of};
use super::store::Store;

const FLATTENED_BEYOND: usize = 4;
const MOST: usize = 12;

impl Store {
    /// How many images the data of this one comes from, beside itself.
    fn depth_of(&self, image_id: &str) -> Result<usize> {
        let looking = || format!("look what image {image_id} is a copy of");
        self.ask(looking, |io| {
            let mut image = io.open_image_by_id(image_id, None, Access::ReadOnly)?;
            let mut depth = 0;
            while depth < MOST
                && let Some(parent) = image.parent()?
            {
                depth += 1;
                image = io.open_image_by_id(&parent.image_id, None, Access::ReadOnly)?;
            }
            Ok(depth)
        })
    }

    pub(super) fn check_depth(&self, source_image: &str) -> Result<()> {
        if self.depth_of(source_image)? < MOST {
            return Ok(());
        }
        self.background.wake();
        Err(Error::Busy("the source, a copy of too many copies that is being flattened".to_owned()))
    }

    /// Its volume is there already: if the note fails, it only stays deep.
    pub(super) fn note_depth(&self, id: &VolumeId, image_id: &str) {
        let noting = || format!("note that volume {id} is to be flattened");
        let noted = self.depth_of(image_id).and_then(|depth| {
            if depth <= FLATTENED_BEYOND {
                return Ok(());
            }
            let note = Update::default().set(&format!("{FLATTEN}{id}"), b"1");
            self.update_records(noting, &note)?;
            self.background.wake();
            Ok(())
        });
        if let Err(error) = noted {
            tracing::warn!(%error, %id, "cannot read the clone depth of a volume");
        }
    }

    pub(super) fn is_to_be_flattened(&self, id: &VolumeId) -> Result<bool> {
        let looking = || format!("look whether volume {id} is to be flattened");
        Ok(self.record(looking, &format!("{FLATTEN}{id}"))?.is_some())
    }

    pub(super) fn flatten_noted(&self) -> Result<()> {
        let listing = || format!("look what to flatten in pool {}", self.info.name);
        for (key, _) in self.records(listing, "", FLATTEN, 0)? {
            let Some(id) = key.strip_prefix(FLATTEN).and_then(|id| id.parse::<VolumeId>().ok())
            else {
                continue;
            };
            // One that cannot be flattened must not keep the others from it.
            match self.flatten(&id, &key) {
                // What it was copied from may be free now.
                Ok(()) => self.background.wake(),
                Err(error) => {
                    tracing::warn!(%error, %id, "cannot flatten a volume yet; it will be retried")
                }
            }
        }
        Ok(())
    }

    fn flatten(&self, id: &VolumeId, note: &str) -> Result<()> {
        let flattening = || format!("flatten volume {id}");
        self.ask(flattening, |io| {
            match io.open_image(&image_of(id), Access::ReadWrite) {
                Err(error) if error.is_not_found() => {}
                image => image?.flatten()?,
            }
            io.update(RECORDS, &Update::default().remove(note)).map(drop)
        })?;
        tracing::info!(%id, "flattened");
        Ok(())
    }
}
