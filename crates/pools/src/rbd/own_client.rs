//! Which client this process is, kept for whoever comes after it on this machine.
//!
//! The cluster takes a client that was killed for alive for half a minute: what it had open counts as
//! in use, and the locks of images stay its own. Its successor knows better, as the lock of a file
//! ends with a process, and puts the client on the blocklist, which ends all that at once. An hour is
//! enough for one that is dead, and a daemon that is killed over and over does not fill the list.

use std::path::{Path, PathBuf};
use std::time::Duration;

use orlop_model::{Error, PoolId, Result};
use orlop_sys::ceph::IoCtx;
use orlop_sys::file::{self, Lock};

use super::failure::Doing;

const LONGEST_NOTE: usize = 1 << 20;
const STOPPED_FOR: Duration = Duration::from_secs(3600);
/// A controller and a node may share a run directory; each has a place of its own.
const PLACES: usize = 16;

/// A place that no other process has while this lives.
#[derive(Debug)]
pub(super) struct OwnClient {
    directory: PathBuf,
    /// The file that says where the cluster sees the client, while it may have something open.
    name: String,
    _lock: Lock,
}

impl OwnClient {
    /// `None`: all places are taken, and nothing will be known of this client.
    pub(super) fn take_place(run_dir: &Path, pool: &PoolId) -> Result<Option<Self>> {
        let taking = || "take a place among the clients of this machine".to_owned();
        let directory = run_dir.join("clients");
        file::ensure_private_directory(&directory).doing(taking)?;
        for place in 0..PLACES {
            let name = format!("{pool}.{place}");
            let lock = file::try_lock(&directory.join(format!("{name}.lock"))).doing(taking)?;
            if let Some(lock) = lock {
                return Ok(Some(Self { directory, name, _lock: lock }));
            }
        }
        Ok(None)
    }

    /// Before anything is opened: who had the place is stopped, and we are known.
    pub(super) fn succeed(&self, io: &IoCtx) -> Result<()> {
        if let Some(address) = self.predecessor()? {
            match io.cluster().blocklist(&address, STOPPED_FOR) {
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
        self.note(io)
    }

    fn predecessor(&self) -> Result<Option<String>> {
        let reading = "read who was here before";
        match file::read_small(&self.directory.join(&self.name), LONGEST_NOTE) {
            Ok(address) => {
                String::from_utf8(address).map(Some).map_err(|error| Error::failed(reading, error))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(Error::failed(reading, error)),
        }
    }

    pub(super) fn note(&self, io: &IoCtx) -> Result<()> {
        let noting = || "note the address of our Ceph client".to_owned();
        let address = io.cluster().own_address().doing(noting)?;
        file::replace_file_until_reboot(&self.directory, &self.name, address.as_bytes())
            .doing(noting)
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
