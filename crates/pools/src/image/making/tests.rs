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

fn kinds(testbed: &Testbed) -> [ImagePoolConfig; 2] {
    [testbed.config(), ImagePoolConfig { managed_size: Some(512 * MIB), ..testbed.config() }]
}

#[test]
fn pool_is_created_only_in_an_empty_directory() {
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
        let Some(testbed) = Testbed::plain() else { return };
        let path = testbed.pool_path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::create_dir_all(testbed.pool_path().join("lost+found")).unwrap();
        fs::write(&path, "theirs").unwrap();
        let before = tree(&testbed.pool_path());
        for config in kinds(&testbed) {
            let checked = ImagePool::check(&config).unwrap_err();
            assert!(matches!(checked, Error::Invalid { .. }), "{name}: {checked}");
            let refused = ImagePool::open(config).unwrap_err();
            assert_eq!(refused, checked);
            let top = name.split('/').next().unwrap();
            assert!(refused.to_string().contains(top), "{refused}");
            assert_eq!(tree(&testbed.pool_path()), before, "{name}");
        }
    }
}

#[test]
fn foreign_image_is_not_used_as_a_pool() {
    let Some(testbed) = Testbed::plain() else { return };
    fs::create_dir(testbed.pool_path()).unwrap();
    let image = managed::image_in(&testbed.pool_path());
    fs::write(&image, "theirs").unwrap();
    for config in kinds(&testbed) {
        ImagePool::open(config).unwrap_err();
        assert_eq!(fs::read(&image).unwrap(), b"theirs");
        assert_eq!(tree(&testbed.pool_path()), std::slice::from_ref(&image));
    }
}

#[test]
fn start_interrupted_before_the_header_continues() {
    for managed in [false, true] {
        let Some(testbed) = Testbed::plain() else { return };
        let config = kinds(&testbed)[usize::from(managed)].clone();
        let staging = testbed.pool_path().join(STAGING);
        let drafts = ["orlop.pool.0123abcd", "pool.xfs.89abcdef"].map(|name| staging.join(name));
        fs::create_dir_all(&staging).unwrap();
        fs::create_dir(testbed.pool_path().join(LOST_AND_FOUND)).unwrap();
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
fn check_creates_no_directory() {
    let Some(testbed) = Testbed::plain() else { return };
    for config in kinds(&testbed) {
        ImagePool::check(&config).unwrap();
        assert!(!testbed.pool_path().exists());
    }
}

#[test]
fn managed_pool_without_its_header_is_refused() {
    let Some(testbed) = Testbed::plain() else { return };
    let [_, config] = kinds(&testbed);
    let pool = ImagePool::open(config.clone()).unwrap();
    create(&pool, &volume_of(&pool, "a", 8 * MIB));
    pool.close();
    drop(pool);
    fs::remove_file(testbed.pool_path().join(pool_header::NAME)).unwrap();
    let refused = ImagePool::open(config).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
}

#[test]
fn foreign_subvolume_beside_the_pool_is_kept() {
    let Some(testbed) = Testbed::btrfs() else { return };
    let beside = testbed.pool_path().with_file_name(".pool.new");
    orlop_sys::btrfs::create_subvolume(&beside).unwrap();
    fs::write(beside.join("file"), "theirs").unwrap();
    drop(testbed.open());
    assert_eq!(fs::read(beside.join("file")).unwrap(), b"theirs");
    assert!(!testbed.pool_path().join("file").exists());
}
