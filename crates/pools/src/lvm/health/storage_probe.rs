//! Does the storage answer, and do commands of LVM come to an end?

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use orlop_model::{Error, Reason, Result, StorageProbe};
use orlop_sys::file::read_uncached;

use super::super::commands::Lvm;
use crate::poison::lock;

/// The parts of a thin pool that have disks of their own.
const PARTS: [&str; 2] = ["tmeta", "tdata"];

#[derive(Debug)]
pub(super) struct PoolProbe {
    lvm: Arc<Lvm>,
    pool: String,
    /// Of the parts.
    devices: Vec<PathBuf>,
    /// Why the last probe failed.
    refusal: Mutex<Option<Error>>,
}

impl PoolProbe {
    pub(super) fn new(lvm: &Arc<Lvm>, pool: &str, thin_pool: &str) -> Self {
        let device = |part| lvm.group().device_path(&format!("{thin_pool}_{part}"));
        Self {
            lvm: Arc::clone(lvm),
            pool: pool.to_owned(),
            devices: PARTS.map(device).to_vec(),
            refusal: Mutex::default(),
        }
    }

    pub(super) fn refusal(&self) -> Option<Error> {
        lock(&self.refusal).clone()
    }

    fn read_parts(&self) -> Result<()> {
        for device in &self.devices {
            match read_uncached(device) {
                Ok(()) => {}
                // It is not active, which reports tell.
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    let reading = format!("read from pool {}", self.pool);
                    return Err(Error::failed(reading, Reason::of(error)));
                }
            }
        }
        Ok(())
    }

    fn note_refusal(&self, error: Option<Error>) {
        let before = std::mem::replace(&mut *lock(&self.refusal), error.clone());
        match (before, error) {
            (None, Some(why)) => tracing::error!(
                pool = self.pool,
                %why,
                "the pool's storage fails to read; look for errors of its disk in the kernel log"
            ),
            (Some(_), None) => tracing::info!(pool = self.pool, "the pool's storage answers again"),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
}

impl StorageProbe for PoolProbe {
    /// Nothing is written: a thin pool has no place for that. A disk that hangs does so for readers as well.
    fn try_storage(&self) -> Result<()> {
        let read = self.read_parts();
        self.note_refusal(read.clone().err());
        self.lvm.wait_for_progress();
        read
    }
}
