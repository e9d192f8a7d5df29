//! I/O through a published volume, against the same I/O on what LVM or dm-crypt alone make.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orlop_sys::tool;
use orlop_tests::{Client, Daemon, GIB, LvmSize, MIB, OnNode, Pattern, Rng, TestLvm, block};
use rustix::fs::{Mode, OFlags, open};

use super::{text, verdict};
use crate::Effort;
use crate::experiments::{Rounds, in_turns};
use crate::series::Series;

const LEAST: f64 = 0.97;
const ALIGNMENT: usize = 4096;
const LUKS_HEADER: u64 = 16 * MIB;
const SECTOR: u64 = 512;
/// In sectors.
const SHIFT: u64 = 1 << 15;
/// Of each operation on the slow disk, in milliseconds.
pub(super) const DELAY: u32 = 2;
const PASSPHRASE: &str = "of the benchmark";

#[derive(Clone, Copy)]
struct Job {
    name: &'static str,
    block: usize,
    is_random: bool,
    writes: bool,
}

const JOBS: [Job; 4] = [
    Job { name: "4 KiB random read", block: 4 << 10, is_random: true, writes: false },
    Job { name: "4 KiB random write", block: 4 << 10, is_random: true, writes: true },
    Job { name: "1 MiB sequential read", block: 1 << 20, is_random: false, writes: false },
    Job { name: "1 MiB sequential write", block: 1 << 20, is_random: false, writes: true },
];

impl Job {
    /// Operations a second, one after the other and past the page cache.
    fn run(&self, target: &Path, bytes: u64, duration: Duration) -> f64 {
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = File::from(open(target, flags, Mode::empty()).expect("open the device"));
        let mut buffer = vec![7; self.block + ALIGNMENT];
        let start = buffer.as_ptr().align_offset(ALIGNMENT);
        let buffer = &mut buffer[start..start + self.block];
        let block = u64::try_from(self.block).expect("a small number");
        let (mut rng, mut done) = (Rng::new(), 0_u32);
        let began = Instant::now();
        while began.elapsed() < duration {
            let index = if self.is_random { rng.u64(..) } else { u64::from(done) };
            let offset = index % (bytes / block) * block;
            match self.writes {
                true => file.write_all_at(buffer, offset).expect("write to the device"),
                false => file.read_exact_at(buffer, offset).expect("read from the device"),
            }
            done += 1;
        }
        f64::from(done) / began.elapsed().as_secs_f64()
    }
}

pub(super) struct Row {
    pub(super) job: &'static str,
    ours: Series,
    bare: [Series; 2],
    /// What LVM or dm-crypt alone make, with a linear device in between that Orlop did not make.
    linear: Series,
}

impl Row {
    pub(super) fn cells(&self) -> String {
        let [first, second] = &self.bare;
        let both = first.geometric_mean(second);
        let ratio = self.ours.ratio_by_round(&both);
        let [bare, linear] = [second.ratio_by_round(first), self.linear.ratio_by_round(&both)];
        let met = verdict(ratio.value >= LEAST);
        format!("{} | {} | {} | {met}", text(&ratio), text(&bare), text(&linear))
    }
}

pub(super) struct Tables {
    pub(super) plain: Vec<Row>,
    pub(super) encrypted: Vec<Row>,
    /// Plain, on a disk that takes a while for each operation.
    pub(super) slow: Vec<Row>,
}

pub(super) async fn measure(effort: Effort) -> Tables {
    let size = effort.of(64 * MIB, 32 * MIB);
    let disk = test_disk();
    let fast = Site::new(&disk).await;
    let plain = fast.plain(size, effort).await;
    let encrypted = fast.encrypted(size, effort).await;
    drop(fast);

    tool::run("wipefs", ["--all", "--force", "--quiet", &disk]).expect("wipe the disk");
    // Not at its start, or LVM would find the same label on both.
    let sectors = 8 * GIB / SECTOR;
    let table = format!("0 {sectors} delay {disk} {SHIFT} {DELAY} {disk} {SHIFT} {DELAY}");
    let delayed = mapped("delay", Path::new(&disk), &table);
    let slow = Site::new(delayed.to_str().expect("a name")).await.plain(size, effort).await;
    Tables { plain, encrypted, slow }
}

/// The daemon goes before what it uses.
struct Site {
    daemon: Daemon,
    group: TestLvm,
}

impl Site {
    async fn new(disk: &str) -> Self {
        let size = LvmSize { thin: 4 * GIB, free: GIB };
        let group = TestLvm::on_disk(Path::new(disk), size);
        let daemon = group.launch().env("ORLOP_LOG", "warn").start().await;
        Self { daemon, group }
    }

    async fn plain(&self, size: u64, effort: Effort) -> Vec<Row> {
        let volume = published(&self.daemon.client(), "plain", size).await;
        let bare = ["first", "second", "third"].map(|name| bare_volume(&self.group, name, size));
        let linear = linear_on(&bare[2], size);
        let rows = rows([&volume.target, &bare[0], &bare[1], &linear], size, effort);
        volume.down().await;
        remove([&linear]);
        rows
    }

    async fn encrypted(&self, size: u64, effort: Effort) -> Vec<Row> {
        let client = self.daemon.client().encrypting(PASSPHRASE);
        // The device is smaller than the volume by the header.
        let volume = published(&client, "encrypted", size + LUKS_HEADER).await;
        let table = crypt_table(&volume.id);
        let below = ["fourth", "fifth", "sixth"].map(|name| bare_volume(&self.group, name, size));
        let linear = linear_on(&below[2], size);
        let bare = [&below[0], &below[1], &linear].map(|below| bare_crypt(below, &table, size));
        let rows = rows([&volume.target, &bare[0], &bare[1], &bare[2]], size, effort);
        volume.down().await;
        remove(bare.iter().chain([&linear]));
        rows
    }
}

fn remove<'a>(devices: impl IntoIterator<Item = &'a PathBuf>) {
    for device in devices {
        tool::run("dmsetup", [Path::new("remove"), Path::new("--retry"), device]).expect("remove");
    }
}

/// A real disk, so that no loop device is in the way.
fn test_disk() -> String {
    std::env::var("ORLOP_TEST_DISK").expect("the disk of the guest")
}

fn rows(targets: [&PathBuf; 4], size: u64, effort: Effort) -> Vec<Row> {
    targets.iter().for_each(|target| Pattern::new(1).write(target, size));
    // Many and short, so that what else the machine does is the same for all of a round.
    let rounds = Rounds { count: effort.of(40, 4), each: 100 };
    let row = |job: Job| {
        let run = |target: &Path, time| job.run(target, size, time);
        let targets = targets.map(PathBuf::as_path);
        let [ours, first, second, linear] = in_turns(rustix::fs::sync, &rounds, targets, run);
        println!("{}", job.name);
        Row { job: job.name, ours, bare: [first, second], linear }
    };
    JOBS.into_iter().map(row).collect()
}

async fn published(client: &Client, name: &str, size: u64) -> OnNode {
    let volume = client.create(name).size(size).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    node
}

fn bare_volume(group: &TestLvm, name: &str, size: u64) -> PathBuf {
    let bytes = format!("{size}b");
    let thin_pool = group.thin_pool();
    group.lvm(&["lvcreate", "--virtualsize", &bytes, "--thinpool", &thin_pool, "--name", name]);
    Path::new("/dev/mapper").join(format!("{}-{name}", group.group))
}

/// Of the device that shows the encrypted volume: cipher, key, and what follows the device below.
fn crypt_table(volume: &str) -> (String, usize, String) {
    let digest = volume.rsplit_once('-').expect("an id").1;
    let listed = tool::run("dmsetup", ["ls", "--target", "crypt"]).expect("list devices");
    let listed = String::from_utf8(listed.stdout).expect("text");
    let name = listed.lines().find(|line| line.contains(digest)).expect("a device of dm-crypt");
    let name = name.split_whitespace().next().expect("a name");
    let table = tool::run("dmsetup", ["table", name]).expect("read a table");
    let table = String::from_utf8(table.stdout).expect("text");
    // START LENGTH crypt CIPHER KEY IV_OFFSET DEVICE OFFSET [OPTIONS]
    let words: Vec<_> = table.split_whitespace().collect();
    let key = words[4];
    // In the keyring it is `:BYTES:TYPE:NAME`; else it is shown as so many zeroes.
    let bytes = match key.strip_prefix(':').and_then(|key| key.split(':').next()) {
        Some(bytes) => bytes.parse().expect("the length of a key"),
        None => key.len() / 2,
    };
    (words[3].to_owned(), bytes, words[8..].join(" "))
}

fn linear_on(below: &Path, size: u64) -> PathBuf {
    mapped("linear", below, &format!("0 {} linear {} 0", size / SECTOR, below.display()))
}

fn mapped(kind: &str, below: &Path, table: &str) -> PathBuf {
    let below = below.file_name().and_then(OsStr::to_str).expect("a name");
    let name = format!("{kind}-{below}");
    tool::run("dmsetup", ["create", "--verifyudev", &name, "--table", table]).expect("a device");
    Path::new("/dev/mapper").join(name)
}

fn bare_crypt(below: &Path, table: &(String, usize, String), size: u64) -> PathBuf {
    let (cipher, key_bytes, options) = table;
    // XTS refuses a key of two equal halves.
    let key: String = (0..*key_bytes).map(|byte| format!("{:02x}", byte + 1)).collect();
    let table =
        format!("0 {} crypt {cipher} {key} 0 {} 0 {options}", size / SECTOR, below.display());
    mapped("crypt", below, &table)
}
