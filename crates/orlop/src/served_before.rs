//! Pools that were served before, since this machine started: where one of them is configured and not
//! there, its disk is missing, and no new pool is made in its place.

use std::path::PathBuf;

use orlop_host::{LinuxHost, ServedPool};
use orlop_pools::image::{ImagePoolConfig, ServedBefore};

use crate::config::{Config, PoolConfig};

/// Passes on to the pools what the run directory remembers of them.
pub(crate) fn remember_served_pools(config: &mut Config) -> orlop_model::Result<()> {
    let served = LinuxHost::served_pools(&config.run_dir.join(&config.driver_name))?;
    let configured: Vec<PathBuf> = config.pools.iter().filter_map(PoolConfig::directory).collect();
    for pool in &mut config.pools {
        if let PoolConfig::Image(image) = pool {
            // Where it is no directory, it is a pool of another kind.
            let before =
                served.iter().filter(|before| before.path.is_absolute() && is_same(before, image));
            image.served_before = before.map(|before| served_before(before, &configured)).collect();
        }
    }
    Ok(())
}

fn is_same(before: &ServedPool, image: &ImagePoolConfig) -> bool {
    before.name == image.name || before.path == image.path
}

fn served_before(before: &ServedPool, configured: &[PathBuf]) -> ServedBefore {
    let mut paths = vec![before.path.clone()];
    paths.extend(configured.iter().filter(|path| **path != before.path).cloned());
    ServedBefore { id: before.id.clone(), paths, marker: before.marker.clone() }
}
