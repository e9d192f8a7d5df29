//! Uses of a volume's data that Orlop did not begin: a loop device that was attached by hand, or a
//! program that writes to the file (decision 0046).
//!
//! Whether the file is open elsewhere is asked of the kernel, which takes the same time however many
//! devices there are. Only if it is, devices are looked through.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use orlop_model::{DeviceAccess, Devices, Error, Result, VolumeId};
use orlop_sys::file::{self, Openers};
use orlop_sys::loopdev::{self, BackedDevice, LoopDevice};

use super::{LoopDevices, ObjectDir, Slots};
use crate::image::failure::cannot;

/// A device that was just detached lets go of its file a moment after it is gone, and a program that
/// was just started has all files of this process open until its own code begins.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// Which devices of others a call cannot go on beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    /// Each device has a cache that knows nothing of the other's, so one that reads is shown stale
    /// blocks, also by a filesystem.
    Any,
    Writing,
}

/// What is to be done to which volume, and the devices that the pool has attached to it.
struct SharingCheck<'a> {
    doing: &'a str,
    id: &'a VolumeId,
    harm: Harm,
    own: &'a [&'a LoopDevice],
}

impl LoopDevices {
    /// Before a volume gets another device, for readers or for writers.
    pub(super) fn check_attachable(
        &self,
        id: &VolumeId,
        access: DeviceAccess,
        slots: &Slots,
    ) -> Result<()> {
        let harm = match access {
            DeviceAccess::ReadWrite => Harm::Any,
            DeviceAccess::ReadOnly => Harm::Writing,
        };
        self.check_unshared(&SharingCheck { doing: "attach", id, harm, own: &slots.devices() })
    }

    /// Before a volume that has no device of the pool any more is moved to the trash.
    pub(in crate::image) fn check_deletable(&self, id: &VolumeId) -> Result<()> {
        // What is missing, or was replaced by something else, has no device.
        if !fs::symlink_metadata(self.data_of(id)).is_ok_and(|data| data.is_file()) {
            return Ok(());
        }
        self.check_unshared(&SharingCheck { doing: "delete", id, harm: Harm::Any, own: &[] })
    }

    /// Before a volume is copied, or changed in its file: writers that Orlop does not know of cannot be
    /// frozen. Those of a volume that the pool has attached are the engine's to freeze.
    pub(in crate::image) fn check_still(&self, doing: &str, id: &VolumeId) -> Result<()> {
        self.check_shows_data(id)?;
        if self.attached(id, DeviceAccess::ReadWrite)?.is_some() {
            return Ok(());
        }
        self.check_unshared(&SharingCheck { doing, id, harm: Harm::Writing, own: &[] })
    }

    fn check_unshared(&self, call: &SharingCheck<'_>) -> Result<()> {
        let data = self.data_of(call.id);
        let looking = || format!("inspect the data of volume {}", call.id);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let openers = file::openers(&data).map_err(cannot(looking))?;
            let is_harmless = match openers {
                Openers::None => true,
                Openers::Readers => call.harm == Harm::Writing,
                Openers::Writers | Openers::Unknown => false,
            };
            if is_harmless {
                return Ok(());
            }
            call.refuse_devices(&data, |file| is_named_as(call.id, file))?;
            if openers != Openers::Writers || call.has_own_writer()? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        // By a hard link, or by a bind mount of the file alone.
        call.refuse_devices(&data, |_| true)?;
        let writer = file::writer(&data).map_err(cannot(looking))?;
        Err(call.refused_for_writer(&data, writer))
    }
}

impl SharingCheck<'_> {
    fn refuse_devices(&self, data: &Path, may_be_it: impl Fn(&Path) -> bool) -> Result<()> {
        let listing = || "list the loop devices".to_owned();
        let found = loopdev::attached_to(data, may_be_it).map_err(cannot(listing))?;
        let is_harmful = |there: &&BackedDevice| match self.harm {
            Harm::Any => true,
            Harm::Writing => !there.read_only,
        };
        let mut foreign = found.iter().filter(|there| !self.own.contains(&&there.device));
        foreign.find(is_harmful).map_or(Ok(()), |there| Err(self.refused_for(&there.device)))
    }

    fn has_own_writer(&self) -> Result<bool> {
        for device in self.own {
            let looking = || format!("inspect {}", device.path().display());
            if loopdev::backing(device)
                .map_err(cannot(looking))?
                .is_some_and(|there| !there.read_only)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn refused_for(&self, device: &LoopDevice) -> Error {
        let Self { doing, id, .. } = self;
        let device = device.path();
        let device = device.display();
        Error::precondition(format!(
            "cannot {doing} volume {id}: {device} is on its data and was not attached by Orlop; \
             unmount what is on {device}, then run 'losetup --detach {device}'"
        ))
    }

    fn refused_for_writer(&self, data: &Path, writer: Option<String>) -> Error {
        let Self { doing, id, .. } = self;
        let data = data.display();
        let writer = writer.unwrap_or_else(|| {
            format!(
                "a process that cannot be seen from here has it open ('fuser -v {data}' as root on \
                 the host may name it)"
            )
        });
        Error::precondition(format!(
            "cannot {doing} volume {id}: its data {data} is being written to by something other than \
             Orlop: {writer}; end that first"
        ))
    }
}

/// As `ID/data`, wherever the pool is mounted, or as `data` in a directory that is not named as one
/// of a volume: the volume's may be mounted by itself.
fn is_named_as(id: &VolumeId, file: &Path) -> bool {
    let directory = file.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    let named: Option<VolumeId> =
        directory.and_then(|name| name.split('.').next()).and_then(|name| name.parse().ok());
    file.file_name().is_some_and(|name| name == ObjectDir::DATA) && named.is_none_or(|it| it == *id)
}

#[cfg(test)]
mod tests;
