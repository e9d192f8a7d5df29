//! The snapshot of a thin pool's metadata that the kernel reserves for readers.
//!
//! While it is there, the blocks that it points to are not written to; while it is not, the kernel uses them again as it
//! likes. There is one in a pool. It stays when its reader is killed, and also when the machine ends: the pool then keeps
//! what it points to, and its metadata fills up. So a marker in the run directory says that a reservation is ours:
//!
//! ```text
//! DIRECTORY/            made when the pool is first used after the machine has started
//! DIRECTORY/reserved    while we have the reservation, from just before to just after
//! ```
//!
//! A reservation that is found without the marker is that of another program, and is left alone; unless the directory is
//! missing: then the reservation is older than the machine's last start, and what made it has ended.

use std::path::PathBuf;

use orlop_model::{Error, Reason, Result};
use orlop_sys::{file, thin_pool};
use rustix::io::Errno;

const MARKER: &str = "reserved";

#[derive(Debug)]
pub(super) struct Reservations {
    /// The name of the thin pool's device.
    device: String,
    /// Of the marker.
    directory: PathBuf,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The pool was not active yet, so there may be an abandoned one.
    Unchecked,
    Free,
    /// We have it, or could not release it.
    Ours,
}

/// What is known of a reservation that the metadata name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// Another program's.
    Foreign,
}

impl Reservations {
    pub(super) fn new(device: String, directory: PathBuf) -> Self {
        Self { device, directory, state: State::Unchecked }
    }

    fn doing(&self, what: &str) -> String {
        format!("{what} the metadata of the thin pool {}", self.device)
    }

    /// Releases what a reader that is gone has left. `is_reserved`: the metadata say so now.
    pub(super) fn release_abandoned(&mut self, is_reserved: bool) -> Result<Found> {
        let keeping = || self.doing("keep a marker of who reads");
        let cannot = |error| Error::failed(keeping(), Reason::of(error));
        let marker = self.directory.join(MARKER);
        let is_ours = match self.state {
            State::Ours => true,
            State::Free => false,
            State::Unchecked => marker.exists() || !self.directory.exists(),
        };
        if is_reserved && is_ours {
            tracing::warn!(
                device = self.device,
                "releasing the metadata of a thin pool that a reader had reserved: the reader has ended without releasing it"
            );
            self.send_release()?;
        }
        if self.state == State::Unchecked {
            file::ensure_private_directory(&self.directory).map_err(cannot)?;
        }
        if is_ours {
            file::ensure_no_file(&marker).map_err(cannot)?;
        }
        self.state = State::Free;
        match is_reserved && !is_ours {
            true => Ok(Found::Foreign),
            false => Ok(Found::Nothing),
        }
    }

    /// The caller has made sure that there is none.
    pub(super) fn reserve(&mut self) -> Result<()> {
        let marker = self.directory.join(MARKER);
        file::ensure_file(&marker)
            .map_err(|error| Error::failed(self.doing("mark who reads"), Reason::of(error)))?;
        match thin_pool::reserve_metadata_snapshot(&self.device) {
            Ok(()) => {
                self.state = State::Ours;
                Ok(())
            }
            Err(error) => {
                let failed = Err(refused(self.doing("reserve"), error));
                if let Err(error) = file::ensure_no_file(&marker) {
                    tracing::warn!(%error, "cannot remove the marker of reserved metadata");
                }
                failed
            }
        }
    }

    /// What cannot be released is tried again before the next reservation, and when the pool is opened next.
    pub(super) fn release(&mut self) {
        let released = self.send_release().and_then(|()| {
            file::ensure_no_file(&self.directory.join(MARKER))
                .map_err(|error| Error::failed(self.doing("unmark"), Reason::of(error)))
        });
        match released {
            Ok(()) => self.state = State::Free,
            Err(error) => tracing::error!(
                %error,
                "cannot release the reserved metadata of a thin pool: it fills up until that is done"
            ),
        }
    }

    fn send_release(&self) -> Result<()> {
        match thin_pool::release_metadata_snapshot(&self.device) {
            Err(error) if error.errno() != Some(Errno::INVAL) => {
                Err(refused(self.doing("release"), error))
            }
            // There is none.
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn refused(doing: String, error: orlop_sys::Error) -> Error {
    let advice = match error.errno() {
        Some(Errno::BUSY) => {
            return Error::busy("the metadata of the thin pool", "another program has reserved it");
        }
        Some(Errno::NXIO | Errno::NODEV) => "the thin pool is not active",
        Some(Errno::OPNOTSUPP) => {
            "the thin pool is read-only or has failed, as its metadata is full or damaged: `lvs -o +lv_health_status` \
             and the kernel log say why"
        }
        Some(_) | None => return Error::failed(doing, Reason::of(error)),
    };
    Error::unreachable(doing, Reason::explained(format!("{error}; {advice}"), error))
}
