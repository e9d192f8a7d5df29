//! Uses of a volume's or a snapshot's data that Orlop did not begin, before calls that they would harm or
//! that would harm them: a loop device that was attached by hand, or a program that writes to the file
//! (decision 0046).
//!
//! Whether the file is open elsewhere is asked of the kernel, which takes the same time however many
//! devices there are. Only if it is, devices are looked through.

use std::fs;
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, Instant};

use orlop_model::{DeviceAccess, Devices, Error, Result, SnapshotId, VolumeId};
use orlop_sys::file::{self, Openers};
use orlop_sys::loopdev::{self, BackedDevice, LoopDevice};
use orlop_sys::rand::random_bytes;

use super::{LoopDevices, ObjectDir, Slots};
use crate::image::failure::cannot;
use crate::image::layout::TEMPLATE;

/// The kernel closes the file of a loop device a moment after the device is detached, and a program that
/// was just started has all files of this process open until its own code begins.
pub(in crate::image) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
pub(in crate::image) const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl LoopDevices {
    /// Before a volume whose data is open already gets another device, for readers or for writers.
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
        self.check_volume("attach", id, harm, &slots.devices())
    }

    /// Before a volume that has no device of the pool any more is moved to the trash.
    pub(in crate::image) fn check_deletable(&self, id: &VolumeId) -> Result<()> {
        // What is missing, or was replaced by something else, has no device.
        if !fs::symlink_metadata(self.data_of(id)).is_ok_and(|data| data.is_file()) {
            return Ok(());
        }
        self.check_volume("delete", id, Harm::Any, &[])
    }

    /// Before a volume is copied, or changed in its file: writers that Orlop does not know of cannot be
    /// frozen. Those of a volume that the pool has attached are the engine's to freeze.
    pub(in crate::image) fn check_still(&self, doing: &str, id: &VolumeId) -> Result<()> {
        self.check_shows_data(id)?;
        if self.attached(id, DeviceAccess::ReadWrite)?.is_some() {
            return Ok(());
        }
        self.check_volume(doing, id, Harm::Writing, &[])
    }

    /// Before a volume is restored from a snapshot, which the pool attaches to no device.
    pub(in crate::image) fn check_snapshot_still(&self, id: &SnapshotId) -> Result<()> {
        let check = SharingCheck {
            doing: "copy",
            object: &format!("snapshot {id}"),
            data: &self.catalogue.snapshot_index().directory_of(id).data(),
            harm: Harm::Writing,
            own: &[],
            reports_openers: self.directory.reports_openers(),
        };
        check.run(|file| is_named_as(&id.to_string(), file))
    }

    fn check_volume(
        &self,
        doing: &str,
        id: &VolumeId,
        harm: Harm,
        own: &[&LoopDevice],
    ) -> Result<()> {
        let check = SharingCheck {
            doing,
            object: &format!("volume {id}"),
            data: &self.data_of(id),
            harm,
            own,
            reports_openers: self.directory.reports_openers(),
        };
        check.run(|file| is_named_as(&id.to_string(), file))
    }
}

/// As `ID/data`, wherever the pool is mounted, or as `data` in a directory that is not named as one
/// of a volume or snapshot: that of the data may be mounted by itself.
fn is_named_as(id: &str, file: &Path) -> bool {
    let directory = file.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    let named = directory
        .and_then(|name| name.split('.').next())
        .filter(|name| name.parse::<VolumeId>().is_ok() || name.parse::<SnapshotId>().is_ok());
    file.file_name().is_some_and(|name| name == ObjectDir::DATA) && named.is_none_or(|it| it == id)
}

/// Which devices of others a call cannot go on beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::image) enum Harm {
    /// Each device has a cache that knows nothing of the other's, so one that reads is shown stale
    /// blocks, also by a filesystem.
    Any,
    Writing,
}

/// What is to be done to which object, and the devices that the pool has attached to its data.
pub(in crate::image) struct SharingCheck<'a> {
    pub(in crate::image) doing: &'a str,
    /// With its kind, such as `volume ID`.
    pub(in crate::image) object: &'a str,
    pub(in crate::image) data: &'a Path,
    pub(in crate::image) harm: Harm,
    pub(in crate::image) own: &'a [&'a LoopDevice],
    /// Whether leases tell who has the data open, see [`reports_openers`].
    pub(in crate::image) reports_openers: bool,
}

impl SharingCheck<'_> {
    /// `may_be_it`: is a path that sysfs shows one that the data is likely to have?
    pub(in crate::image) fn run(&self, may_be_it: impl Fn(&Path) -> bool) -> Result<()> {
        let looking = || format!("inspect the data of {}", self.object);
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        loop {
            match self.openers()? {
                Openers::None => return Ok(()),
                Openers::Readers if self.harm == Harm::Writing => return Ok(()),
                Openers::Readers => return self.refuse_devices(&may_be_it),
                // Then the devices are all there is to look at.
                Openers::Unknown => return self.refuse_devices(|_| true),
                Openers::Writers => {
                    self.refuse_devices(&may_be_it)?;
                    if self.has_own_writer()? {
                        return Ok(());
                    }
                }
            }
            if Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        // By a hard link, or by a bind mount of the file alone.
        self.refuse_devices(|_| true)?;
        let writer = file::writer(self.data).map_err(cannot(looking))?;
        Err(self.refused_for_writer(writer))
    }

    fn openers(&self) -> Result<Openers> {
        if !self.reports_openers {
            return Ok(Openers::Unknown);
        }
        let looking = || format!("inspect the data of {}", self.object);
        let openers = file::openers(self.data).map_err(cannot(looking))?;
        if openers == Openers::Unknown {
            warn_of_unknown(self.object);
        }
        Ok(openers)
    }

    fn refuse_devices(&self, may_be_it: impl Fn(&Path) -> bool) -> Result<()> {
        let listing = || "list the loop devices".to_owned();
        let found = loopdev::attached_to(self.data, may_be_it).map_err(cannot(listing))?;
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
        let Self { doing, object, .. } = self;
        let device = device.path();
        let device = device.display();
        Error::precondition(format!(
            "cannot {doing} {object}: {device}, which Orlop did not attach, uses its data; \
             unmount what is on {device}, then run 'losetup --detach {device}'"
        ))
    }

    fn refused_for_writer(&self, writer: Option<String>) -> Error {
        let Self { doing, object, .. } = self;
        let data = self.data.display();
        let writer = writer.unwrap_or_else(|| unseen(self.data));
        Error::precondition(format!(
            "cannot {doing} {object}: its data {data} is being written to by something other than \
             Orlop: {writer}; end that first"
        ))
    }
}

pub(in crate::image) fn unseen(data: &Path) -> String {
    format!(
        "a process that this daemon cannot see has it open ('fuser -v {}' as root on the host \
         may name it)",
        data.display()
    )
}

/// The kernel tells only the owner of a file, or a process with CAP_LEASE, whether it is open.
fn warn_of_unknown(object: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::warn!(
            object,
            "cannot tell whether another process has the data open; only loop devices are detected. \
             Make the daemon's user the owner of the file, or give the daemon CAP_LEASE. Logged once"
        );
    });
}

/// Do leases tell whether a file of this filesystem is open? Tested with a new file in `staging` that
/// nothing has open: if the filesystem says that it is open, its answers about other files mean nothing.
/// A pool that is full or read-only cannot be tested, and is assumed to tell.
pub(in crate::image) fn reports_openers(staging: &Path) -> bool {
    let random = random_bytes().map(u64::from_be_bytes);
    // Its name makes the next start remove it if this process ends here.
    let trial = random.map(|number| staging.join(format!("{TEMPLATE}.{number}")));
    match trial.and_then(|trial| file::reports_openers(&trial)) {
        Ok(true) => true,
        Ok(false) => {
            tracing::warn!(
                directory = %staging.display(),
                "this filesystem does not report which files are open: other processes that use \
                 the data of a volume are not detected, only loop devices are"
            );
            false
        }
        Err(error) => {
            tracing::debug!(%error, "cannot test whether the filesystem reports which files are \
                                     open");
            true
        }
    }
}

#[cfg(test)]
mod tests;
