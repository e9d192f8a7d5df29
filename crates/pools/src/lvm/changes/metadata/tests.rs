//! Of files; `changes/tests.rs` has real thin pools.

use std::os::unix::fs::FileExt;

use tempfile::NamedTempFile;

use super::*;
use crate::lvm::changes::block::{BLOCK_BYTES, SUPERBLOCK_SALT};
use crate::lvm::changes::testbed::{Written, superblock};

fn read(written: &Written) -> Error {
    let file = NamedTempFile::new().unwrap();
    for (index, block) in written.blocks.iter().enumerate() {
        let at = u64::try_from(index * BLOCK_BYTES).unwrap();
        file.as_file().write_all_at(block, at).unwrap();
    }
    of_file(file.path().to_owned()).reserve().unwrap_err()
}

fn of_file(path: PathBuf) -> ThinMetadata {
    let marker = path.with_extension("marker");
    ThinMetadata::of_device("vg/tp".to_owned(), path, "no-such-device".to_owned(), marker)
}

#[test]
fn damaged_metadata_is_named_and_how_to_repair_it() {
    let mut flagged = superblock();
    flagged.blocks[0][4] = 1;
    flagged.seal(SUPERBLOCK, SUPERBLOCK_SALT);
    let mut torn = superblock();
    torn.blocks[0][100] ^= 1;
    for (written, reason) in [
        (flagged, "the kernel has marked its metadata for a check"),
        (torn, "block 0 of its metadata has a wrong checksum"),
        (Written::default(), "block 0 of its metadata is beyond its end"),
    ] {
        let error = read(&written);
        let text = error.to_string();
        assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
        assert!(text.contains(reason) && text.contains("lvmthin(7)"), "{text}");
        assert!(text.contains("the thin pool vg/tp"), "{text}");
    }
}

#[test]
fn thin_pool_that_is_not_active_is_unreachable() {
    let directory = tempfile::tempdir().unwrap();
    let metadata = of_file(directory.path().join("tmeta"));
    metadata.release_abandoned().unwrap();
    let error = metadata.reserve().unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("lvchange --activate y vg/tp"), "{error}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
