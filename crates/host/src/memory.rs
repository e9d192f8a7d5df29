//! A machine of the imagination: mounts, devices and records in maps, for tests without root.
//!
//! It refuses what the kernel would refuse, so that a test which passes here has a chance there:
//! a blank device is not mounted, a taken target is not bound over, a mounted target is not
//! removed. What is copied between devices it cannot know; tests say it with
//! [`MemoryHost::set_signature`].

mod encryption;
mod machine;
mod operation;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use orlop_model::{
    Device, DeviceSignature, Error, FsType, IoLimits, MountState, NodeRecord, Result, TargetPath,
    UnservedDevice, VolumeId,
};

pub use operation::{Op, Operation};

const DEFAULT_DEVICE_SIZE: u64 = 1 << 30;

/// Major and minor number: what a device is to the kernel, whatever its path.
type DeviceNumber = (u32, u32);

pub struct MemoryHost {
    filesystems: Vec<FsType>,
    state: Mutex<MachineState>,
}

#[derive(Default)]
struct MachineState {
    devices: BTreeMap<DeviceNumber, DeviceState>,
    mounts: BTreeMap<TargetPath, MountState>,
    targets: BTreeSet<TargetPath>,
    /// Other mounts, which hide all that is below them.
    covers: BTreeSet<TargetPath>,
    writes: BTreeMap<(u32, u32), u64>,
    groups: BTreeMap<TargetPath, u32>,
    freezes: BTreeMap<TargetPath, Freeze>,
    records: BTreeMap<VolumeId, NodeRecord>,
    unserved: BTreeMap<VolumeId, Vec<UnservedDevice>>,
    /// What the next look at the mount finds.
    failed_writebacks: BTreeMap<TargetPath, String>,
    lost_writes: BTreeMap<VolumeId, String>,
    encrypted: encryption::EncryptedDevices,
    uuids_drawn: u64,
    log: Vec<Operation>,
    failures: Vec<(Op, Error)>,
    interludes: Vec<(Op, Interlude)>,
}

type Interlude = Box<dyn FnOnce() + Send>;

struct DeviceState {
    signature: DeviceSignature,
    size: u64,
    filesystem_size: u64,
    has_given_up: bool,
    errors: u64,
    limits: IoLimits,
}

impl Default for DeviceState {
    fn default() -> Self {
        Self {
            signature: DeviceSignature::Blank,
            size: DEFAULT_DEVICE_SIZE,
            filesystem_size: DEFAULT_DEVICE_SIZE,
            has_given_up: false,
            errors: 0,
            limits: IoLimits::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freeze {
    Holds,
    Expired,
}

impl Default for MemoryHost {
    fn default() -> Self {
        Self::new(FsType::ALL.to_vec())
    }
}

/// What a test sets up and looks at.
impl MemoryHost {
    /// The default filesystem comes first.
    pub fn new(filesystems: Vec<FsType>) -> Self {
        Self { filesystems, state: Mutex::default() }
    }

    /// The next `op` fails so and has no effect. Several for one `op` are met in order.
    pub fn fail_next(&self, op: Op, error: Error) {
        self.lock().failures.push((op, error));
    }

    /// What happens while the next `op` is under way.
    pub fn during_next(&self, op: Op, interlude: impl FnOnce() + Send + 'static) {
        self.lock().interludes.push((op, Box::new(interlude)));
    }

    /// Everything that had an effect, in order; what held already is not in it.
    pub fn log(&self) -> Vec<Operation> {
        self.lock().log.clone()
    }

    pub fn clear_log(&self) {
        self.lock().log.clear();
    }

    pub fn count(&self, op: Op) -> usize {
        self.lock().log.iter().filter(|done| done.op == op).count()
    }

    pub fn set_signature(&self, device: &Device, signature: DeviceSignature) {
        self.lock().device(device).signature = signature;
    }

    /// As a workload would.
    pub fn write_to(&self, device: &Device) {
        *self.lock().writes.entry((device.major, device.minor)).or_default() += 1;
    }

    pub fn set_device_size(&self, device: &Device, bytes: u64) {
        self.lock().device(device).size = bytes;
    }

    /// How much of its device a filesystem fills: less, if the device grew since.
    pub fn filesystem_size(&self, device: &Device) -> u64 {
        self.lock().device(device).filesystem_size
    }

    pub fn limits(&self, device: &Device) -> IoLimits {
        self.lock().device(device).limits
    }

    /// As after an I/O error: every mount of the device refuses writes.
    pub fn turn_filesystem_read_only(&self, device: &Device) {
        for mounted in self.lock().mounts.values_mut() {
            mounted.filesystem_read_only |= mounted.is_of(device);
        }
    }

    /// As ext4 does after an I/O error since Linux 6.15: its mounts look as before.
    pub fn let_filesystem_give_up(&self, device: &Device) {
        self.lock().device(device).has_given_up = true;
    }

    pub fn count_filesystem_error(&self, device: &Device) {
        self.lock().device(device).errors += 1;
    }

    /// The kernel has accepted writes there that it could not write back, and says so once.
    pub fn lose_writes(&self, mount: &TargetPath, reason: &str) {
        self.lock().failed_writebacks.insert(mount.clone(), reason.to_owned());
    }

    pub fn mounts(&self) -> Vec<TargetPath> {
        self.lock().mounts.keys().cloned().collect()
    }

    /// Mounts something else on a directory, which hides all that is below.
    pub fn cover(&self, directory: &TargetPath) {
        self.lock().covers.insert(directory.clone());
    }

    pub fn uncover(&self, directory: &TargetPath) {
        self.lock().covers.remove(directory);
    }

    /// What the machine knows of the devices of a volume whose pool is not in service. Nothing at
    /// first, as of a pool whose devices it alone knows.
    pub fn know_devices_of(&self, id: &VolumeId, devices: Vec<UnservedDevice>) {
        self.lock().unserved.insert(id.clone(), devices);
    }

    /// Does the file or directory that a mount stands on exist?
    pub fn has_target(&self, path: &TargetPath) -> bool {
        self.lock().targets.contains(path)
    }

    pub fn group(&self, root: &TargetPath) -> Option<u32> {
        self.lock().groups.get(root).copied()
    }

    pub fn is_frozen(&self, mount: &TargetPath) -> bool {
        self.lock().freezes.get(mount) == Some(&Freeze::Holds)
    }

    /// As if every freeze had lasted too long.
    pub fn expire_freezes(&self) {
        for freeze in self.lock().freezes.values_mut() {
            *freeze = Freeze::Expired;
        }
    }

    /// What is on devices and what stands in directories stays; all else is gone.
    pub fn reboot(&self) {
        let mut state = self.lock();
        state.mounts.clear();
        state.covers.clear();
        state.freezes.clear();
        state.records.clear();
        state.encrypted.close_all();
        for device in state.devices.values_mut() {
            device.limits = IoLimits::default();
            device.has_given_up = false;
        }
    }

    fn lock(&self) -> MutexGuard<'_, MachineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, unless a test wants this operation to fail.
    fn attempt(&self, op: Op) -> Result<MutexGuard<'_, MachineState>> {
        let mut state = self.lock();
        if let Some(index) = state.interludes.iter().position(|(during, _)| *during == op) {
            let (_, happen) = state.interludes.remove(index);
            drop(state);
            happen();
            state = self.lock();
        }
        match state.failures.iter().position(|(failing, _)| *failing == op) {
            Some(index) => Err(state.failures.remove(index).1),
            None => Ok(state),
        }
    }
}

impl MachineState {
    fn device(&mut self, device: &Device) -> &mut DeviceState {
        self.devices.entry((device.major, device.minor)).or_default()
    }

    fn done(&mut self, op: Op, on: impl Into<String>) {
        self.log.push(Operation { op, on: on.into() });
    }

    fn is_covered(&self, path: &TargetPath) -> bool {
        let hides =
            |cover: &TargetPath| cover != path && path.as_path().starts_with(cover.as_path());
        self.covers.iter().any(hides)
    }

    fn is_mounted(&self, device: &Device) -> bool {
        self.mounts.values().any(|there| there.is_of(device) && !there.is_device_node)
    }
}
