//! The stamp by which a pool and the run directory of its daemon know each other.

use std::path::Path;

use orlop_engine::Engine;
use orlop_host::LinuxHost;
use orlop_model::{Error, Reason, Result};
use orlop_sys::rand::random_bytes;

use crate::config::PoolConfig;
use crate::open_pools::StampedPool;

/// Whether this is the run directory of the pool's daemon in this boot, so that what has no record in
/// it is an orphan (decision 0024). With devices that an earlier daemon recorded elsewhere it is
/// not, until they are gone. A new stamp in the pool says that it is no other run directory's any more
/// either (decision 0043); it comes first, so that a crash leaves the pool without one.
pub(super) fn mark_run_dir(
    host: &LinuxHost,
    engine: &Engine,
    pool: &dyn StampedPool,
    config: &PoolConfig,
) -> Result<()> {
    let id = pool.id();
    let place = config.place();
    let mark = |stamp: Option<&str>| host.mark_pool(id, stamp, config.name(), Path::new(&place));
    let is_alone = engine.unrecorded(id)?.is_empty();
    if let Some(stamp) = pool.run_stamp()
        && is_alone
        && host.is_marked_pool(id, &stamp)?
    {
        if let Err(error) = pool.set_run_stamp(stamp.clone(), host.run_dir()) {
            tracing::warn!(%error, "cannot record in the pool where its run directory is");
        }
        return mark(Some(&stamp));
    }
    let stamp: [u8; 8] = random_bytes()
        .map_err(|error| Error::failed(format!("open pool {}", pool.name()), Reason::of(error)))?;
    let stamp = format!("{:016x}", u64::from_be_bytes(stamp));
    match pool.set_run_stamp(stamp.clone(), host.run_dir()) {
        Ok(()) if is_alone => mark(Some(&stamp)),
        Ok(()) => mark(None),
        Err(error) => {
            tracing::warn!(
                %error,
                "cannot record the run directory in the pool; the doctor will report orphans \
                 of this pool and not repair them"
            );
            mark(None)
        }
    }
}
