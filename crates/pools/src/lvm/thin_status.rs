//! The state of a thin pool, as the kernel has it; by the command `dmsetup`, which needs no lock of
//! LVM and reads no disk.

use std::str::FromStr;
use std::time::Duration;

use orlop_model::{Error, Result};
use orlop_sys::tool::{Ended, Queries};

use super::extension::Extension;
use super::failure::cannot;
use super::layout::GroupName;

const DMSETUP: &str = "dmsetup";
const SECTOR: u64 = 512;
/// In milliseconds. While the first volume is made, LVM puts the thin pool below another name: for a moment there is
/// neither, or a device without a table, which has no state, or another device.
const RENAMING_PAUSES: [u64; 7] = [1, 5, 20, 50, 100, 200, 400];
/// Of the metadata (`THIN_METADATA_BLOCK_SIZE`).
const METADATA_BLOCK: u64 = 4096;

/// What of something is used, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) used: u64,
    pub(super) size: u64,
}

impl Usage {
    pub(super) fn free(self) -> u64 {
        self.size.saturating_sub(self.used)
    }

    /// Is more than so much of it used?
    pub(super) fn is_above(self, percent: u32) -> bool {
        u128::from(self.used) * 100 > u128::from(self.size) * u128::from(percent)
    }
}

/// What the thin pool does with writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Writable,
    /// Its data is used up: writes that need a chunk wait or fail.
    OutOfData,
    /// Its metadata is full, or could not be written.
    ReadOnly,
    /// Its metadata cannot be read.
    Failed,
}

/// What it does with writes that need a chunk when there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenFull {
    /// They wait for the pool to be enlarged, for 60 seconds unless the kernel was set to another time.
    Queue,
    Error,
}

impl WhenFull {
    /// Writers may wait for a pool that is about to be enlarged. Where nothing enlarges it, to wait only delays the error
    /// for a minute, in which every sync on the machine may hang (docs/decisions/0065).
    pub(super) fn wanted(extension: Option<&Extension>) -> Self {
        match extension {
            Some(_) => Self::Queue,
            None => Self::Error,
        }
    }

    /// As the option `--errorwhenfull` has it.
    pub(super) fn option(self) -> &'static str {
        match self {
            Self::Queue => "n",
            Self::Error => "y",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ThinStatus {
    pub(super) data: Usage,
    pub(super) metadata: Usage,
    pub(super) mode: Mode,
    pub(super) when_full: WhenFull,
    /// Its metadata has to be checked before it can be written again.
    pub(super) needs_check: bool,
}

impl ThinStatus {
    const FAILED: Self = Self {
        data: Usage { used: 0, size: 0 },
        metadata: Usage { used: 0, size: 0 },
        mode: Mode::Failed,
        when_full: WhenFull::Error,
        needs_check: true,
    };
}

/// `0 131072 thin-pool 1 14/1024 5/1024 - rw discard_passdown queue_if_no_space - 1024`, as the kernel documents it in
/// admin-guide/device-mapper/thin-provisioning.rst.
impl FromStr for ThinStatus {
    type Err = String;

    fn from_str(line: &str) -> std::result::Result<Self, String> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let parsed = || {
            let [_, length, "thin-pool", rest @ ..] = words.as_slice() else { return None };
            if matches!(rest, ["Fail" | "Error", ..]) {
                return Some(Self::FAILED);
            }
            let [_, metadata, data, _, mode, _, when_full, needs_check, ..] = rest else {
                return None;
            };
            let (metadata_used, metadata_size) = fraction(metadata)?;
            let (data_used, data_size) = fraction(data)?;
            let bytes = length.parse::<u64>().ok()?.checked_mul(SECTOR)?;
            let chunk = bytes.checked_div(data_size)?;
            Some(Self {
                data: Usage { used: data_used.checked_mul(chunk)?, size: bytes },
                metadata: Usage {
                    used: metadata_used.checked_mul(METADATA_BLOCK)?,
                    size: metadata_size.checked_mul(METADATA_BLOCK)?,
                },
                mode: match *mode {
                    "rw" => Mode::Writable,
                    "out_of_data_space" => Mode::OutOfData,
                    "ro" => Mode::ReadOnly,
                    _ => return None,
                },
                when_full: match *when_full {
                    "queue_if_no_space" => WhenFull::Queue,
                    "error_if_no_space" => WhenFull::Error,
                    _ => return None,
                },
                needs_check: *needs_check == "needs_check",
            })
        };
        parsed().ok_or_else(|| format!("{line:?} is no state of a thin pool"))
    }
}

fn fraction(text: &str) -> Option<(u64, u64)> {
    let (part, whole) = text.split_once('/')?;
    Some((part.parse().ok()?, whole.parse().ok()?))
}

#[derive(Debug)]
pub(super) struct ThinPoolDevice {
    /// LVM puts the thin pool below the device that it shows, once there is a volume in it.
    names: [String; 2],
    queries: Queries,
}

impl ThinPoolDevice {
    /// `limit`: how long the kernel may take for an answer.
    pub(super) fn new(group: &GroupName, thin_pool: &str, limit: Duration) -> Self {
        let name = group.device_name(thin_pool);
        Self { names: [format!("{name}-tpool"), name], queries: Queries::new(limit) }
    }

    /// `None`: it is not active.
    pub(super) fn status(&self) -> Result<Option<ThinStatus>> {
        let mut pauses = RENAMING_PAUSES.into_iter();
        loop {
            match (self.status_now(), pauses.next()) {
                (Ok(None) | Err(Error::Failed { .. }), Some(pause)) => {
                    std::thread::sleep(Duration::from_millis(pause));
                }
                (found, _) => return found,
            }
        }
    }

    fn status_now(&self) -> Result<Option<ThinStatus>> {
        for name in &self.names {
            if let Some(status) = self.status_of(name)? {
                return Ok(Some(status));
            }
        }
        Ok(None)
    }

    fn status_of(&self, name: &str) -> Result<Option<ThinStatus>> {
        let reading = || format!("read the state of the thin pool {name}");
        let text = self.text_of(reading, name)?;
        let parsed = text.map(|text| text.trim().parse()).transpose();
        parsed.map_err(|reason: String| Error::failed(reading(), reason))
    }

    /// How much of a thin volume's device is mapped, as of now. `None`: it is not active.
    pub(super) fn mapped_bytes(&self, volume: &str) -> Result<Option<u64>> {
        let reading = || format!("read the state of the thin volume {volume}");
        let text = self.text_of(reading, volume)?;
        let parsed = text.map(|text| mapped_bytes(&text)).transpose();
        parsed.map_err(|reason| Error::failed(reading(), reason))
    }

    /// `None`: there is no such device.
    fn text_of(&self, reading: impl Fn() -> String, name: &str) -> Result<Option<String>> {
        // A status that waited for a commit of the metadata would wait for its disk.
        let arguments = ["status", "--noflush", name];
        let ended = self.queries.run(DMSETUP, arguments).map_err(cannot(&reading))?;
        if ended.stderr.contains("does not exist") || ended.stderr.contains("No such device") {
            return Ok(None);
        }
        succeeded(reading, &ended).map(Some)
    }
}

/// `0 65536 thin 1024 2047`: the mapped sectors, and the highest of them.
fn mapped_bytes(line: &str) -> std::result::Result<u64, String> {
    let mut words = line.split_ascii_whitespace().skip(2);
    let is_thin = words.next() == Some("thin");
    let sectors = words.next().filter(|_| is_thin).and_then(|word| word.parse::<u64>().ok());
    sectors
        .and_then(|sectors| sectors.checked_mul(SECTOR))
        .ok_or_else(|| format!("{:?} is no state of a thin volume", line.trim()))
}

fn succeeded(reading: impl Fn() -> String, ended: &Ended) -> Result<String> {
    match ended.status.success() {
        true => Ok(String::from_utf8_lossy(&ended.stdout).into_owned()),
        false => {
            let said = ended.stderr.trim().replace('\n', "; ");
            Err(Error::failed(reading(), format!("dmsetup ended with {}: {said}", ended.status)))
        }
    }
}

#[cfg(test)]
mod tests;
