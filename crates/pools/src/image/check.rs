//! What would end a start, found without changing anything.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use orlop_model::{Error, Result};
use orlop_sys::file::{self, BackingKind};
use orlop_sys::filesystem::{self, FsKind};

use super::ImagePool;
use super::failure::cannot;
use super::making::check_can_make;
use super::open::{ImagePoolConfig, check_kind, check_not_missing, none_there};
use super::pool_header::{Kind, PoolHeader};
use super::{managed, removed};

/// What a start would do with a pool that it does not refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Open,
    Make,
}

impl ImagePool {
    /// Would [`Self::open`] refuse this? A daemon that serves the pool now is no obstacle.
    pub fn check(config: &ImagePoolConfig) -> Result<Start> {
        let opening = || format!("open pool {}", config.name);
        let failed = |reason: String| Error::failed(opening(), reason);
        let path = config.path.display();
        match fs::metadata(&config.path) {
            Ok(there) if !there.is_dir() => {
                return Err(failed(format!("{path} is not a directory")));
            }
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(cannot(opening)(error));
            }
            Ok(_) | Err(_) => {}
        }
        let start = match PoolHeader::read(&config.path)? {
            Some((_, kind)) => check_kind(config, kind).map(|()| Start::Open),
            None => {
                check_not_missing(config)?;
                match config.create {
                    false => Err(none_there(config)),
                    true => check_can_make(config).map(|()| Start::Make),
                }
            }
        }?;
        let tool = config.managed_size.and_then(|_| filesystem::missing_tool(&[FsKind::Xfs]));
        match tool {
            Some(tool) => Err(failed(format!("an image needs {tool}; install xfsprogs"))),
            None => Ok(start),
        }
    }
}

impl ImagePool {
    /// Would [`Self::open`] refuse this because devices alone have what was in the pool? No setting is wrong then.
    pub fn check_left_on_devices(config: &ImagePoolConfig) -> Result<()> {
        match PoolHeader::read(&config.path) {
            Ok(Some((id, Kind::Managed))) => managed::check_not_lost(&config.path, &id),
            Ok(None) => removed::check_nothing_left(config),
            // What cannot be read is for `Self::check`.
            Ok(Some((_, Kind::Plain))) | Err(_) => Ok(()),
        }
    }

    /// Why the volumes of a pool in this directory would not last, whether or not it is there yet.
    pub fn volatility_at(path: &Path) -> Option<&'static str> {
        let kind = path.ancestors().find_map(|there| file::backing_kind(there).ok())?;
        match kind {
            BackingKind::Tmpfs => Some(
                "is on a tmpfs, so all its volumes are gone after a reboot; choose a directory on a \
                 disk",
            ),
            BackingKind::Overlay => Some(
                "is on an overlay, as the root of a container is, so all its volumes are gone with \
                 the container; mount a directory of the machine there",
            ),
            BackingKind::Xfs | BackingKind::Btrfs | BackingKind::Ext4 | BackingKind::Other => None,
        }
    }
}

#[cfg(test)]
mod tests;
