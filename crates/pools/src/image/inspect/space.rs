//! Checks the filesystem of the pool: free space, free inodes, and whether it is writable.

use std::path::Path;

use orlop_model::{Bytes, Finding, Result};
use orlop_sys::file::{self, Space};

use super::super::capacity::ENLARGE_IMAGE;
use super::super::failure::cannot;
use super::super::managed::{has_all_blocks, image_in};
use super::super::open::ImagePoolConfig;
use super::InspectedPool;

const DELETE: &str =
    "delete volumes or snapshots, run fstrim on mounted volumes in which files were deleted";

/// A volume takes three inodes. Below this share of free inodes, the pool is reported.
const FEW_INODES_PERCENT: u64 = 1;

impl InspectedPool {
    pub(super) fn inspect_space(&mut self, config: &ImagePoolConfig) -> Result<()> {
        let root = self.layout.root().to_owned();
        let space = measure(&root)?;
        let floor = config.floor.of(space.total);
        let advice = match root == config.path {
            true => format!("{DELETE}, or enlarge the filesystem"),
            false => format!("{DELETE}, or {ENLARGE_IMAGE}"),
        };
        self.inspect_filesystem(&root, &space, Some(floor), &advice);
        if root != config.path {
            // As the daemon does: the free space of a sparse image has to be free on the disk around it.
            let image = image_in(&config.path);
            let sparse = !image.exists() || !has_all_blocks(&image)?;
            let around = measure(&config.path)?;
            let advice = format!("{DELETE}, or free other space on this filesystem or enlarge it");
            self.inspect_filesystem(&config.path, &around, sparse.then_some(floor), &advice);
        }
        Ok(())
    }

    fn inspect_filesystem(&mut self, path: &Path, space: &Space, floor: Option<u64>, advice: &str) {
        let subject = || format!("the filesystem of {}", path.display());
        if space.read_only {
            self.found(Finding::by_hand(
                "read-only",
                subject(),
                "it is read-only, so nothing can be made or deleted",
                "look for its errors in the kernel log, check the filesystem, and mount it again",
            ));
        }
        if let Some(floor) = floor
            && space.free <= floor
        {
            self.found(Finding::by_hand(
                "full",
                subject(),
                format!(
                    "{} of {} are free, which is below the floor of {}: nothing can be created or grown",
                    Bytes(space.free),
                    Bytes(space.total),
                    Bytes(floor)
                ),
                advice,
            ));
        }
        if has_few_inodes(space) {
            self.found(Finding::by_hand(
                "full",
                subject(),
                format!("{} of {} inodes are free", space.inodes_free, space.inodes),
                "remove other files from this filesystem, or move the pool to one with more",
            ));
        }
    }
}

fn measure(path: &Path) -> Result<Space> {
    file::space(path).map_err(cannot(|| format!("read the free space of {}", path.display())))
}

/// `false` on btrfs, which has no limit of inodes.
fn has_few_inodes(space: &Space) -> bool {
    space.inodes > 0 && space.inodes_free.saturating_mul(100) < space.inodes * FEW_INODES_PERCENT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(inodes: u64, inodes_free: u64) -> Space {
        Space { total: 1 << 30, free: 1 << 29, inodes, inodes_free, read_only: false }
    }

    #[test]
    fn few_inodes_are_reported_only_where_counted() {
        assert!(!has_few_inodes(&space(0, 0)));
        assert!(!has_few_inodes(&space(100_000, 1_000)));
        assert!(has_few_inodes(&space(100_000, 999)));
        assert!(has_few_inodes(&space(100, 0)));
    }
}
