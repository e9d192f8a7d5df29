//! Thick volumes: what is in them, how they lie, how they grow.

use std::fs::File;

use orlop_model::{
    Catalogue, ContentSource, Devices, Error, LvmLayout, NewVolume, Provisioner, Provisioning,
    RaidLevel, VolumeRecord,
};

use super::fixture::{Pool, check, check_zero, fill};
use crate::lvm::report::LvKind;
use crate::lvm::testbed::{MIB, Testbed};

const LINEAR: LvmLayout = LvmLayout { raid: None, mirrors: None, stripes: None, stripe_size: None };

fn pool(disks: usize) -> Option<Pool> {
    let bed = Testbed::with_devices(disks)?;
    bed.create_thin_pool("tp", 32 * MIB);
    let config = bed.config(true);
    Some(Pool::open(bed, config))
}

/// The first extents that are free hold what an earlier volume has left: LVM gives them out next.
fn soil(pool: &Pool) {
    with_lv(pool, "earlier", "20", |device| fill(device, 99, 0, 80 * MIB));
    with_lv(pool, "later", "20", |device| check(device, 99, 0, 80 * MIB));
}

/// One that LVM makes as its extents are.
fn with_lv(pool: &Pool, name: &str, extents: &str, act: impl FnOnce(&File)) {
    let create = ["-Wn", "-Zn", "--extents", extents, "--name", name, &pool.bed.group];
    pool.bed.run("lvcreate", &create);
    let path = pool.opened.lvm.group().device_path(name);
    act(&File::options().read(true).write(true).open(path).unwrap());
    pool.bed.run("lvremove", &[&pool.opened.lvm.group().lv(&name)]);
}

fn record(pool: &Pool, id: &orlop_model::VolumeId) -> VolumeRecord {
    pool.opened.catalogue.volume(id).unwrap().unwrap()
}

#[test]
fn thick_volume_shows_nothing_of_an_earlier_one() {
    let Some(pool) = pool(1) else { return };
    soil(&pool);
    let made = pool.thick("a", 30 * MIB, LINEAR);
    let report = pool.opened.lvm.report().unwrap();
    let lv = report.lv(&made.id.to_string()).unwrap();
    assert_eq!((lv.kind(), lv.size, lv.is_active()), (LvKind::Thick, 32 * MIB, false));
    let device = pool.device(&made.id);
    check_zero(&device, 0, 30 * MIB);
    fill(&device, 1, 0, 30 * MIB);

    // Within its last extent, and further, while it is in use.
    for (from, to) in [(30, 31), (31, 64)] {
        let grown = pool.opened.provisioner.ensure_capacity(&made.id, to * MIB).unwrap();
        assert_eq!((grown.capacity_bytes, &grown), (to * MIB, &record(&pool, &made.id)));
        assert_eq!(pool.opened.devices.refresh_device(&made.id).unwrap(), to * MIB);
        check_zero(&device, from * MIB, to * MIB);
        fill(&device, 1, from * MIB, to * MIB);
    }
    drop(device);
    let pool = pool.reopen();
    check(&pool.device(&made.id), 1, 0, 64 * MIB);
    pool.delete(&made.id);
    assert_eq!(pool.lv_names(), [""; 0]);
}

/// A daemon that was killed after the extension leaves more than the record says, with old data.
#[test]
fn interrupted_growth_is_zeroed_by_the_next_call() {
    let Some(pool) = pool(1) else { return };
    soil(&pool);
    let made = pool.thick("a", 8 * MIB, LINEAR);
    fill(&pool.device(&made.id), 1, 0, 8 * MIB);
    pool.detach_all();
    pool.bed.run("lvextend", &["--size", "24m", &pool.opened.lvm.group().lv(&made.id)]);
    let pool = pool.reopen();
    pool.opened.provisioner.ensure_capacity(&made.id, 16 * MIB).unwrap();
    let lv = pool.opened.lvm.group().device_path(&made.id.to_string());
    assert!(!lv.exists(), "it was not attached");
    pool.opened.provisioner.ensure_capacity(&made.id, 24 * MIB).unwrap();
    let device = pool.device(&made.id);
    check(&device, 1, 0, 8 * MIB);
    check_zero(&device, 8 * MIB, 24 * MIB);
}

/// A daemon that was killed while it zeroed one.
#[test]
fn draft_that_was_not_zeroed_is_removed() {
    let Some(pool) = pool(1) else { return };
    let id = pool.volume_id("a").to_string();
    pool.bed.create_lv(&id, 4, &["orlop1:draft".to_owned()]);
    pool.bed.run("lvchange", &["--activate", "y", &pool.opened.lvm.group().lv(&id)]);
    let pool = pool.reopen();
    assert_eq!(pool.lv_names(), [""; 0]);
    pool.thick("a", 8 * MIB, LINEAR);
}

#[test]
fn layouts_are_made_and_kept_when_a_volume_grows() {
    let Some(pool) = pool(5) else { return };
    let raid = |level| LvmLayout { raid: Some(level), ..LINEAR };
    let striped = LvmLayout { stripes: Some(2), stripe_size: Some(128 << 10), ..LINEAR };
    for (layout, kind) in [
        (striped, "striped"),
        (raid(RaidLevel::Raid1), "raid1"),
        (raid(RaidLevel::Raid5), "raid5"),
        (raid(RaidLevel::Raid6), "raid6"),
        (raid(RaidLevel::Raid10), "raid10"),
    ] {
        let free = || pool.opened.lvm.report().unwrap().group.free;
        let before = free();
        let made = pool.thick(kind, 8 * MIB, layout);
        assert_eq!(record(&pool, &made.id).parameters.lvm, layout);
        let device = pool.device(&made.id);
        check_zero(&device, 0, 8 * MIB);
        fill(&device, 5, 0, 8 * MIB);
        pool.opened.provisioner.ensure_capacity(&made.id, 20 * MIB).unwrap();
        pool.opened.devices.refresh_device(&made.id).unwrap();
        check_zero(&device, 8 * MIB, 20 * MIB);
        check(&device, 5, 0, 8 * MIB);
        let report = pool.opened.lvm.report().unwrap();
        let name = made.id.to_string();
        let mut segments = report.segments.iter().filter(|segment| segment.lv == name);
        assert!(segments.all(|segment| segment.kind.starts_with(kind)), "{:?}", report.segments);
        assert_eq!(report.lv(&name).unwrap().is_redundant(), layout.raid.is_some());
        let taken = crate::lvm::thick_layout::extents_for(&layout, 20 * MIB, report.group.extent);
        assert_eq!(before - report.group.free, taken, "{kind}");
        drop(device);
        pool.delete(&made.id);
        assert_eq!(free(), before);
    }
}

#[test]
fn what_does_not_fit_or_is_not_offered_is_refused() {
    let Some(pool) = pool(2) else { return };
    let free = pool.opened.capacity.available(Provisioning::Thick).unwrap().available_bytes;
    let refused = |new: &NewVolume| pool.try_make(new).unwrap_err();
    let too_large = refused(&pool.new_volume("a", free + MIB, Some(LINEAR)));
    assert!(matches!(too_large, Error::Exhausted(_)), "{too_large}");
    let wide = LvmLayout { stripes: Some(3), ..LINEAR };
    let too_wide = refused(&pool.new_volume("a", 8 * MIB, Some(wide)));
    assert!(too_wide.to_string().contains("takes 3 disks"), "{too_wide}");
    let mirrored = LvmLayout { raid: Some(RaidLevel::Raid1), ..LINEAR };
    let for_layout = |layout: LvmLayout| {
        let parameters = pool.new_volume("a", MIB, Some(layout)).parameters;
        pool.opened.provisioner.capacity_for(&parameters).unwrap().available_bytes
    };
    assert_eq!((for_layout(LINEAR), for_layout(wide)), (free, 0));
    assert!(for_layout(mirrored) < free / 2 && for_layout(mirrored) > free / 4);
    let too_much = refused(&pool.new_volume("a", free / 2 + MIB, Some(mirrored)));
    assert!(matches!(too_much, Error::Exhausted(_)), "{too_much}");
    assert_eq!(pool.lv_names(), [""; 0]);

    let made = pool.thick("a", 8 * MIB, LINEAR);
    let source = ContentSource::Volume(made.id.clone());
    for refused in [
        pool.try_snapshot("s", &made).map(drop),
        pool.try_copy("c", 8 * MIB, source.clone()).map(drop),
    ] {
        assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
    }
    let thin = pool.thin("t", 8 * MIB);
    let from_thin = NewVolume {
        source: Some(ContentSource::Volume(thin.id.clone())),
        ..pool.new_volume("c", 8 * MIB, Some(LINEAR))
    };
    assert!(matches!(pool.try_make(&from_thin), Err(Error::NotOffered(..))));
    let grown = pool.opened.provisioner.ensure_capacity(&made.id, 2 * free);
    assert!(matches!(grown, Err(Error::Exhausted(_))), "{grown:?}");
    // A full thin pool does not keep thick volumes from being made.
    let device = pool.device(&thin.id);
    fill(&device, 1, 0, 8 * MIB);
}
