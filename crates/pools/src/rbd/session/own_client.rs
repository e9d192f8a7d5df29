//! The address of this daemon's Ceph client, kept for the next daemon on this machine.
//!
//! The cluster takes a client that was killed for alive for half a minute: what it had open counts as
//! in use, and it keeps its locks of images. The next daemon knows better, as the lock of a file
//! ends with a process, and blocklists the client, which ends all that at once. An hour is
//! enough for a client that is dead, and a daemon that is killed over and over does not fill the list.

use std::path::{Path, PathBuf};
use std::time::Duration;

use orlop_model::{Error, PoolId, Reason, Result};
use orlop_sys::ceph::IoCtx;
use orlop_sys::file::{self, Lock};

use super::cannot;

const LONGEST_ADDRESS: usize = 1 << 20;
const BLOCKLISTED_FOR: Duration = Duration::from_secs(3600);
/// A controller and a node may share a run directory; each has its own slot.
const SLOTS: usize = 16;

/// A slot that no other process has while this lives.
#[derive(Debug)]
pub(super) struct OwnClient {
    directory: PathBuf,
    /// The file that says where the cluster sees the client, while it may have something open.
    name: String,
    _lock: Lock,
}

impl OwnClient {
    /// `None`: all slots are taken, and the next daemon will not know of this client.
    pub(super) fn claim(run_dir: &Path, pool: &PoolId) -> Result<Option<Self>> {
        let taking = || "claim a slot among the Ceph clients of this machine".to_owned();
        let directory = run_dir.join("clients");
        file::ensure_private_directory(&directory).map_err(cannot(taking))?;
        for slot in 0..SLOTS {
            let name = format!("{pool}.{slot}");
            let lock =
                file::try_lock(&directory.join(format!("{name}.lock"))).map_err(cannot(taking))?;
            if let Some(lock) = lock {
                return Ok(Some(Self { directory, name, _lock: lock }));
            }
        }
        Ok(None)
    }

    /// Before anything is opened: the client that had the slot is blocklisted, and ours is recorded.
    pub(super) fn replace_predecessor(&self, io: &IoCtx) -> Result<()> {
        if let Some(address) = self.predecessor()? {
            match io.cluster().blocklist(&address, BLOCKLISTED_FOR) {
                Ok(()) => {
                    tracing::info!(
                        address,
                        "blocklisted the Ceph client of the previous daemon, which was killed"
                    )
                }
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "cannot blocklist the previous daemon's Ceph client; its locks expire \
                         in about 30 seconds"
                    )
                }
            }
        }
        self.record_address(io)
    }

    fn predecessor(&self) -> Result<Option<String>> {
        let reading = "read the address of the previous daemon's Ceph client";
        match file::read_small(&self.directory.join(&self.name), LONGEST_ADDRESS) {
            Ok(address) => String::from_utf8(address)
                .map(Some)
                .map_err(|error| Error::failed(reading, Reason::of(error))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(Error::failed(reading, Reason::of(error))),
        }
    }

    pub(super) fn record_address(&self, io: &IoCtx) -> Result<()> {
        let recording = || "record the address of this daemon's Ceph client".to_owned();
        let address = io.cluster().own_address().map_err(cannot(recording))?;
        file::replace_file_until_reboot(&self.directory, &self.name, address.as_bytes())
            .map_err(cannot(recording))
    }

    /// Nothing is open any more.
    pub(super) fn forget(&self) {
        if let Err(error) = file::ensure_no_file(&self.directory.join(&self.name)) {
            tracing::debug!(
                %error,
                "cannot remove this client's address; the next daemon will blocklist it"
            );
        }
    }
}
