//! What a volume or a snapshot holds: some cells, each written as a whole or not at all.

use std::fs::File;
use std::os::unix::fs::FileExt;

use orlop_tests::*;

const CELLS: usize = 8;
const CELL: u64 = 64 << 10;
/// Also of a filesystem, between its own data.
const STRIDE: u64 = 256 << 10;

/// The seed of the pattern in each cell, if it was ever written.
#[derive(Clone, Default)]
pub(super) struct Contents([Option<u64>; CELLS]);

impl Contents {
    /// On stable storage afterwards.
    pub(super) fn write(&mut self, node: &OnNode, dice: &mut Dice) {
        let cells: Vec<usize> = (0..CELLS).collect();
        let (cell, seed) = (*dice.pick(&cells), dice.roll(u64::MAX));
        let (offset, length) = (offset(cell), usize::try_from(CELL).unwrap());
        let file = File::options()
            .write(true)
            .create(!node.capability.is_block())
            .truncate(false)
            .open(node.data_path())
            .unwrap();
        file.write_all_at(&Pattern::new(seed).bytes(offset, length), offset).unwrap();
        file.sync_all().unwrap();
        self.0[cell] = Some(seed);
    }

    #[track_caller]
    pub(super) fn check(&self, node: &OnNode) {
        let path = node.data_path();
        if !node.capability.is_block() {
            let last = self.0.iter().rposition(Option::is_some);
            let length = path.metadata().ok().map(|found| found.len());
            assert_eq!(length, last.map(|cell| offset(cell) + CELL), "{}", path.display());
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

fn offset(cell: usize) -> u64 {
    u64::try_from(cell).unwrap() * STRIDE
}
