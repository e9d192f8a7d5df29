//! A thin pool that Orlop makes.

use orlop_model::{LvmLayout, Provisioning, RaidLevel};

use super::fixture::{Pool, check, fill};
use crate::lvm::extension::Extension;
use crate::lvm::making::{NewThinPool, ThinPoolSize};
use crate::lvm::testbed::{MIB, Testbed};
use crate::lvm::thin_status::{ThinPoolDevice, ThinStatus, WhenFull};
use crate::lvm::{LvmPool, LvmPoolConfig};

fn config(bed: &Testbed, create: bool, layout: LvmLayout) -> LvmPoolConfig {
    let new = NewThinPool { size: ThinPoolSize::Percent(80), layout, ..NewThinPool::default() };
    LvmPoolConfig { new_thin_pool: new, ..bed.config(create) }
}

fn status(pool: &Pool) -> ThinStatus {
    let device = ThinPoolDevice::new(pool.opened.lvm.group(), "tp", crate::lvm::testbed::LIMIT);
    device.status().unwrap().unwrap()
}

#[test]
fn thin_pool_is_made_once_and_only_if_that_is_allowed() {
    let Some(bed) = Testbed::with_devices(2) else { return };
    let refused = LvmPool::open(config(&bed, false, LvmLayout::default())).unwrap_err();
    assert!(refused.to_string().contains("has no thin pool tp"), "{refused}");
    let stripes = LvmLayout { stripes: Some(2), ..LvmLayout::default() };
    let config = config(&bed, true, stripes);
    let pool = Pool::open(bed, config);
    let report = pool.opened.lvm.report().unwrap();
    let lv = report.lv("tp").unwrap();
    // 80 % of twice 252 MiB, less the metadata and its spare, in whole extents.
    assert_eq!((lv.size, lv.metadata_size), (368 * MIB, Some(16 * MIB)));
    assert!(lv.tags.contains(&format!("orlop1:pool:{}", pool.opened.info.id)), "{:?}", lv.tags);
    let segment = report.segments.iter().find(|segment| segment.lv == "tp").unwrap();
    assert!(segment.zeroes_chunks() && segment.chunk == 64 << 10, "{segment:?}");
    assert_eq!(status(&pool).when_full, WhenFull::Error);

    let made = pool.thin("a", 8 * MIB);
    fill(&pool.device(&made.id), 1, 0, 8 * MIB);
    let (id, revision) = (pool.opened.info.id.clone(), report.group.revision);
    let pool = pool.reopen();
    assert_eq!(pool.opened.info.id, id);
    check(&pool.device(&made.id), 1, 0, 8 * MIB);
    assert!(pool.opened.lvm.report().unwrap().group.revision < revision + 10);
}

#[test]
fn thin_pool_on_a_raid_is_made_also_after_a_crash() {
    let Some(bed) = Testbed::with_devices(2) else { return };
    let layout = LvmLayout { raid: Some(RaidLevel::Raid1), ..LvmLayout::default() };
    let mut config = config(&bed, true, layout);
    let extension = Extension { at_percent: 80, by: ThinPoolSize::Percent(20), limit: None };
    config.extension = Some(extension);
    // A machine that went down after the first step.
    let first = ["--type", "raid1", "--mirrors", "1", "--size", "100m", "--name", "tp"];
    let first = [&first[..], &["--addtag", "orlop1:making", &bed.group]].concat();
    bed.run("lvcreate", &first);
    assert_eq!(LvmPool::id_of(&config).unwrap(), None, "the next start makes it");
    assert!(LvmPool::inspect(&config, &"n1".parse().unwrap()).unwrap().is_none());
    let pool = Pool::open(bed, config);
    assert_eq!(pool.opened.lvm.report().unwrap().lv("tp").unwrap().size, 100 * MIB);
    assert_eq!(status(&pool).when_full, WhenFull::Queue);
    let made = pool.thin("a", 8 * MIB);
    fill(&pool.device(&made.id), 1, 0, 8 * MIB);
    let id = pool.opened.info.id.clone();
    let pool = pool.reopen();
    assert_eq!(pool.opened.info.id, id);
    check(&pool.device(&made.id), 1, 0, 8 * MIB);
}

/// What has the name of the thin pool and is something else is left alone.
#[test]
fn volume_with_the_name_of_the_thin_pool_stays() {
    let Some(bed) = Testbed::with_devices(1) else { return };
    bed.create_lv("tp", 2, &[]);
    let refused = LvmPool::open(config(&bed, true, LvmLayout::default())).unwrap_err();
    assert!(refused.to_string().contains("/tp is no thin pool"), "{refused}");
    assert_eq!(bed.lvm().report().unwrap().lv("tp").unwrap().size, 8 * MIB);
}

/// Each byte takes two of the volume group's.
#[test]
fn thin_pool_on_a_raid_grows_to_what_it_promises() {
    let Some(bed) = Testbed::with_devices(2) else { return };
    let layout = LvmLayout { raid: Some(RaidLevel::Raid1), ..LvmLayout::default() };
    let mut config = config(&bed, true, layout);
    config.new_thin_pool.size = ThinPoolSize::Bytes(64 * MIB);
    let extension = Extension { at_percent: 80, by: ThinPoolSize::Percent(20), limit: None };
    config.extension = Some(extension);
    let pool = Pool::open(bed, config);
    let space = || pool.opened.capacity.available(Provisioning::Thin).unwrap().available_bytes;
    let promised = space();
    // A disk has 252 MiB, with the metadata and, on one of them, its spare.
    assert!((160 * MIB..=244 * MIB).contains(&promised), "{} MiB", promised / MIB);
    pool.thin("a", promised);
    let size = pool.opened.lvm.report().unwrap().lv("tp").unwrap().size;
    assert!(size >= promised, "{} MiB of {} MiB", size / MIB, promised / MIB);
    assert_eq!(space(), 0);
}
