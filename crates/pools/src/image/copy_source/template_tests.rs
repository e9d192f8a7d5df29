use std::fs;

use orlop_model::{ContentSource, FormatState, FsUuid, Pool};
use orlop_sys::filesystem::{Signature, probe};

use super::super::catalogue::SHARED;
use super::super::testbed::*;
use super::super::{ImagePool, ImagePoolConfig};
use super::*;

/// Every kind can be made in it.
const BYTES: u64 = 320 * MIB;

/// More volumes than would fit if they were filled.
fn open_roomy(testbed: &Testbed) -> ImagePool {
    ImagePool::open(ImagePoolConfig { overcommit_percent: 1000, ..testbed.config() }).unwrap()
}

fn mount_volume_of(pool: &ImagePool, name: &str, fs: FsType, bytes: u64) -> NewVolume {
    let uuid = FsUuid::from_random(random_bytes().unwrap());
    NewVolume { filesystem: Some(NewFilesystem { fs, uuid }), ..volume_of(pool, name, bytes) }
}

fn template(pool: &ImagePool, fs: FsType) -> Arc<CopySource> {
    pool.templates.template(Shape { fs, bytes: BYTES }).unwrap().unwrap()
}

#[test]
fn new_volume_has_its_filesystem() {
    for testbed in Testbed::all() {
        let pool = open_roomy(&testbed);
        for fs in FsType::ALL {
            let mut templates = Vec::new();
            for name in ["one", "two"] {
                let new = mount_volume_of(&pool, &format!("{name} {fs}"), fs, BYTES);
                let record = create(&pool, &new);
                let NewFilesystem { uuid, .. } = new.filesystem.unwrap();
                assert_eq!(record.format, FormatState::Formatted { fs, uuid });
                assert_eq!(pool.catalogue().volume(&new.id).unwrap(), Some(record));

                let data = data_of(&pool, &new.id);
                let (kind, uuid) = (kind_of(fs), uuid.bytes());
                let expected = Signature::Filesystem { kind, uuid, needs_check: false };
                assert_eq!(probe(&data).unwrap(), expected);
                assert_eq!(fs::metadata(&data).unwrap().len(), BYTES);
                assert!(file::allocated_bytes(&data).unwrap() < 2 * MIB, "{fs}");
                let shared = file::number(&data, SHARED).unwrap().is_some_and(|it| it > 0);
                assert_eq!(shared, pool.directory.shares_extents(), "{fs}");
                templates.push(template(&pool, fs));
            }
            assert!(Arc::ptr_eq(&templates[0], &templates[1]), "{fs}");
        }
        assert!(listing(&testbed, "staging").is_empty());
    }
}

/// Counted once for each volume it would promise room that is not there.
#[test]
fn template_extents_are_not_counted_after_a_restart() {
    for testbed in Testbed::sharing() {
        let pool = open_roomy(&testbed);
        for name in ["one", "two", "three"] {
            create(&pool, &mount_volume_of(&pool, name, FsType::Ext4, BYTES));
        }
        let raw = create(&pool, &volume_of(&pool, "raw", MIB));
        scribble(&data_of(&pool, &raw.id), 1, MIB);
        let seen = |pool: &ImagePool| {
            pool.catalogue
                .volume_index()
                .ids()
                .for_each(|id| _ = pool.catalogue.volume_index().measure(&id));
            pool.catalogue.volume_index().own_bytes()
        };
        let before = seen(&pool);
        assert!(before >= u128::from(MIB), "what is not shared counts");
        drop(pool);
        assert_eq!(open_roomy(&testbed).catalogue.volume_index().own_bytes(), before);
    }
}

#[test]
fn volume_that_cannot_use_a_template_starts_blank() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = open_roomy(&testbed);
    let blank = |new: &NewVolume| {
        let record = create(&pool, new);
        assert_eq!(record.format, FormatState::Blank, "{}", new.name);
        assert_eq!(probe(&data_of(&pool, &new.id)).unwrap(), Signature::Blank, "{}", new.name);
    };
    blank(&volume_of(&pool, "raw", BYTES));
    let mut thick = mount_volume_of(&pool, "thick", FsType::Ext4, 64 * MIB);
    thick.parameters.provisioning = Provisioning::Thick;
    blank(&thick);
    let mut special = mount_volume_of(&pool, "special", FsType::Ext4, BYTES);
    special.parameters.mkfs_options = vec!["-i".to_owned(), "65536".to_owned()];
    blank(&special);
    let source = pool.catalogue().volume(&volume_id(&pool, "raw")).unwrap().unwrap();
    let mut copy = mount_volume_of(&pool, "copy", FsType::Ext4, BYTES);
    copy.source = Some(ContentSource::Volume(source.id));
    blank(&copy);
}

/// XFS is not made that small; NodeStageVolume reports it.
#[test]
fn failing_mkfs_does_not_prevent_creation() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &mount_volume_of(&pool, "a", FsType::Xfs, 16 * MIB));
    assert_eq!(record.format, FormatState::Blank);
    assert!(listing(&testbed, "staging").is_empty());
}

#[test]
fn failed_mkfs_is_not_retried_at_once() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    // XFS is not made that small.
    let shape = Shape { fs: FsType::Xfs, bytes: 16 * MIB };
    let failed_at = |name| {
        create(&pool, &mount_volume_of(&pool, name, shape.fs, shape.bytes));
        match &*lock(&pool.templates.recent.slot(shape)) {
            Template::Failed(at) => *at,
            other @ (Template::NotMade | Template::Made(_)) => panic!("{other:?}"),
        }
    };
    let first = failed_at("first");
    assert_eq!(failed_at("second"), first, "tried again");
    let long_ago = first.checked_sub(TEMPLATE_RETRY_INTERVAL).unwrap();
    *lock(&pool.templates.recent.slot(shape)) = Template::Failed(long_ago);
    assert!(failed_at("third") >= first, "not tried again");
}

#[test]
fn only_recently_used_templates_are_kept() {
    let templates = Recent::default();
    let shape = |bytes| Shape { fs: FsType::Ext4, bytes };
    let first = templates.slot(shape(0));
    for bytes in 1..100 {
        templates.slot(shape(bytes));
        assert!(Arc::ptr_eq(&first, &templates.slot(shape(0))), "{bytes}");
    }
    assert_eq!(lock(&templates.0).len(), MAX_TEMPLATES);
    templates.clear();
    assert!(!Arc::ptr_eq(&first, &templates.slot(shape(0))));
}

#[test]
fn a_template_does_not_keep_a_managed_pool_mounted() {
    let Some(testbed) = Testbed::plain() else { return };
    let config = ImagePoolConfig { managed_size: Some(512 * MIB), ..testbed.config() };
    let pool = ImagePool::open(config).unwrap();
    create(&pool, &mount_volume_of(&pool, "a", FsType::Ext4, 64 * MIB));
    pool.close();
    assert!(devices_of_pool_at(&testbed.pool_path()).is_empty());
}
