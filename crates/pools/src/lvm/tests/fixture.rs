//! A pool in a volume group of loop devices, whose volumes hold data that can be compared byte for byte.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use orlop_model::{
    Catalogue, ContentSource, DeviceAccess, Devices, FormatState, LvmLayout, NameDigest,
    NewSnapshot, NewVolume, Provisioner, Provisioning, Result, SnapshotId, SnapshotRecord,
    VolumeId, VolumeParameters, VolumeRecord,
};

use crate::lvm::testbed::{MIB, Testbed, volume};
use crate::lvm::{LvmPool, LvmPoolConfig};

pub(super) const BLOCK: usize = 4096;

pub(super) struct Pool {
    pub(super) opened: LvmPool,
    pub(super) config: LvmPoolConfig,
    /// The last field: the pool is in it.
    pub(super) bed: Testbed,
}

/// Also after a panic: the volume group cannot be removed while its volumes are attached.
impl Drop for Pool {
    fn drop(&mut self) {
        self.detach_all();
    }
}

impl Pool {
    pub(super) fn open(bed: Testbed, config: LvmPoolConfig) -> Self {
        Self { opened: LvmPool::open(config.clone()).unwrap(), config, bed }
    }

    /// As the next daemon does.
    pub(super) fn reopen(mut self) -> Self {
        self.opened.close();
        // Disks may have come.
        self.config.lvm_settings = self.bed.settings();
        self.opened = LvmPool::open(self.config.clone()).unwrap();
        self
    }

    pub(super) fn volume_id(&self, name: &str) -> VolumeId {
        VolumeId::new(self.opened.info.id.clone(), NameDigest::of_text(name))
    }

    pub(super) fn new_volume(
        &self,
        name: &str,
        bytes: u64,
        layout: Option<LvmLayout>,
    ) -> NewVolume {
        let model = volume(name);
        let provisioning = if layout.is_some() { Provisioning::Thick } else { Provisioning::Thin };
        let lvm = layout.unwrap_or_default();
        NewVolume {
            id: self.volume_id(name),
            name: model.name,
            capacity_bytes: bytes,
            capabilities: model.capabilities,
            parameters: VolumeParameters { provisioning, lvm, ..VolumeParameters::default() },
            limits: model.limits,
            source: None,
            format: FormatState::Raw,
            encryption: None,
            filesystem: None,
            ephemeral: false,
        }
    }

    pub(super) fn try_make(&self, new: &NewVolume) -> Result<VolumeRecord> {
        self.opened.provisioner.begin_volume(new)?.commit()
    }

    pub(super) fn try_thin(&self, name: &str, bytes: u64) -> Result<VolumeRecord> {
        self.try_make(&self.new_volume(name, bytes, None))
    }

    pub(super) fn thin(&self, name: &str, bytes: u64) -> VolumeRecord {
        self.try_thin(name, bytes).unwrap()
    }

    pub(super) fn thick(&self, name: &str, bytes: u64, layout: LvmLayout) -> VolumeRecord {
        self.try_make(&self.new_volume(name, bytes, Some(layout))).unwrap()
    }

    pub(super) fn try_copy(
        &self,
        name: &str,
        bytes: u64,
        of: ContentSource,
    ) -> Result<VolumeRecord> {
        self.try_make(&NewVolume { source: Some(of), ..self.new_volume(name, bytes, None) })
    }

    pub(super) fn try_snapshot(&self, name: &str, source: &VolumeRecord) -> Result<SnapshotRecord> {
        let new = NewSnapshot {
            id: SnapshotId::new(self.opened.info.id.clone(), NameDigest::of_text(name)),
            name: name.parse().unwrap(),
            source: source.clone(),
            format: FormatState::Raw,
            consistency: orlop_model::Consistency::Crash,
        };
        self.opened.provisioner.begin_snapshot(&new)?.commit()
    }

    pub(super) fn attach(&self, id: &VolumeId) -> PathBuf {
        self.opened.devices.ensure_attached(id, DeviceAccess::ReadWrite).unwrap().path
    }

    pub(super) fn device(&self, id: &VolumeId) -> File {
        File::options().read(true).write(true).open(self.attach(id)).unwrap()
    }

    pub(super) fn detach_all(&self) {
        for (id, _) in self.opened.catalogue.volumes(None, 0).unwrap() {
            let _ = self.opened.devices.ensure_no_device(&id);
        }
    }

    pub(super) fn delete(&self, id: &VolumeId) {
        self.opened.provisioner.ensure_no_volume(id).unwrap();
    }

    pub(super) fn lv_names(&self) -> Vec<String> {
        let report = self.opened.lvm.report().unwrap();
        let names = report.volumes.iter().map(|lv| lv.name.clone());
        names.filter(|name| *name != self.config.thin_pool).collect()
    }
}

/// What belongs at a place of a volume; cheap, as the guest's processor is emulated.
pub(super) fn block_at(seed: u8, offset: u64) -> [u8; BLOCK] {
    let mixed = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    let mut block = [u8::try_from(mixed).unwrap() | 1; BLOCK];
    block[..8].copy_from_slice(&offset.to_le_bytes());
    block[8] = seed;
    block
}

fn blocks(from: u64, to: u64) -> impl Iterator<Item = u64> {
    (from..to).step_by(BLOCK)
}

/// Past the page cache of the device, at the latest by the sync; the error is the first.
pub(super) fn try_fill(device: &File, seed: u8, from: u64, to: u64) -> std::io::Result<()> {
    let mut chunk = Vec::new();
    for start in (from..to).step_by(1 << 20) {
        chunk.clear();
        blocks(start, to.min(start + MIB)).for_each(|at| chunk.extend(block_at(seed, at)));
        device.write_all_at(&chunk, start)?;
    }
    device.sync_data()
}

pub(super) fn fill(device: &File, seed: u8, from: u64, to: u64) {
    try_fill(device, seed, from, to).unwrap();
}

/// From the disk: what the page cache has is dropped.
pub(super) fn check(device: &File, seed: u8, from: u64, to: u64) {
    drop_cache(device);
    let mut found = [0; BLOCK];
    for at in blocks(from, to) {
        device.read_exact_at(&mut found, at).unwrap();
        assert!(found == block_at(seed, at), "at {at}: {:?}", &found[..16]);
    }
}

pub(super) fn check_zero(device: &File, from: u64, to: u64) {
    drop_cache(device);
    let mut found = [1; BLOCK];
    for at in blocks(from, to) {
        device.read_exact_at(&mut found, at).unwrap();
        assert!(found == [0; BLOCK], "at {at}: {:?}", &found[..16]);
    }
}

fn drop_cache(device: &File) {
    use rustix::fs::{Advice, fadvise};
    fadvise(device, 0, None, Advice::DontNeed).unwrap();
}
