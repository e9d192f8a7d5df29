//! What a volume or a snapshot holds: some cells, each written as a whole or not at all.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use orlop_tests::*;

const CELLS: usize = 6;
const CELL: u64 = 64 << 10;
/// Also of a filesystem, between its own data.
const STRIDE: u64 = 256 << 10;

/// The seed of the pattern in each cell, if it was ever written.
#[derive(Clone, Default)]
pub(super) struct Contents([Option<u64>; CELLS]);

impl Contents {
    /// Some cells; on stable storage afterwards.
    pub(super) fn write(&mut self, node: &OnNode, rng: &mut Rng) {
        let file = File::options()
            .write(true)
            .create(!node.capability.is_block())
            .truncate(false)
            .open(node.data_path())
            .unwrap();
        for (cell, seed) in self.0.iter_mut().enumerate().filter(|_| rng.u64(..2) == 0) {
            let (offset, written) = (offset(cell), seed.insert(fresh_seed()));
            let bytes = Pattern::new(*written).bytes(offset, usize::try_from(CELL).unwrap());
            file.write_all_at(&bytes, offset).unwrap();
        }
        file.sync_all().unwrap();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    #[track_caller]
    pub(super) fn check(&self, node: &OnNode) {
        let path = node.data_path();
        if !node.capability.is_block() {
            let last = self.0.iter().rposition(Option::is_some);
            let length = path.metadata().map_or(0, |found| found.len());
            assert_eq!(length, last.map_or(0, |cell| offset(cell) + CELL), "{}", path.display());
        }
        let end = self.0.iter().rposition(Option::is_some).map_or(0, |cell| cell + 1);
        for (cell, seed) in self.0[..end].iter().enumerate() {
            match seed {
                Some(seed) => Pattern::new(*seed).check_at(&path, offset(cell), CELL),
                None => assert!(is_all_zero(&path, offset(cell), CELL), "{cell} was not written"),
            }
        }
    }
}

/// What was written before, here or elsewhere, is never written again.
fn fresh_seed() -> u64 {
    static SEEDS: AtomicU64 = AtomicU64::new(1);
    SEEDS.fetch_add(1, Ordering::Relaxed)
}

fn offset(cell: usize) -> u64 {
    u64::try_from(cell).unwrap() * STRIDE
}
