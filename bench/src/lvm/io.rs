//! I/O through a published volume, against the same I/O on what LVM or dm-crypt alone make.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orlop_sys::tool;
use orlop_tests::{Client, GIB, LvmSize, MIB, OnNode, Pattern, Rng, TestLvm, block};
use rustix::fs::{Mode, OFlags, open};

use super::{text, verdict};
use crate::Effort;
use crate::experiments::{Rounds, in_turns};
use crate::series::Series;

const LEAST: f64 = 0.97;
const ALIGNMENT: usize = 4096;
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
}

impl Row {
    pub(super) fn cells(&self) -> String {
        let [first, second] = &self.bare;
        let ratio = self.ours.ratio_by_round(&first.geometric_mean(second));
        let bare = second.ratio_by_round(first);
        format!("{} | {} | {}", text(&ratio), text(&bare), verdict(ratio.value >= LEAST))
    }
}

/// Plain and encrypted.
pub(super) async fn measure(effort: Effort) -> (Vec<Row>, Vec<Row>) {
    let size = effort.of(128 * MIB, 32 * MIB);
    let group = TestLvm::on_disk(&test_disk(), LvmSize { thin: 4 * GIB, free: GIB });
    let daemon = group.launch().env("ORLOP_LOG", "warn").start().await;

    let plain = published(&daemon.client(), "plain", size).await;
    let bare = ["first", "second"].map(|name| filled(bare_volume(&group, name, size), size));
    let plain_rows = rows([&plain.target, &bare[0], &bare[1]], size, effort);
    plain.down().await;

    let client = daemon.client().encrypting(PASSPHRASE);
    let encrypted = published(&client, "encrypted", size).await;
    let table = crypt_table(&encrypted.id);
    let bare = ["third", "fourth"].map(|name| {
        let below = bare_volume(&group, name, size);
        filled(bare_crypt(name, &below, &table, size), size)
    });
    let encrypted_rows = rows([&encrypted.target, &bare[0], &bare[1]], size, effort);
    encrypted.down().await;
    for device in bare {
        tool::run("dmsetup", [Path::new("remove"), Path::new("--retry"), &device]).expect("remove");
    }
    (plain_rows, encrypted_rows)
}

/// A real disk, so that no loop device is in the way.
fn test_disk() -> PathBuf {
    std::env::var_os("ORLOP_TEST_DISK").map(PathBuf::from).expect("the disk of the guest")
}

fn rows(targets: [&PathBuf; 3], size: u64, effort: Effort) -> Vec<Row> {
    let rounds = Rounds { count: effort.of(18, 6), each: effort.of(400, 100) };
    let row = |job: Job| {
        let run = |target: &Path, time| job.run(target, size, time);
        let targets = targets.map(PathBuf::as_path);
        let [ours, first, second] = in_turns(rustix::fs::sync, &rounds, targets, run);
        println!("{}", job.name);
        Row { job: job.name, ours, bare: [first, second] }
    };
    JOBS.into_iter().map(row).collect()
}

async fn published(client: &Client, name: &str, size: u64) -> OnNode {
    let volume = client.create(name).size(size).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    filled(node.target.clone(), size);
    node
}

fn filled(device: PathBuf, size: u64) -> PathBuf {
    Pattern::new(1).write(&device, size);
    device
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

fn bare_crypt(name: &str, below: &Path, table: &(String, usize, String), size: u64) -> PathBuf {
    let (cipher, key_bytes, options) = table;
    // XTS refuses a key of two equal halves.
    let key: String = (0..*key_bytes).map(|byte| format!("{:02x}", byte + 1)).collect();
    let table = format!("0 {} crypt {cipher} {key} 0 {} 0 {options}", size / 512, below.display());
    let name = format!("bare-{name}");
    tool::run("dmsetup", ["create", "--verifyudev", &name, "--table", &table]).expect("dm-crypt");
    Path::new("/dev/mapper").join(name)
}
