use super::*;
use crate::lvm::testbed::MIB;

const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

fn plan(new: &NewThinPool, free: u64) -> std::result::Result<Plan, String> {
    Plan::of(new, 4 * MIB, free)
}

fn of_size(size: ThinPoolSize) -> NewThinPool {
    NewThinPool { size, ..NewThinPool::default() }
}

#[test]
fn metadata_and_its_spare_are_within_what_is_given() {
    // 90 % are 900 GiB, of which the metadata takes 0.4 %, twice.
    let made = plan(&NewThinPool::default(), 1000 * GIB).unwrap();
    assert_eq!((made.chunk, made.metadata), (64 << 10, 3600 * MIB));
    assert_eq!(made.data, 900 * GIB - 2 * 3600 * MIB);
    let all = plan(&of_size(ThinPoolSize::Percent(100)), 256 * MIB).unwrap();
    assert_eq!(all.data + 2 * all.metadata, 256 * MIB);
    let exact = plan(&of_size(ThinPoolSize::Bytes(10 * GIB)), 11 * GIB).unwrap();
    assert_eq!((exact.data, exact.metadata), (10 * GIB, 40 * MIB));
}

#[test]
fn chunks_of_a_large_pool_are_larger() {
    let chunk = |data| plan(&of_size(ThinPoolSize::Bytes(data)), 2 * data).unwrap();
    assert_eq!(chunk(2 * TIB).chunk, 64 << 10);
    assert_eq!((chunk(4 * TIB).chunk, chunk(4 * TIB).metadata), (128 << 10, 8 * GIB));
    assert_eq!((chunk(100 * TIB).chunk, chunk(100 * TIB).metadata), (4 << 20, 6400 * MIB));
    let given =
        NewThinPool { chunk_size: Some(64 << 10), ..of_size(ThinPoolSize::Bytes(100 * TIB)) };
    assert_eq!(plan(&given, 200 * TIB).unwrap().metadata, MOST_METADATA);
    let given = NewThinPool { metadata_size: Some(5 * MIB), ..of_size(ThinPoolSize::Bytes(GIB)) };
    assert_eq!(plan(&given, 2 * GIB).unwrap().metadata, 8 * MIB, "whole extents");
}

#[test]
fn what_does_not_fit_is_refused() {
    for (size, free) in [
        (ThinPoolSize::Bytes(10 * GIB), 10 * GIB),
        (ThinPoolSize::Bytes(0), 10 * GIB),
        (ThinPoolSize::Percent(90), 0),
        (ThinPoolSize::Percent(1), 100 * MIB),
    ] {
        let refused = plan(&of_size(size), free).unwrap_err();
        assert!(refused.contains("choose a smaller size"), "{size:?}: {refused}");
    }
}

#[test]
fn copies_and_parity_leave_less() {
    let layout = LvmLayout { raid: Some(RaidLevel::Raid1), ..LvmLayout::default() };
    let made =
        plan(&NewThinPool { layout, ..of_size(ThinPoolSize::Percent(100)) }, 2000 * MIB).unwrap();
    let on_each_disk = 1000 * MIB - 12 * MIB;
    assert_eq!(made.data + 2 * made.metadata, on_each_disk);
}
