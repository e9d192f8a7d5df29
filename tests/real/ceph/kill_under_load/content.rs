//! What a volume holds: pieces in several objects of the cluster, and nothing between them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use orlop_tests::*;

pub(crate) const PIECES: usize = 12;
const PIECE: usize = 64 << 10;
const APART: u64 = 2 * MIB;
/// The least size of a volume.
pub(crate) const ROOM: u64 = 32 * MIB;

/// The seed of each piece that was ever written.
#[derive(Clone, Default)]
pub(crate) struct Content([Option<u64>; PIECES]);

fn place(piece: usize) -> u64 {
    APART * u64::try_from(piece).unwrap()
}

impl Content {
    pub(crate) fn write(&mut self, path: &Path, piece: usize, seed: u64) {
        let file = File::options().write(true).open(path).or_else(|_| {
            let file = File::create_new(path)?;
            file.set_len(ROOM).map(|()| file)
        });
        let file = file.unwrap_or_else(|error| panic!("open {}: {error}", path.display()));
        let bytes = Pattern::new(seed).bytes(place(piece), PIECE);
        file.write_all_at(&bytes, place(piece)).unwrap();
        file.sync_all().unwrap();
        self.0[piece] = Some(seed);
    }

    /// Byte for byte, with what is behind each piece.
    pub(crate) fn check(&self, path: &Path, what: &str) {
        if !path.exists() {
            assert!(self.0.iter().all(Option::is_none), "{what} has lost its file");
            return;
        }
        let file = File::open(path).unwrap();
        for (piece, seed) in self.0.iter().enumerate() {
            let mut expected = seed.map_or_else(
                || vec![0; PIECE],
                |seed| Pattern::new(seed).bytes(place(piece), PIECE),
            );
            expected.resize(2 * PIECE, 0);
            let mut found = vec![0; expected.len()];
            file.read_exact_at(&mut found, place(piece)).unwrap();
            assert!(found == expected, "{what} has other data in piece {piece}, not of {seed:?}");
        }
    }
}
