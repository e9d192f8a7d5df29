#![allow(clippy::unwrap_used)]

use super::super::super::FsKind;
use super::super::format_template;
use super::*;
use crate::testbed::{SMALL, root, scratch};
use crate::tool;

fn image() -> Option<(tempfile::TempDir, std::path::PathBuf, File)> {
    if !root() {
        return None;
    }
    let dir = scratch();
    let path = dir.path().join("image");
    File::create_new(&path).unwrap().set_len(SMALL).unwrap();
    format_template(&path, FsKind::Xfs).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    Some((dir, path, file))
}

fn geometry(image: &File) -> Geometry {
    let mut head = [0; 512];
    image.read_exact_at(&mut head, 0).unwrap();
    Geometry::parse(&head).unwrap()
}

#[test]
fn the_identity_can_be_renewed_again() {
    let Some((_dir, path, file)) = image() else { return };
    let blocks_name = geometry(&file).uuid;
    for uuid in [[1; 16], [2; 16]] {
        renew(&file, uuid).unwrap();
        let geometry = geometry(&file);
        assert_eq!(geometry.uuid, uuid);
        for group in 0..geometry.groups {
            let mut superblock = [0; 512];
            file.read_exact_at(&mut superblock, group * geometry.group_bytes).unwrap();
            assert_eq!(bytes_at(&superblock, UUID), Some(uuid), "group {group}");
            assert_eq!(bytes_at(&superblock, META_UUID), Some(blocks_name), "group {group}");
        }
        let check = [std::path::Path::new("-n"), std::path::Path::new("-f"), &path];
        tool::run("xfs_repair", check).unwrap();
    }
}

#[test]
fn a_log_that_was_used_is_refused() {
    let Some((_dir, _path, file)) = image() else { return };
    let geometry = geometry(&file);
    let at = geometry.log_offset + u64::try_from(LOG_CHECKSUM).unwrap();
    file.write_all_at(&[1], at).unwrap();
    let error = renew(&file, [1; 16]).unwrap_err();
    assert!(error.to_string().contains("its log"), "{error}");
    assert_eq!(self::geometry(&file).uuid, geometry.uuid);
}
