//! Bytes on a volume that is at a path of this node, whatever it is used as.

use super::{Placed, Trial};
use crate::capability::is_block;
use crate::check::Outcome;
use crate::wire::csi::v1::Volume;

impl Trial {
    /// At a path, if that path can be seen from here; made for [`Trial::quick_capability`].
    pub async fn placed_if_local(&self, volume: &Volume) -> Outcome<Option<Placed>> {
        if !self.options().local_files || self.offers().node.is_none() {
            return Ok(None);
        }
        Ok(Some(self.placed(volume, self.quick_capability()).await?))
    }

    /// Writes the volume's first bytes, or its one file, and makes them durable.
    pub fn put(&self, placed: &Placed, content: &[u8]) -> Outcome {
        let target = placed.target_path();
        if is_block(&placed.capability) {
            self.write_device(&target, 0, content)
        } else {
            self.write_file(&target.join("content"), content)
        }
    }

    /// What [`Trial::put`] left there, or what came instead of it.
    pub fn content(&self, placed: &Placed, length: usize) -> Outcome<Vec<u8>> {
        let target = placed.target_path();
        if is_block(&placed.capability) {
            self.read_device(&target, 0, length)
        } else {
            self.read_file(&target.join("content"))
        }
    }
}
