//! Data on a volume that is at a path of this node, compared byte for byte.

use super::{CheckContext, Placed};
use crate::capability::is_block;
use crate::check::Outcome;
use crate::wire::csi::v1::Volume;

const LENGTH: usize = 256 << 10;
/// Not where a partition table or a filesystem begins.
const OFFSET: u64 = 3 << 20;
const FILE: &str = "conformance-content";

impl CheckContext {
    /// At a path, if that path can be seen from here; made for [`CheckContext::quick_capability`].
    pub async fn placed_if_local(&self, volume: &Volume) -> Outcome<Option<Placed>> {
        if !self.options().local_files || self.features().node.is_none() {
            return Ok(None);
        }
        Ok(Some(self.placed(volume, self.quick_capability()).await?))
    }

    /// A new volume and what was written to it: nothing, if its path cannot be seen from here.
    pub async fn filled_volume(&self) -> Outcome<(Volume, Vec<u8>)> {
        let volume = self.volume_for(self.quick_capability()).await?;
        let Some(placed) = self.placed_if_local(&volume).await? else {
            return Ok((volume, Vec::new()));
        };
        let content = self.fill(&placed)?;
        self.withdrawn(&placed).await?;
        Ok((volume, content))
    }

    /// Can the volume be used, and is all of it there that [`CheckContext::filled_volume`] wrote?
    pub async fn is_whole(&self, volume: &Volume, content: &[u8]) -> Outcome {
        match self.placed_if_local(volume).await? {
            Some(placed) => self.holds(&placed, content),
            None => self.attached(volume, &self.quick_capability()).await.map(drop),
        }
    }

    /// Writes to what is published and returns what was written: different bytes at each call.
    pub fn fill(&self, placed: &Placed) -> Outcome<Vec<u8>> {
        let content = bytes_of(&self.name("content"));
        self.put(placed, &content)?;
        Ok(content)
    }

    /// Writes these bytes, in place of those that were put there before, and makes them durable.
    pub(super) fn put(&self, placed: &Placed, content: &[u8]) -> Outcome {
        if is_block(&placed.capability) {
            self.write_device(&placed.target_path(), OFFSET, content)
        } else {
            self.write_file(&placed.target_path().join(FILE), content)
        }
    }

    /// What [`CheckContext::fill`] left there, or what came instead of it.
    pub fn content(&self, placed: &Placed) -> Outcome<Vec<u8>> {
        if is_block(&placed.capability) {
            self.read_device(&placed.target_path(), OFFSET, LENGTH)
        } else {
            self.read_file(&placed.target_path().join(FILE))
        }
    }

    /// Is it still there, to the last byte?
    pub fn holds(&self, placed: &Placed, content: &[u8]) -> Outcome {
        let found = self.content(placed)?;
        let first_other = found.iter().zip(content).position(|(a, b)| a != b);
        self.expect(
            found == content,
            format!(
                "the {} bytes that were written at {}; there are {}, the first that differs is \
                 {first_other:?}",
                content.len(),
                placed.target,
                found.len(),
            ),
        )
    }
}

/// Bytes without a pattern, the same for the same seed.
fn bytes_of(seed: &str) -> Vec<u8> {
    let mut state = seed.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |state, byte| {
        (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut bytes = Vec::with_capacity(LENGTH);
    while bytes.len() < LENGTH {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}
