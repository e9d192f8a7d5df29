use std::fs;

use orlop_model::{Pool, VolumeRecord};
use orlop_sys::mounts::{self, BindAccess};

use super::super::ImagePool;
use super::super::testbed::*;
use super::*;

#[test]
fn a_pool_keeps_its_id() {
    let Some(testbed) = Testbed::plain() else { return };
    let id = testbed.open().id().clone();
    assert_eq!(*testbed.open().id(), id);
    for directory in ["volumes", "snapshots", "groups", "group-snapshots"] {
        assert!(listing(&testbed, directory).is_empty());
    }
}

#[test]
fn a_second_daemon_is_refused() {
    let Some(testbed) = Testbed::plain() else { return };
    let pool = testbed.open();
    let refused = ImagePool::open(testbed.config()).unwrap_err().to_string();
    assert!(refused.contains("another process"), "{refused}");
    drop(pool);
    testbed.open();
}

#[test]
fn orphans_are_removed_at_open() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let deleted = create(&pool, &volume_of(&pool, "deleted", 8 * MIB));
        let half_made = create(&pool, &volume_of(&pool, "half-made", 8 * MIB));
        let whole = create(&pool, &volume_of(&pool, "whole", 8 * MIB));
        // A crash after the rename into the trash, and one before the rename out of staging.
        let layout = pool.directory.layout();
        let home = |record: &VolumeRecord| pool.catalogue.volume_index().directory_of(&record.id);
        layout.move_to_trash(home(&deleted).directory(), &deleted.id).unwrap();
        let staging = layout.new_in_staging(&half_made.id);
        fs::rename(home(&half_made).directory(), staging).unwrap();
        drop(pool);

        let pool = testbed.open();
        assert!(listing(&testbed, "staging").is_empty());
        assert!(listing(&testbed, "trash").is_empty());
        assert_eq!(pool.catalogue().volumes(None, 0).unwrap(), [(whole.id.clone(), Ok(whole))]);
    }
}

#[test]
fn volumes_without_a_header_are_refused() {
    let Some(testbed) = Testbed::plain() else { return };
    let pool = testbed.open();
    create(&pool, &volume_of(&pool, "a", MIB));
    drop(pool);
    fs::remove_file(testbed.pool_path().join("orlop.pool")).unwrap();
    let refused = ImagePool::open(testbed.config()).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    assert_eq!(listing(&testbed, "volumes").len(), 1);
}

#[test]
fn foreign_files_are_not_removed() {
    for testbed in Testbed::all() {
        let id = testbed.open().id().clone();
        let other = "v-00000000-00000000000000000000000000000000";
        let theirs = [
            "staging/website".to_owned(),
            "staging/template.html".to_owned(),
            format!("staging/v-{id}-0.0"),
            "trash/2026".to_owned(),
            format!("trash/{other}.0"),
            "groups/.htaccess".to_owned(),
            "group-snapshots/.hidden.json.new".to_owned(),
        ];
        let digest = "0".repeat(32);
        let ours = [
            format!("staging/v-{id}-{digest}.7"),
            format!("trash/s-{id}-{digest}.0"),
            "staging/template.3".to_owned(),
            "staging/moment.4".to_owned(),
            "staging/orlop.pool.0123abcd".to_owned(),
            "staging/pool.xfs.0123abcd".to_owned(),
            format!("groups/.g-{id}-{digest}.json.new"),
        ];
        for name in theirs.iter().chain(&ours) {
            fs::write(testbed.pool_path().join(name), "something").unwrap();
        }
        let node = "node".parse().unwrap();
        let inspection = ImagePool::inspect(&testbed.config(), &node).unwrap().unwrap();
        for finding in &inspection.findings {
            let is_theirs = |name: &String| finding.subject.ends_with(name.as_str());
            assert!(
                finding.code != "leftover" || !theirs.iter().any(is_theirs),
                "{}",
                finding.subject
            );
        }
        drop(inspection);
        drop(testbed.open());
        let exists = |name: &String| testbed.pool_path().join(name).exists();
        let kept: Vec<_> = theirs.iter().chain(&ours).filter(|name| exists(name)).collect();
        assert_eq!(kept, theirs.iter().collect::<Vec<_>>());
    }
}

#[test]
fn an_empty_filesystem_can_be_a_pool() {
    let Some(testbed) = Testbed::plain() else { return };
    fs::create_dir_all(testbed.pool_path().join("lost+found")).unwrap();
    testbed.open().health().check().unwrap();
    assert!(testbed.pool_path().join("lost+found").exists());
}

#[test]
fn extent_sharing_is_probed() {
    for testbed in Testbed::sharing() {
        assert!(testbed.open().directory.shares_extents());
    }
    let Some(testbed) = Testbed::ext4() else { return };
    assert!(!testbed.open().directory.shares_extents());
}

#[test]
fn pool_creation_can_be_disabled() {
    let Some(testbed) = Testbed::plain() else { return };
    let config = ImagePoolConfig { create: false, ..testbed.config() };
    let refused = ImagePool::open(config.clone()).unwrap_err().to_string();
    assert!(refused.contains("there is no pool"), "{refused}");
    assert!(!testbed.pool_path().exists());
    fs::create_dir(testbed.pool_path()).unwrap();
    assert!(ImagePool::open(config.clone()).is_err());
    assert_eq!(fs::read_dir(testbed.pool_path()).unwrap().count(), 0);
    drop(testbed.open());
    ImagePool::open(config).unwrap().health().check().unwrap();
}

#[test]
fn read_only_pool_opens_and_reports_it() {
    for testbed in [Testbed::xfs(), Testbed::ext4()].into_iter().flatten() {
        let pool = testbed.open();
        let record = create(&pool, &volume_of(&pool, "a", MIB));
        let shares = pool.directory.shares_extents();
        drop(pool);
        let path = testbed.pool_path();
        mounts::bind(&path, &path, BindAccess::ReadOnly).unwrap();
        let pool = testbed.open();
        assert_eq!(pool.directory.shares_extents(), shares);
        assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record.clone()));
        let error = pool.health().check().unwrap_err().to_string();
        assert!(error.contains("read-only"), "{error}");
        assert!(ImagePool::open(testbed.config()).is_err());
        drop(pool);
        mounts::ensure_unmounted(&path).unwrap();
    }
}
