//! Data on a volume, written and compared byte for byte.

use super::{Placed, Trial};
use crate::capability::is_block;
use crate::check::Outcome;

const LENGTH: usize = 256 << 10;
/// Not where a partition table or a filesystem begins.
const OFFSET: u64 = 3 << 20;
const FILE: &str = "conformance-content";

impl Trial {
    /// Writes to what is published and returns what was written: different bytes at each call.
    pub fn fill(&self, placed: &Placed) -> Outcome<Vec<u8>> {
        let content = bytes_of(&self.name("content"));
        if is_block(&placed.capability) {
            self.write_device(&placed.target_path(), OFFSET, &content)?;
        } else {
            self.write_file(&placed.target_path().join(FILE), &content)?;
        }
        Ok(content)
    }

    /// Is it still there, to the last byte?
    pub fn holds(&self, placed: &Placed, content: &[u8]) -> Outcome {
        let found = if is_block(&placed.capability) {
            self.read_device(&placed.target_path(), OFFSET, content.len())?
        } else {
            self.read_file(&placed.target_path().join(FILE))?
        };
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
