//! A thin pool whose metadata fills up before its data: what is refused before, and what brings it back.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use orlop_model::{Error, VolumeId};

use super::fixture::{BLOCK, Pool, block_at};
use crate::image::Floor;
use crate::lvm::testbed::{MIB, Testbed};
use crate::lvm::thin_status::{Mode, ThinPoolDevice, ThinStatus};

const CHUNK: u64 = 64 << 10;
/// Nearly as many as one node of a mapping has at most.
const CHUNKS_OF_NODE: usize = 240;
const VOLUME: u64 = 600 * MIB;
const COPIES: usize = 26;

fn status(pool: &Pool) -> ThinStatus {
    let device = ThinPoolDevice::new(pool.opened.lvm.group(), "tp", crate::lvm::testbed::LIMIT);
    device.status().unwrap().unwrap()
}

/// One block in every so many chunks.
fn write(device: &File, seed: u8, every: usize) -> std::io::Result<()> {
    for at in places(every) {
        device.write_all_at(&block_at(seed, at), at)?;
    }
    device.sync_data()
}

fn read(device: &File, seed: u8, every: usize) {
    let mut found = [0; BLOCK];
    for at in places(every) {
        device.read_exact_at(&mut found, at).unwrap();
        assert!(found == block_at(seed, at), "at {at}: {:?}", &found[..16]);
    }
}

fn places(every: usize) -> impl Iterator<Item = u64> {
    (0..VOLUME / CHUNK).step_by(every).map(|chunk| chunk * CHUNK)
}

/// Copies of a volume, made by an operator as that is quicker here. Each shares all nodes of the mapping.
struct Copies {
    devices: Vec<PathBuf>,
    written: usize,
}

impl Copies {
    fn make(pool: &Pool, source: &VolumeId) -> Self {
        let group = pool.opened.lvm.group();
        let make = |number| {
            let name = format!("copy{number}");
            let create = ["--snapshot", "--setactivationskip", "n", "--name", &name];
            pool.bed.run("lvcreate", &[&create[..], &[&group.lv(source)]].concat());
            group.device_path(&name)
        };
        Self { devices: (0..COPIES).map(make).collect(), written: 0 }
    }

    fn open(&self, number: usize) -> File {
        File::options().read(true).write(true).open(&self.devices[number]).unwrap()
    }

    /// Each write takes another node of the mapping.
    fn write_one(&mut self) -> std::io::Result<()> {
        self.written += 1;
        write(&self.open(self.written - 1), 7, CHUNKS_OF_NODE)
    }
}

#[test]
fn pool_refuses_before_its_metadata_is_full_and_can_be_repaired_after() {
    let Some(bed) = Testbed::with_devices(4) else { return };
    let create = ["--type", "thin-pool", "--size", "700m", "--poolmetadatasize", "4m"];
    let create = [&create[..], &["--chunksize", "64k", "--name", "tp", &bed.group]].concat();
    bed.run("lvcreate", &create);
    let mut config = bed.config(true);
    config.floor = Floor::Percent(1);
    config.overcommit_percent = 100_000;
    let pool = Pool::open(bed, config);
    let source = pool.thin("source", VOLUME);
    write(&pool.device(&source.id), 1, 1).unwrap();
    let mut copies = Copies::make(&pool, &source.id);

    // Until it refuses, long before the end.
    while !status(&pool).metadata.is_above(80) {
        copies.write_one().unwrap();
    }
    let refused = [
        pool.try_snapshot("s", &source).map(drop).unwrap_err(),
        pool.try_thin("t", MIB).map(drop).unwrap_err(),
    ];
    for refused in refused {
        assert!(matches!(refused, Error::Exhausted(_)), "{refused}");
        assert!(refused.to_string().contains("--poolmetadatasize"), "{refused}");
    }
    assert!(pool.opened.capacity.shortage().unwrap().unwrap().contains("metadata"));
    let figures = pool.opened.capacity.space().unwrap();
    assert!(figures.metadata_used.unwrap() * 100 > figures.metadata_size.unwrap() * 80);
    assert!(figures.free.unwrap() > 20 * MIB, "there is data left: {figures:?}");
    let whole = copies.written;

    // To the end.
    while copies.write_one().is_ok() {
        assert!(copies.written < COPIES, "{:?}", status(&pool));
    }
    let full = status(&pool);
    assert!(full.mode == Mode::ReadOnly || full.needs_check, "{full:?}");
    pool.opened.capacity.forget_numbers();
    let text = pool.opened.capacity.shortage().unwrap().unwrap();
    assert!(text.contains("lvconvert --repair"), "{text}");
    assert!(pool.try_thin("t", MIB).is_err());
    // What is there can be read.
    read(&pool.device(&source.id), 1, CHUNKS_OF_NODE);

    // As docs/lvm.md says.
    pool.detach_all();
    let lv = pool.opened.lvm.group().lv(&"tp");
    let active: Vec<String> =
        (0..COPIES).map(|number| pool.opened.lvm.group().lv(&format!("copy{number}"))).collect();
    let deactivate: Vec<&str> =
        ["--activate", "n"].into_iter().chain(active.iter().map(String::as_str)).collect();
    pool.bed.run("lvchange", &deactivate);
    pool.bed.run("lvchange", &["--activate", "n", &lv]);
    pool.bed.run("lvextend", &["--poolmetadatasize", "+12m", &lv]);
    pool.bed.run("lvconvert", &["--repair", &lv]);
    pool.bed.run("lvchange", &["--activate", "y", &lv]);
    let pool = pool.reopen();
    let repaired = status(&pool);
    assert!(repaired.mode == Mode::Writable && !repaired.needs_check, "{repaired:?}");
    assert!(!repaired.metadata.is_above(80), "{repaired:?}");
    read(&pool.device(&source.id), 1, 1);
    pool.bed.run("lvchange", &["--activate", "y", &active[whole - 1]]);
    read(&copies.open(whole - 1), 7, CHUNKS_OF_NODE);
    pool.try_snapshot("s", &source).unwrap();
    write(&pool.device(&source.id), 8, CHUNKS_OF_NODE).unwrap();
}
