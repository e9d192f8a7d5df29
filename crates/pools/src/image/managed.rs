//! A pool in a separate filesystem: a sparse XFS image, for hosts whose filesystem cannot share
//! extents.
//!
//! The image is made under a temporary name and renamed, so that it is never half-formatted. Its
//! device and its mount stay when the daemon dies, for the volumes in it are in use; the next
//! start finds them by the kernel's word.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use orlop_model::{ALLOCATION_UNIT, Error, FsType, FsUuid, PoolId, Result};
use orlop_sys::extents::extents;
use orlop_sys::file::{self, BackingKind, FileAccess, Space};
use orlop_sys::filesystem::{self, Format, FsKind, ThawOutcome};
use orlop_sys::loopdev::{self, AttachOptions, LoopDevice};
use orlop_sys::mounts::{self, FsMount};
use orlop_sys::rand::random_bytes;
use orlop_sys::thaw_helper::{HelperCommand, ThawHelper};

use super::failure::cannot;
use super::layout::ensure_private_directory;

mod image_devices;

use image_devices::find_own_device;
pub(super) use image_devices::foreign_devices;

mod lost_image;

pub(super) use lost_image::{check_not_lost, finding as finding_of_image, steps_to_save};

pub(super) const IMAGE: &str = "pool.xfs";
const MOUNT_POINT: &str = "mnt";

#[derive(Debug)]
pub(super) struct Managed {
    /// The directory that the image lies in.
    around: PathBuf,
    /// Device and inode of `around`.
    around_inode: (u64, u64),
    mount_point: PathBuf,
    device: LoopDevice,
    label: String,
    /// The image has each of its blocks, and nothing gives them back.
    reserved: AtomicBool,
    /// Whether the loss of the image was logged.
    loss_logged: AtomicBool,
}

pub(super) fn image_in(root: &Path) -> PathBuf {
    root.join(IMAGE)
}

pub(super) fn mount_point_in(root: &Path) -> PathBuf {
    root.join(MOUNT_POINT)
}

/// Makes the image if there is none.
pub(super) fn ensure_image(root: &Path, staging: &Path, bytes: u64) -> Result<()> {
    let image = image_in(root);
    if image.exists() {
        return Ok(());
    }
    if bytes < FsType::Xfs.smallest_volume() {
        return Err(Error::invalid(
            "managed_size",
            format!("XFS needs at least {} bytes", FsType::Xfs.smallest_volume()),
        ));
    }
    let making = || format!("make the pool's image {}", image.display());
    let random: [u8; 4] = random_bytes().map_err(cannot(making))?;
    let draft = staging.join(format!("{IMAGE}.{:08x}", u32::from_be_bytes(random)));
    let made = format_image(&draft, bytes / ALLOCATION_UNIT * ALLOCATION_UNIT)
        .and_then(|()| file::rename_new(&draft, &image).map_err(cannot(making)));
    if let Err(error) = file::remove_tree(&draft) {
        tracing::warn!(%error, "cannot remove an unfinished pool image before the next start");
    }
    // If one was there by now, another process made it and will have the pool's lock as well.
    made.map(|_| ())
}

fn format_image(path: &Path, bytes: u64) -> Result<()> {
    let formatting = || format!("format {}", path.display());
    let image = file::create_file(path).map_err(cannot(formatting))?;
    file::set_length(&image, bytes).map_err(cannot(formatting))?;
    let format = Format {
        kind: FsKind::Xfs,
        uuid: FsUuid::from_random(random_bytes().map_err(cannot(formatting))?).bytes(),
        extra_options: &[],
    };
    filesystem::format(path, &format).map_err(cannot(formatting))
}

impl Managed {
    /// Attaches and mounts the image as far as it is not, and lets it grow to `bytes`.
    pub(super) fn open(root: &Path, pool: &PoolId, bytes: Option<u64>) -> Result<Self> {
        check_not_lost(root, pool)?;
        let image = image_in(root);
        let opening = || format!("open the pool's image {}", image.display());
        let label = label_of(pool);
        // Before anything is changed: it may be in use by hand.
        let own = find_own_device(root, &label)?;
        grow_image(&image, bytes)?;
        let size = image.metadata().map_err(cannot(opening))?.len();
        let around = root.metadata().map_err(cannot(opening))?;
        let is_new = own.is_none();
        let device = match own {
            Some(device) => {
                // The image may have grown since.
                loopdev::refresh_size(&device, &image, size).map_err(cannot(opening))?;
                device
            }
            None => {
                let options = AttachOptions { label: &label, read_only: false, size };
                loopdev::attach(&image, &options).map_err(cannot(opening))?
            }
        };
        let managed = Self {
            around: root.to_owned(),
            around_inode: (around.dev(), around.ino()),
            mount_point: mount_point_in(root),
            device,
            label,
            reserved: AtomicBool::new(false),
            loss_logged: AtomicBool::new(false),
        };
        match managed.make_usable() {
            Ok(()) => Ok(managed),
            Err(error) => {
                if is_new {
                    managed.take_back();
                }
                Err(error)
            }
        }
    }

    fn make_usable(&self) -> Result<()> {
        // Before it is mounted: recovery of its journal discards, too.
        self.keep_if_reserved()?;
        self.ensure_mounted()?;
        // Also without a change of the size: a crash may have come between file and filesystem.
        filesystem::grow_mounted(self.root(), &self.device.path(), FsKind::Xfs).map_err(cannot(
            || format!("open the pool's image {}", image_in(&self.around).display()),
        ))
    }

    /// What a start that fails has attached, and no more: something else may be mounted there.
    fn take_back(&self) {
        let number = self.device.device_number().ok();
        let there = mounts::mount_at(&self.mount_point).ok().flatten();
        if there.is_some_and(|there| Some((there.major, there.minor)) == number) {
            return self.close();
        }
        if let Err(error) = loopdev::ensure_detached(&self.device, &self.label) {
            tracing::warn!(%error, "cannot detach the pool's image; the next start uses it as it is");
        }
    }

    /// Freezes the pool, with all volumes in it, until its journal is written.
    pub(super) fn ensure_growth_written(&self, helper: Option<HelperCommand>) -> Result<()> {
        let writing = || {
            format!(
                "write the new size of the filesystem at {} to disk",
                self.mount_point.display()
            )
        };
        let root = self.root();
        if filesystem::growth_is_written(root, &self.device.path(), FsKind::Xfs)
            .map_err(cannot(writing))?
        {
            return Ok(());
        }
        // However this ends, the helper thaws when it is dropped; if the helper was killed as well, the next
        // start thaws.
        let helper = helper.map(ThawHelper::new);
        if let Some(Err(error)) = helper.as_ref().map(|helper| helper.register(root)) {
            tracing::warn!(%error, "no thaw helper while the pool's image is written back");
        }
        filesystem::freeze(root).map_err(cannot(writing))?;
        filesystem::ensure_thawed(root).map_err(cannot(writing)).map(drop)
    }

    /// The root of the filesystem in the image.
    pub(super) fn root(&self) -> &Path {
        &self.mount_point
    }

    /// The space of the disk that holds a sparse image; `None`: the image has all its blocks.
    pub(super) fn space_around(&self) -> orlop_sys::Result<Option<Space>> {
        match self.is_reserved() {
            true => Ok(None),
            false => file::space(&self.around).map(Some),
        }
    }

    pub(super) fn is_reserved(&self) -> bool {
        self.reserved.load(Ordering::Relaxed)
    }

    /// An image that was reserved (`fallocate`) stays so: neither the filesystem in it nor fstrim gives
    /// blocks back to the disk around it from now on.
    fn keep_if_reserved(&self) -> Result<bool> {
        let image = image_in(&self.around);
        let keeping =
            || format!("keep the allocated blocks of the pool's image {}", image.display());
        if self.is_reserved() {
            return Ok(true);
        }
        if !has_all_blocks(&image)? {
            return Ok(false);
        }
        loopdev::disable_discard(&self.device).map_err(cannot(keeping))?;
        // Something may have been given back just before.
        let reserved = has_all_blocks(&image)?;
        self.reserved.store(reserved, Ordering::Relaxed);
        Ok(reserved)
    }

    /// A thick volume takes no ENOSPC. In a sparse image it would, and the filesystem in the image would
    /// fail with it, as soon as the disk around is full.
    pub(super) fn check_thick(&self, pool: &str) -> Result<()> {
        if self.keep_if_reserved()? {
            return Ok(());
        }
        let image = image_in(&self.around);
        let measuring = || format!("read the size of {}", image.display());
        let bytes = image.metadata().map_err(cannot(measuring))?.len();
        let mended = match file::backing_kind(&self.around).map_err(cannot(measuring))? {
            // Whatever is reserved, btrfs needs new blocks to overwrite.
            BackingKind::Btrfs => "use a plain pool on this btrfs, or thin volumes".to_owned(),
            BackingKind::Xfs
            | BackingKind::Ext4
            | BackingKind::Tmpfs
            | BackingKind::Overlay
            | BackingKind::Other => format!(
                "reserve it with `fallocate -l {bytes} {}`, or use a plain pool or thin volumes",
                image.display()
            ),
        };
        Err(Error::exhausted(format!(
            "cannot make or grow a thick volume in pool {pool}: its image {} is sparse, and \
             overwriting would fail when the disk that holds it is full; {mended}",
            image.display()
        )))
    }

    fn ensure_mounted(&self) -> Result<()> {
        let target = &self.mount_point;
        let device = self.device.path();
        let mounting = || format!("mount the pool's image at {}", target.display());
        if let Some(there) = mounts::mount_at(target).map_err(cannot(mounting))? {
            let number = self.device.device_number().map_err(cannot(mounting))?;
            if (there.major, there.minor) == number {
                return ensure_thawed(target);
            }
            return Err(Error::failed(
                mounting(),
                format!("{} is mounted there; unmount it", there.source),
            ));
        }
        ensure_private_directory(target)?;
        // nouuid: a copy of the pool's directory may be open beside it. discard: what is deleted
        // in the image shall be free around it.
        let options = ["noatime", "nouuid", "discard"].map(str::to_owned);
        let mount = FsMount {
            device: &device,
            fs_type: FsKind::Xfs.as_str(),
            options: &options,
            read_only: false,
        };
        mounts::mount_filesystem(&mount, target).map_err(cannot(mounting))
    }

    /// Gives the image back, if nothing in it is in use. Otherwise it stays for the next start.
    pub(super) fn close(&self) {
        if self.stays_for_its_data() {
            return;
        }
        let closed = mounts::ensure_unmounted(&self.mount_point)
            .inspect(|()| drop_copies(&self.mount_point))
            .and_then(|()| loopdev::ensure_detached(&self.device, &self.label));
        match closed {
            Ok(()) => {}
            Err(error) if error.is_busy() => {
                tracing::info!(
                    at = %self.mount_point.display(),
                    "the pool's image stays mounted: volumes in it are in use"
                );
            }
            Err(error) => tracing::warn!(
                at = %self.mount_point.display(),
                %error,
                "cannot unmount the pool's image; the next start uses it as it is"
            ),
        }
    }
}

/// Other mount namespaces may have copies of the mount, which would keep the image attached.
fn drop_copies(mount_point: &Path) {
    if let Err(error) = mounts::replace_mount_point(mount_point) {
        tracing::debug!(
            %error,
            "cannot remove copies of the pool's mount in other mount namespaces"
        );
    }
}

/// Only the daemon that holds the pool's lock freezes it. This daemon holds the lock now, so the one
/// that froze it has ended.
fn ensure_thawed(mount_point: &Path) -> Result<()> {
    let thawing = || format!("thaw the pool's image at {}", mount_point.display());
    match filesystem::ensure_thawed(mount_point).map_err(cannot(thawing))? {
        ThawOutcome::Thawed => tracing::warn!(
            at = %mount_point.display(),
            "thawed the pool's image, which was left frozen"
        ),
        ThawOutcome::WasNotFrozen => {}
    }
    Ok(())
}

const LABEL: &str = "orlop-pool-";

fn label_of(pool: &PoolId) -> String {
    format!("{LABEL}{pool}")
}

/// The pool that a device with this label is of, as its image.
pub(super) fn pool_of_label(label: &str) -> Option<PoolId> {
    label.strip_prefix(LABEL)?.parse().ok()
}

pub(super) fn has_all_blocks(image: &Path) -> Result<bool> {
    let looking = || format!("find holes in the pool's image {}", image.display());
    let file = file::open_regular(image, FileAccess::Read).map_err(cannot(looking))?;
    let length = file.metadata().map_err(cannot(looking))?.len();
    let is_on_btrfs = file::backing_kind(image).map_err(cannot(looking))? == BackingKind::Btrfs;
    if is_on_btrfs && !file::is_overwritten_in_place(&file).map_err(cannot(looking))? {
        return Ok(false);
    }
    let mut reached = 0;
    for extent in extents(file, 0) {
        // A filesystem that does not tell may have holes.
        let Ok(extent) = extent else { return Ok(false) };
        if extent.logical > reached {
            return Ok(false);
        }
        reached = extent.end();
    }
    Ok(reached >= length)
}

fn grow_image(image: &Path, bytes: Option<u64>) -> Result<()> {
    let growing = || format!("grow the pool's image {}", image.display());
    let Some(wanted) = bytes else {
        return Ok(());
    };
    let wanted = wanted / ALLOCATION_UNIT * ALLOCATION_UNIT;
    let data = file::open_regular(image, FileAccess::ReadWrite).map_err(cannot(growing))?;
    let present = data.metadata().map_err(cannot(growing))?.len();
    if wanted < present {
        tracing::warn!(
            image = %image.display(),
            present,
            wanted,
            "the pool's image keeps its size: XFS does not shrink"
        );
    }
    if wanted <= present {
        return Ok(());
    }
    file::set_length(&data, wanted).map_err(cannot(growing))?;
    file::sync_file(&data).map_err(cannot(growing))?;
    tracing::info!(image = %image.display(), before = present, now = wanted, "enlarged the pool's image");
    Ok(())
}

#[cfg(test)]
mod tests;
