//! What is on a device, making it, mending it, and letting it fill its device.

use orlop_model::{
    Device, DeviceSignature, Error, FsType, FsUuid, HostFilesystems, Reason, Result, TargetPath,
    Usage,
};
use orlop_sys::filesystem::{self as fs, Format, FsKind, Signature};
use orlop_sys::{file, rand};
use rustix::io::Errno;

use super::LinuxHost;
use super::failure::cannot;
use super::mounting::mount_at;

pub(super) fn kind_of(fs: FsType) -> FsKind {
    match fs {
        FsType::Ext4 => FsKind::Ext4,
        FsType::Xfs => FsKind::Xfs,
        FsType::Btrfs => FsKind::Btrfs,
    }
}

pub(super) fn type_of(kind: FsKind) -> FsType {
    match kind {
        FsKind::Ext4 => FsType::Ext4,
        FsKind::Xfs => FsType::Xfs,
        FsKind::Btrfs => FsType::Btrfs,
    }
}

impl HostFilesystems for LinuxHost {
    fn filesystems(&self) -> &[FsType] {
        self.fs_tools.filesystems()
    }

    fn check_health(&self) -> Result<()> {
        self.fs_tools.check_tools()
    }

    fn random_uuid(&self) -> Result<FsUuid> {
        let bytes = rand::random_bytes().map_err(cannot("generate a UUID"))?;
        Ok(FsUuid::from_random(bytes))
    }

    fn signature(&self, device: &Device) -> Result<DeviceSignature> {
        signature(device)
    }

    fn format(&self, device: &Device, fs: FsType, uuid: FsUuid, options: &[String]) -> Result<()> {
        let doing = format!("format {} as {fs}", device.path.display());
        let wanted = Format { kind: kind_of(fs), uuid: uuid.bytes(), extra_options: options };
        fs::format(&device.path, &wanted).map_err(|failure| {
            if options.is_empty() || !is_refusal(&failure) {
                return cannot(&doing)(failure);
            }
            let advice = "create the volume again with other mkfsOptions";
            Error::precondition(format!("cannot {doing}: {failure}; {advice}"))
        })?;
        check_identity(device, fs, uuid, &doing)
    }

    fn check_filesystem(&self, device: &Device, fs: FsType) -> Result<()> {
        match fs {
            FsType::Ext4 => {
                fs::check_ext4(&device.path).map_err(cannot("check the ext4 filesystem"))
            }
            // These mend themselves from their log when they are mounted.
            FsType::Xfs | FsType::Btrfs => Ok(()),
        }
    }

    fn renew_uuid(&self, device: &Device, fs: FsType, uuid: FsUuid) -> Result<()> {
        match fs {
            // The kernel takes two btrfs devices of one UUID for one filesystem.
            FsType::Btrfs => renew_btrfs_uuid(device, uuid),
            // ext4 does not care, and XFS is mounted with nouuid.
            FsType::Ext4 | FsType::Xfs => Ok(()),
        }
    }

    fn unmounted_growth(
        &self,
        device: &Device,
        fs: FsType,
        was_interrupted: bool,
    ) -> Result<Option<u64>> {
        let bytes = match fs {
            FsType::Ext4 if was_interrupted => fs::ext4_regrowth_bytes(&device.path).map(Some),
            FsType::Ext4 => fs::ext4_growth_bytes(&device.path),
            FsType::Xfs | FsType::Btrfs => Ok(None),
        };
        bytes.map_err(cannot("compare the ext4 filesystem with its device"))
    }

    fn check_before_growth(&self, device: &Device, fs: FsType) -> Result<()> {
        match fs {
            FsType::Ext4 => fs::check_ext4_fully(&device.path)
                .map_err(cannot("check the ext4 filesystem before growing it")),
            FsType::Xfs | FsType::Btrfs => Ok(()),
        }
    }

    fn repair_interrupted_growth(&self, device: &Device, fs: FsType) -> Result<()> {
        match fs {
            FsType::Ext4 => fs::repair_ext4(&device.path)
                .map_err(cannot("repair the ext4 filesystem whose growth was interrupted")),
            FsType::Xfs | FsType::Btrfs => Ok(()),
        }
    }

    fn ensure_grown_unmounted(&self, device: &Device, fs: FsType) -> Result<()> {
        const DOING: &str = "grow ext4 before mounting it";
        match fs {
            // Grown when mounted needs CAP_SYS_RESOURCE; grown now needs nothing.
            FsType::Ext4 => match fs::ext4_spans_device(&device.path).map_err(cannot(DOING))? {
                true => Ok(()),
                false => fs::grow_ext4_unmounted(&device.path).map_err(cannot(DOING)),
            },
            FsType::Xfs | FsType::Btrfs => Ok(()),
        }
    }

    fn ensure_grown_mounted(&self, device: &Device, fs: FsType, at: &TargetPath) -> Result<()> {
        // Growing goes by path: where the volume is not mounted, it would reach the filesystem that
        // holds the empty directory.
        if !mount_at(at)?.is_some_and(|there| there.is_of(device) && !there.is_device_node) {
            return Err(Error::precondition(format!(
                "cannot grow the filesystem at {at}: the volume is not mounted there; stage it again"
            )));
        }
        let doing = format!("grow the {fs} at {at}");
        let (mount_point, kind) = (at.as_path(), kind_of(fs));
        fs::grow_mounted(mount_point, &device.path, kind).map_err(|failure| {
            let forbidden = failure.errno() == Some(Errno::PERM);
            match forbidden && fs == FsType::Ext4 {
                true => Error::precondition(Reason::explained(
                    format!(
                        "cannot {doing}: growing a mounted ext4 needs CAP_SYS_RESOURCE; it will be \
                         grown when the volume is staged next"
                    ),
                    failure,
                )),
                false => cannot(&doing)(failure),
            }
        })?;
        // Asked also where nothing had to grow: an earlier call may have ended in between.
        if fs::growth_is_written(mount_point, &device.path, kind).map_err(cannot(&doing))? {
            return Ok(());
        }
        self.freezer.freeze(at)?;
        self.freezer.ensure_thawed(at).map(drop)
    }

    fn usage(&self, path: &TargetPath) -> Result<Usage> {
        let space =
            file::space(path.as_path()).map_err(cannot("read the space of a filesystem"))?;
        Ok(Usage {
            total_bytes: space.total,
            available_bytes: space.free,
            total_inodes: space.inodes,
            free_inodes: space.inodes_free,
            has_given_up: file::has_given_up(path.as_path())
                .map_err(cannot("check a filesystem for errors"))?,
        })
    }

    fn filesystem_errors(&self, device: &Device) -> Result<u64> {
        fs::errors_on(&device.path).map_err(cannot("count the errors of a filesystem"))
    }

    fn sync_filesystem(&self, mount: &TargetPath) -> Result<Option<String>> {
        match file::sync_filesystem(mount.as_path()) {
            Ok(()) => Ok(None),
            Err(failure) => match failure.errno().filter(|errno| file::is_lost_write(*errno)) {
                Some(errno) => Ok(Some(errno.to_string())),
                None => Err(cannot("sync a filesystem")(failure)),
            },
        }
    }

    fn lost_writes_at(&self, mount: &TargetPath, device: &Device) -> Result<Option<String>> {
        let is_it = || mount_at(mount).is_ok_and(|at| at.is_some_and(|at| at.is_of(device)));
        let lost = file::lost_writes_at(mount.as_path(), is_it);
        let lost = lost.map_err(cannot("sync a filesystem"))?;
        Ok(lost.map(|errno| errno.to_string()))
    }

    fn ensure_trimmed(&self, mount: &TargetPath) -> Result<()> {
        // Trimming goes by path, as growing does.
        if mount_at(mount)?.is_none_or(|there| there.is_device_node) {
            return Err(Error::precondition(format!(
                "cannot trim {mount}: no filesystem is mounted there; stage the volume again"
            )));
        }
        match fs::trim(mount.as_path()) {
            Ok(bytes) => {
                tracing::debug!(%mount, bytes, "trimmed");
                Ok(())
            }
            // A thick volume keeps its blocks, so its device takes no discards.
            Err(failure) if failure.errno() == Some(Errno::OPNOTSUPP) => Err(Error::NotOffered(
                "NodeReclaimSpace",
                format!(
                    "the device under {mount} takes no discards; a thick volume keeps its space"
                ),
            )),
            Err(failure) => Err(cannot("trim a filesystem")(failure)),
        }
    }
}

fn signature(device: &Device) -> Result<DeviceSignature> {
    let signature = fs::probe(&device.path).map_err(cannot("read the signature of a device"))?;
    Ok(match signature {
        Signature::Blank => DeviceSignature::Blank,
        Signature::Foreign => DeviceSignature::Foreign,
        Signature::Filesystem { kind, uuid, needs_check } => DeviceSignature::Filesystem {
            fs: type_of(kind),
            uuid: FsUuid::from_bytes(uuid),
            needs_check,
        },
    })
}

/// mkfs said no, and not because of the device.
fn is_refusal(failure: &orlop_sys::Error) -> bool {
    const OF_THE_DEVICE: [Errno; 4] = [Errno::IO, Errno::NOSPC, Errno::NODEV, Errno::NXIO];
    let of_the_device = |said: &str| {
        let texts = OF_THE_DEVICE.map(|errno| std::io::Error::from(errno).to_string());
        // Rust puts the number behind what the C library says.
        texts.iter().filter_map(|text| text.split(" (").next()).any(|text| said.contains(text))
    };
    matches!(failure, orlop_sys::Error::Tool { stderr, .. } if !of_the_device(stderr))
}

/// The record is about to promise this identity: it must be what the next probe will see.
fn check_identity(device: &Device, fs: FsType, uuid: FsUuid, doing: &str) -> Result<()> {
    let found = signature(device)?;
    match found {
        DeviceSignature::Filesystem { fs: found_fs, uuid: found_uuid, .. }
            if (found_fs, found_uuid) == (fs, uuid) =>
        {
            Ok(())
        }
        DeviceSignature::Filesystem { .. } | DeviceSignature::Blank | DeviceSignature::Foreign => {
            Err(Error::failed(
                doing,
                format!("the device should hold {fs} with UUID {uuid}, but holds {found:?}"),
            ))
        }
    }
}

fn renew_btrfs_uuid(device: &Device, uuid: FsUuid) -> Result<()> {
    const DOING: &str = "change the UUID of a copied btrfs";
    fs::set_btrfs_uuid(&device.path, uuid.bytes()).map_err(cannot(DOING))?;
    check_identity(device, FsType::Btrfs, uuid, DOING)
}

#[cfg(test)]
mod tests;
