use std::fs;

use orlop_model::{Pool, VolumeRecord};
use orlop_sys::mounts::{self, BindAccess};

use super::super::ImagePool;
use super::super::testbed::*;
use super::*;

#[test]
fn a_pool_keeps_its_id() {
    let Some(bed) = Bed::plain() else { return };
    let id = bed.open().id().clone();
    assert_eq!(*bed.open().id(), id);
    for directory in ["volumes", "snapshots", "groups", "group-snapshots"] {
        assert!(listing(&bed, directory).is_empty());
    }
}

#[test]
fn a_second_daemon_is_refused() {
    let Some(bed) = Bed::plain() else { return };
    let pool = bed.open();
    let refused = ImagePool::open(bed.config()).unwrap_err().to_string();
    assert!(refused.contains("another daemon"), "{refused}");
    drop(pool);
    bed.open();
}

#[test]
fn orphans_are_removed() {
    for bed in Bed::all() {
        let pool = bed.open();
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

        let pool = bed.open();
        assert!(listing(&bed, "staging").is_empty());
        assert!(listing(&bed, "trash").is_empty());
        assert_eq!(pool.catalogue().volumes(None, 0).unwrap(), [(whole.id.clone(), Ok(whole))]);
    }
}

#[test]
fn volumes_without_a_mark_are_not_taken_over() {
    let Some(bed) = Bed::plain() else { return };
    let pool = bed.open();
    create(&pool, &volume_of(&pool, "a", MIB));
    drop(pool);
    fs::remove_file(bed.pool_path().join("orlop.pool")).unwrap();
    let refused = ImagePool::open(bed.config()).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    assert_eq!(listing(&bed, "volumes").len(), 1);
}

#[test]
fn only_what_orlop_made_is_swept() {
    for bed in Bed::all() {
        let id = bed.open().id().clone();
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
            fs::write(bed.pool_path().join(name), "something").unwrap();
        }
        let node = "node".parse().unwrap();
        let inspection = ImagePool::inspect(&bed.config(), &node).unwrap().unwrap();
        for finding in &inspection.findings {
            let is_theirs = |name: &String| finding.subject.ends_with(name.as_str());
            assert!(
                finding.code != "leftover" || !theirs.iter().any(is_theirs),
                "{}",
                finding.subject
            );
        }
        drop(inspection);
        drop(bed.open());
        let exists = |name: &String| bed.pool_path().join(name).exists();
        let kept: Vec<_> = theirs.iter().chain(&ours).filter(|name| exists(name)).collect();
        assert_eq!(kept, theirs.iter().collect::<Vec<_>>());
    }
}

#[test]
fn an_empty_filesystem_can_be_a_pool() {
    let Some(bed) = Bed::plain() else { return };
    fs::create_dir_all(bed.pool_path().join("lost+found")).unwrap();
    bed.open().health().check().unwrap();
    assert!(bed.pool_path().join("lost+found").exists());
}

#[test]
fn sharing_is_found_out_by_trying() {
    for bed in Bed::sharing() {
        assert!(bed.open().directory.shares_extents());
    }
    let Some(bed) = Bed::ext4() else { return };
    assert!(!bed.open().directory.shares_extents());
}

#[test]
fn no_pool_is_made_where_none_may_be() {
    let Some(bed) = Bed::plain() else { return };
    let config = ImagePoolConfig { create: false, ..bed.config() };
    let refused = ImagePool::open(config.clone()).unwrap_err().to_string();
    assert!(refused.contains("there is no pool"), "{refused}");
    assert!(!bed.pool_path().exists());
    fs::create_dir(bed.pool_path()).unwrap();
    assert!(ImagePool::open(config.clone()).is_err());
    assert_eq!(fs::read_dir(bed.pool_path()).unwrap().count(), 0);
    drop(bed.open());
    ImagePool::open(config).unwrap().health().check().unwrap();
}

#[test]
fn a_read_only_pool_opens_and_says_what_it_is() {
    for bed in [Bed::xfs(), Bed::ext4()].into_iter().flatten() {
        let pool = bed.open();
        let record = create(&pool, &volume_of(&pool, "a", MIB));
        let shares = pool.directory.shares_extents();
        drop(pool);
        let path = bed.pool_path();
        mounts::bind(&path, &path, BindAccess::ReadOnly).unwrap();
        let pool = bed.open();
        assert_eq!(pool.directory.shares_extents(), shares);
        assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record.clone()));
        let unwell = pool.health().check().unwrap_err().to_string();
        assert!(unwell.contains("read-only"), "{unwell}");
        assert!(ImagePool::open(bed.config()).is_err());
        drop(pool);
        mounts::ensure_unmounted(&path).unwrap();
    }
}
