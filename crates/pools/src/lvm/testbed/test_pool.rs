//! A pool in a thin pool of real LVM, for tests in the guest of tests/guest.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use orlop_model::{
    Catalogue, Consistency, ContentSource, DeviceAccess, Devices, FormatState, GroupSnapshotId,
    NameDigest, NewGroupSnapshot, NewSnapshot, NewVolume, Provisioner, Result, SnapshotId,
    SnapshotRecord, VolumeId, VolumeParameters, VolumeRecord,
};

use super::{MIB, Testbed, volume};
use crate::lvm::LvmPool;
use crate::lvm::provisioner::LvmProvisioner;

pub(in crate::lvm) struct TestPool {
    pub(in crate::lvm) opened: LvmPool,
    /// The last field: the pool is in it.
    pub(in crate::lvm) bed: Testbed,
}

/// Also after a panic: the volume group cannot be removed while its volumes are attached.
impl Drop for TestPool {
    fn drop(&mut self) {
        for (id, _) in self.opened.catalogue.volumes(None, 0).unwrap() {
            let _ = self.opened.devices.ensure_no_device(&id);
        }
    }
}

impl TestPool {
    pub(in crate::lvm) fn new(size: u64) -> Option<Self> {
        let bed = Testbed::with_devices(1)?;
        bed.create_thin_pool("tp", size);
        Some(Self { opened: LvmPool::open(bed.config(true)).unwrap(), bed })
    }

    /// As the next daemon does.
    pub(in crate::lvm) fn reopen(mut self) -> Self {
        self.opened.close();
        self.opened = LvmPool::open(self.bed.config(false)).unwrap();
        self
    }

    pub(in crate::lvm) fn provisioner(&self) -> &LvmProvisioner {
        &self.opened.provisioner
    }

    pub(in crate::lvm) fn volume_id(&self, name: &str) -> VolumeId {
        VolumeId::new(self.opened.info.id.clone(), NameDigest::of_text(name))
    }

    pub(in crate::lvm) fn snapshot_id(&self, name: &str) -> SnapshotId {
        SnapshotId::new(self.opened.info.id.clone(), NameDigest::of_text(name))
    }

    pub(in crate::lvm) fn new_volume(
        &self,
        name: &str,
        capacity_bytes: u64,
        source: Option<ContentSource>,
    ) -> NewVolume {
        let model = volume(name);
        NewVolume {
            id: self.volume_id(name),
            name: model.name,
            capacity_bytes,
            capabilities: model.capabilities,
            parameters: VolumeParameters::default(),
            limits: model.limits,
            source,
            format: FormatState::Raw,
            encryption: None,
            filesystem: None,
            ephemeral: false,
        }
    }

    pub(in crate::lvm) fn create(&self, name: &str, bytes: u64) -> VolumeRecord {
        let new = self.new_volume(name, bytes, None);
        self.provisioner().begin_volume(&new).unwrap().commit().unwrap()
    }

    pub(in crate::lvm) fn copy(
        &self,
        name: &str,
        bytes: u64,
        source: ContentSource,
    ) -> Result<VolumeRecord> {
        self.provisioner().begin_volume(&self.new_volume(name, bytes, Some(source)))?.commit()
    }

    pub(in crate::lvm) fn new_snapshot(&self, name: &str, source: &VolumeRecord) -> NewSnapshot {
        NewSnapshot {
            id: self.snapshot_id(name),
            name: name.parse().unwrap(),
            source: source.clone(),
            format: FormatState::Raw,
            consistency: Consistency::Crash,
        }
    }

    pub(in crate::lvm) fn snapshot(
        &self,
        name: &str,
        source: &VolumeRecord,
    ) -> Result<SnapshotRecord> {
        self.provisioner().begin_snapshot(&self.new_snapshot(name, source))?.commit()
    }

    pub(in crate::lvm) fn new_group(
        &self,
        name: &str,
        sources: &[&VolumeRecord],
    ) -> NewGroupSnapshot {
        let member =
            |source: &&VolumeRecord| self.new_snapshot(&format!("{name} of {}", source.id), source);
        NewGroupSnapshot {
            id: GroupSnapshotId::new(self.opened.info.id.clone(), NameDigest::of_text(name)),
            name: name.parse().unwrap(),
            members: sources.iter().map(member).collect(),
            pools: Default::default(),
        }
    }

    pub(in crate::lvm) fn attach(&self, id: &VolumeId) -> PathBuf {
        self.opened.devices.ensure_attached(id, DeviceAccess::ReadWrite).unwrap().path
    }

    pub(in crate::lvm) fn detach(&self, id: &VolumeId) {
        self.opened.devices.ensure_detached(id, DeviceAccess::ReadWrite).unwrap();
    }

    /// It stays attached.
    pub(in crate::lvm) fn write(&self, id: &VolumeId, byte: u8) {
        let device = File::options().write(true).open(self.attach(id)).unwrap();
        device.write_all_at(&[byte; 4096], MIB).unwrap();
        device.sync_all().unwrap();
    }

    pub(in crate::lvm) fn read(&self, id: &VolumeId) -> u8 {
        let mut bytes = [0; 4096];
        File::open(self.attach(id)).unwrap().read_exact_at(&mut bytes, MIB).unwrap();
        self.detach(id);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        bytes[0]
    }

    /// What a volume holds that is made from it.
    pub(in crate::lvm) fn read_snapshot(&self, id: &SnapshotId) -> u8 {
        let source = ContentSource::Snapshot(id.clone());
        let copy = self.copy("reads", 64 * MIB, source).unwrap();
        let byte = self.read(&copy.id);
        self.provisioner().ensure_no_volume(&copy.id).unwrap();
        byte
    }

    pub(in crate::lvm) fn lv_names(&self) -> Vec<String> {
        let report = self.opened.lvm.report().unwrap();
        report.volumes.iter().map(|lv| lv.name.clone()).filter(|name| name != "tp").collect()
    }
}
