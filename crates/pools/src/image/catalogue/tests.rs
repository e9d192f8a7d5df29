use std::fs;

use orlop_model::{Error, Pool};

use super::*;
use crate::image::ImagePool;
use crate::image::testbed::*;

fn group(pool: &ImagePool, name: &str, volumes: &[&str]) -> VolumeGroupRecord {
    let members = volumes.iter().map(|volume| volume_id(pool, volume)).collect();
    VolumeGroupRecord { members, ..volume_group(pool, name, &[]) }
}

#[test]
fn group_is_created_changed_listed_and_deleted() {
    let Some(testbed) = Testbed::plain() else { return };
    let pool = testbed.open();
    let mut groups = [group(&pool, "a", &["x", "y"]), group(&pool, "b", &[])];
    for group in &groups {
        pool.catalogue().save_volume_group(group, None).unwrap();
    }
    groups[0].members.clear();
    groups[1].members.insert(volume_id(&pool, "z"));
    for group in &groups {
        pool.catalogue().save_volume_group(group, None).unwrap();
    }
    groups.sort_by(|a, b| a.id.cmp(&b.id));
    drop(pool);

    let pool = testbed.open();
    assert_eq!(pool.catalogue().volume_groups(None, 0).unwrap(), groups);
    assert_eq!(pool.catalogue().volume_groups(Some(&groups[0].id), 1).unwrap(), groups[1..]);
    assert_eq!(pool.catalogue().volume_group(&groups[0].id).unwrap().as_ref(), Some(&groups[0]));
    for _ in 0..2 {
        pool.catalogue().ensure_no_volume_group(&groups[0].id).unwrap();
    }
    assert_eq!(pool.catalogue().volume_group(&groups[0].id).unwrap(), None);
    drop(pool);
    assert_eq!(testbed.open().catalogue().volume_groups(None, 0).unwrap(), groups[1..]);
}

#[test]
fn damaged_group_is_neither_listed_changed_nor_deleted() {
    let Some(testbed) = Testbed::plain() else { return };
    let pool = testbed.open();
    let group = group(&pool, "a", &["x"]);
    pool.catalogue().save_volume_group(&group, None).unwrap();
    let path = pool.catalogue.volume_group_index().path_of(&group.id);
    drop(pool);
    fs::write(&path, "{").unwrap();

    let pool = testbed.open();
    assert!(pool.catalogue().volume_groups(None, 0).unwrap().is_empty());
    let is_damaged = |error: Option<Error>| {
        assert!(matches!(error, Some(Error::Damaged { .. })), "{error:?}");
    };
    is_damaged(pool.catalogue().volume_group(&group.id).err());
    is_damaged(pool.catalogue().save_volume_group(&group, None).err());
    is_damaged(pool.catalogue().ensure_no_volume_group(&group.id).err());
    assert_eq!(fs::read_to_string(path).unwrap(), "{");
}
