//! Thin devices that LVM does not know, in a thin pool that it made: one of its commands takes a quarter of a second where
//! the processor is emulated, and a message to the kernel nearly nothing.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orlop_model::{ByteRange, NameDigest, SnapshotId};
use orlop_sys::{thin_pool, tool};
use rustix::fs::OFlags;
use tempfile::TempDir;

use super::super::batches::{Batches, SnapshotDevice};
use super::super::comparison::BatchLimits;
use super::super::metadata::ThinMetadata;
use crate::lvm::testbed::{Testbed, pool_id};
use crate::merged_ranges::Merged;

pub(super) const CHUNK: u64 = 64 << 10;
/// Far from those that LVM gives.
const FIRST_NUMBER: u64 = 1000;

/// A thin pool of which the test uses the metadata. The last field is dropped last.
pub(super) struct ThinPool {
    pub(super) metadata: Arc<ThinMetadata>,
    pub(super) marker: PathBuf,
    next_number: u64,
    _directory: TempDir,
    pub(super) bed: Testbed,
}

impl ThinPool {
    /// `None` where there is no device mapper.
    pub(super) fn new(disks: usize, megabytes: u64) -> Option<Self> {
        Self::with_metadata(disks, megabytes, "16m")
    }

    pub(super) fn with_metadata(disks: usize, megabytes: u64, metadata: &str) -> Option<Self> {
        let bed = Testbed::with_devices(disks)?;
        let size = format!("{megabytes}m");
        let of_pool = ["--type", "thin-pool", "--chunksize", "64k", "--poolmetadatasize", metadata];
        let create = ["--zero", "n", "--size", &size, "--name", "tp", &bed.group];
        bed.run("lvcreate", &[&of_pool[..], &create].concat());
        // Before that, LVM gives the pool's device another name.
        let first = ["-an", "--virtualsize", "4m", "--thinpool", "tp", "--name", "first"];
        bed.run("lvcreate", &[&first[..], &[&bed.group]].concat());
        let directory = tempfile::tempdir().unwrap();
        let marker = directory.path().join("marker");
        let metadata = Arc::new(ThinMetadata::new(bed.lvm().group(), "tp", marker.clone()));
        Some(Self { metadata, marker, next_number: FIRST_NUMBER, _directory: directory, bed })
    }

    /// What the next daemon has.
    pub(super) fn reopen(&mut self) {
        let marker = self.marker.clone();
        self.metadata = Arc::new(ThinMetadata::new(self.bed.lvm().group(), "tp", marker));
        self.metadata.release_abandoned().unwrap();
    }

    pub(super) fn device(&self) -> String {
        format!("{}-tpool", self.bed.lvm().group().device_name("tp"))
    }

    pub(super) fn metadata_device(&self) -> PathBuf {
        self.bed.lvm().group().device_path("tp_tmeta")
    }

    pub(super) fn send(&self, message: &str) {
        thin_pool::send(&self.device(), message).unwrap();
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(super) fn create(&mut self, bytes: u64) -> ThinVolume {
        let number = self.number();
        self.send(&format!("create_thin {number}"));
        self.activate(number, bytes)
    }

    /// Nothing may write to the volume at this moment.
    pub(super) fn snapshot(&mut self, of: &ThinVolume) -> u64 {
        of.file.sync_all().unwrap();
        let number = self.number();
        self.send(&format!("create_snap {number} {}", of.number));
        number
    }

    pub(super) fn activate(&self, number: u64, bytes: u64) -> ThinVolume {
        let name = format!("{}-raw-{number}", self.bed.group);
        let table = format!("0 {} thin /dev/mapper/{} {number}", bytes / 512, self.device());
        tool::run("dmsetup", ["create", &name, "--verifyudev", "--table", &table]).unwrap();
        let path = Path::new("/dev/mapper").join(&name);
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        ThinVolume { number, name, bytes, file, path }
    }

    pub(super) fn batches(
        &self,
        base: Option<u64>,
        target: u64,
        span: (u64, u64),
        limits: BatchLimits,
    ) -> Batches {
        let device = |number| SnapshotDevice::new(&id_of(number), number);
        let (base, target) = (base.map(device), device(target));
        let confirm = Box::new(|| Ok(()));
        Batches::new(&self.metadata, base, target, span, confirm).limited_to(limits)
    }

    pub(super) fn ranges(
        &self,
        base: Option<u64>,
        target: u64,
        span: (u64, u64),
        limits: BatchLimits,
    ) -> Vec<ByteRange> {
        let ranges = Merged::new(self.batches(base, target, span, limits));
        ranges.filter_map(Result::unwrap).collect()
    }
}

pub(super) fn id_of(number: u64) -> SnapshotId {
    SnapshotId::new(pool_id(), NameDigest::of_text(&number.to_string()))
}

pub(super) struct ThinVolume {
    pub(super) number: u64,
    name: String,
    pub(super) bytes: u64,
    file: File,
    path: PathBuf,
}

impl ThinVolume {
    pub(super) fn write(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, at).unwrap();
    }

    /// Of whole chunks.
    pub(super) fn discard(&self, at: u64, length: u64) {
        let (at, length) = (at.to_string(), length.to_string());
        let device = self.path.display().to_string();
        tool::run("blkdiscard", ["--offset", &at, "--length", &length, &device]).unwrap();
    }

    pub(super) fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.bytes).unwrap()];
        self.file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// Many small writes, each of which is there before the next.
    pub(super) fn direct(&self) -> File {
        let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap();
        OpenOptions::new().write(true).custom_flags(direct).open(&self.path).unwrap()
    }
}

impl Drop for ThinVolume {
    /// The thin pool cannot be removed while it is there.
    fn drop(&mut self) {
        self.file = File::open("/dev/null").unwrap();
        let removed = tool::run("dmsetup", ["remove", "--retry", "--verifyudev", &self.name]);
        if !std::thread::panicking() {
            removed.unwrap();
        }
    }
}
