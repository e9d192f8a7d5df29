use std::path::PathBuf;

use super::super::testbed::*;
use super::super::{ImagePool, ImagePoolConfig};
use super::*;

/// All that is below a directory.
fn tree(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(tree(&path));
        }
        found.push(path);
    }
    found.sort();
    found
}

fn kinds(bed: &Bed) -> [ImagePoolConfig; 2] {
    [bed.config(), ImagePoolConfig { managed_size: Some(512 * MIB), ..bed.config() }]
}

#[test]
fn a_pool_is_made_only_in_an_empty_directory() {
    let foreign = [
        "staging/website/index.html",
        "trash/2026/report",
        "volumes/website/index.html",
        "snapshots/2026",
        "groups/.htaccess",
        "staging/orlop.pool.old",
        ".ballast",
        ".hidden",
        "mnt/disk",
        "notes",
    ];
    for name in foreign {
        let Some(bed) = Bed::plain() else { return };
        let path = bed.pool_path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::create_dir_all(bed.pool_path().join("lost+found")).unwrap();
        fs::write(&path, "theirs").unwrap();
        let before = tree(&bed.pool_path());
        for config in kinds(&bed) {
            let checked = ImagePool::check(&config).unwrap_err();
            assert!(matches!(checked, Error::Invalid { .. }), "{name}: {checked}");
            let refused = ImagePool::open(config).unwrap_err();
            assert_eq!(refused, checked);
            let top = name.split('/').next().unwrap();
            assert!(refused.to_string().contains(top), "{refused}");
            assert_eq!(tree(&bed.pool_path()), before, "{name}");
        }
    }
}

#[test]
fn an_image_of_another_is_not_taken_for_a_pool() {
    let Some(bed) = Bed::plain() else { return };
    fs::create_dir(bed.pool_path()).unwrap();
    let image = managed::image_in(&bed.pool_path());
    fs::write(&image, "theirs").unwrap();
    for config in kinds(&bed) {
        ImagePool::open(config).unwrap_err();
        assert_eq!(fs::read(&image).unwrap(), b"theirs");
        assert_eq!(tree(&bed.pool_path()), std::slice::from_ref(&image));
    }
}

#[test]
fn a_start_that_ended_before_the_mark_is_continued() {
    for managed in [false, true] {
        let Some(bed) = Bed::plain() else { return };
        let config = kinds(&bed)[usize::from(managed)].clone();
        let staging = bed.pool_path().join(STAGING);
        let drafts = ["orlop.pool.0123abcd", "pool.xfs.89abcdef"].map(|name| staging.join(name));
        fs::create_dir_all(&staging).unwrap();
        fs::create_dir(bed.pool_path().join(LOST_AND_FOUND)).unwrap();
        for draft in &drafts {
            fs::write(draft, "half").unwrap();
        }
        ImagePool::check(&config).unwrap();
        drop(ImagePool::open(config.clone()).unwrap());
        // The start that makes the pool removes nothing.
        assert!(drafts.iter().all(|draft| draft.exists()));
        ImagePool::check(&config).unwrap();
        drop(ImagePool::open(config).unwrap());
        assert!(drafts.iter().all(|draft| !draft.exists()));
    }
}

#[test]
fn a_check_makes_no_directory() {
    let Some(bed) = Bed::plain() else { return };
    for config in kinds(&bed) {
        ImagePool::check(&config).unwrap();
        assert!(!bed.pool_path().exists());
    }
}

#[test]
fn a_managed_pool_that_lost_its_mark_is_not_taken_over() {
    let Some(bed) = Bed::plain() else { return };
    let [_, config] = kinds(&bed);
    let pool = ImagePool::open(config.clone()).unwrap();
    create(&pool, &volume_of(&pool, "a", 8 * MIB));
    pool.close();
    drop(pool);
    fs::remove_file(bed.pool_path().join(pool_header::NAME)).unwrap();
    let refused = ImagePool::open(config).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
}

#[test]
fn the_draft_of_a_subvolume_is_not_anothers() {
    let Some(bed) = Bed::btrfs() else { return };
    let beside = bed.pool_path().with_file_name(".pool.new");
    orlop_sys::btrfs::create_subvolume(&beside).unwrap();
    fs::write(beside.join("file"), "theirs").unwrap();
    drop(bed.open());
    assert_eq!(fs::read(beside.join("file")).unwrap(), b"theirs");
    assert!(!bed.pool_path().join("file").exists());
}
