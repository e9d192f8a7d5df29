//! `orlop serve --check`: would the daemon start? Nothing is made or changed, no cluster is asked, and
//! a daemon that runs with the same settings is no obstacle: it may be about to be restarted.

use std::error::Error;
use std::path::Path;

use orlop_host::LinuxHost;
use orlop_pools::image::ImagePool;
use orlop_pools::rbd::RbdPool;
use rustix::fs::{Access, access};

use crate::config::{Config, ConfigError, PoolConfig, Sockets};
use crate::serve::host_config;
use crate::telemetry;

type Checked = Result<(), Box<dyn Error>>;

pub(crate) fn check(config: &Config, sockets: &Sockets) -> Checked {
    telemetry::check(&config.log)?;
    let endpoints =
        [("CSI_ENDPOINT", Some(&sockets.csi)), ("ORLOP_ADDONS_ENDPOINT", sockets.addons.as_ref())];
    for (setting, socket) in endpoints {
        let Some(socket) = socket else { continue };
        orlop_csi::check_socket(socket)?;
        check_can_be_made(setting, socket.parent().unwrap_or(socket))?;
    }
    check_can_be_made("ORLOP_RUN_DIR", &config.run_dir)?;
    LinuxHost::check(&host_config(config))?;
    config.pools.iter().try_for_each(check_pool)
}

fn check_pool(pool: &PoolConfig) -> Checked {
    let checked = match pool {
        PoolConfig::Image(image) => {
            check_can_be_made("ORLOP_POOL", &image.path)?;
            ImagePool::check(image)
        }
        PoolConfig::Rbd(rbd) => RbdPool::check(rbd),
    };
    match checked {
        // The daemon starts without it, and waits.
        Ok(()) | Err(orlop_model::Error::Unreachable { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Is the directory there, or can it be made where it is to be?
fn check_can_be_made(setting: &str, directory: &Path) -> Result<(), ConfigError> {
    let there = directory.ancestors().find(|path| path.symlink_metadata().is_ok());
    let Some(there) = there else { return Ok(()) };
    let wrong = |problem: String| Err(ConfigError::new(setting, problem));
    let (path, place) = (directory.display(), there.display());
    if !there.is_dir() {
        return wrong(format!("{path} cannot be made: {place} is not a directory"));
    }
    match access(there, Access::WRITE_OK | Access::EXEC_OK) {
        Err(error) if there != directory => {
            wrong(format!("{path} cannot be made in {place}: {error}"))
        }
        // What is there may be read-only for now, and says so itself.
        Ok(()) | Err(_) => Ok(()),
    }
}
