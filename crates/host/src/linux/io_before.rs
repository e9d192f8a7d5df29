//! The I/O counters of a device at the time when a volume was attached to it. The kernel counts for each device number, and
//! volumes reuse numbers, so these counts are stored in the run directory and subtracted later.

use std::path::PathBuf;
use std::time::Duration;

use orlop_model::{Device, DeviceIo, Result, VolumeId};
use orlop_sys::loopdev;
use serde::{Deserialize, Serialize};

use super::failure::cannot;
use super::run_files::RunFiles;

pub(super) struct IoBefore {
    files: RunFiles,
}

/// A file for each device number, replaced when another volume gets the number.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Baseline {
    volume: VolumeId,
    /// The sequence number of the attachment; unknown before Linux 5.15.
    sequence: Option<u64>,
    reads: u64,
    bytes_read: u64,
    read_milliseconds: u64,
    writes: u64,
    bytes_written: u64,
    write_milliseconds: u64,
    busy_milliseconds: u64,
}

impl IoBefore {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { files: RunFiles::new(directory) }
    }

    /// Idempotent for the same attachment.
    pub(super) fn note(&self, volume: &VolumeId, device: &Device) -> Result<()> {
        let sequence = loopdev::sequence_of(device.major, device.minor);
        let known = self.read(device)?;
        if known.is_some_and(|it| it.volume == *volume && it.sequence == sequence) {
            return Ok(());
        }
        let io = counted(device)?;
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let baseline = Baseline {
            volume: volume.clone(),
            sequence,
            reads: io.reads,
            bytes_read: io.bytes_read,
            read_milliseconds: milliseconds(io.read_time),
            writes: io.writes,
            bytes_written: io.bytes_written,
            write_milliseconds: milliseconds(io.write_time),
            busy_milliseconds: milliseconds(io.busy_time),
        };
        let text = serde_json::to_vec(&baseline).map_err(|error| {
            let doing = format!("record what {} did before", device.path.display());
            orlop_model::Error::failed(doing, orlop_model::Reason::of(error))
        })?;
        self.files.write(&name_of(device), &text)
    }

    /// The I/O since the attachment, or since the start of the machine if no counts are stored.
    pub(super) fn since(&self, device: &Device) -> Result<DeviceIo> {
        let now = counted(device)?;
        let sequence = loopdev::sequence_of(device.major, device.minor);
        let before = self.read(device)?.filter(|before| before.sequence == sequence);
        // Counters that are lower than the stored ones belong to another device.
        Ok(before.and_then(|before| before.subtracted_from(&now)).unwrap_or(now))
    }

    fn read(&self, device: &Device) -> Result<Option<Baseline>> {
        let contents = self.files.read(&name_of(device))?;
        // One that cannot be read is replaced at the next attachment.
        Ok(contents.and_then(|contents| serde_json::from_slice(&contents).ok()))
    }
}

impl Baseline {
    fn subtracted_from(&self, now: &DeviceIo) -> Option<DeviceIo> {
        let left = |now: Duration, before: u64| now.checked_sub(Duration::from_millis(before));
        Some(DeviceIo {
            reads: now.reads.checked_sub(self.reads)?,
            bytes_read: now.bytes_read.checked_sub(self.bytes_read)?,
            read_time: left(now.read_time, self.read_milliseconds)?,
            writes: now.writes.checked_sub(self.writes)?,
            bytes_written: now.bytes_written.checked_sub(self.bytes_written)?,
            write_time: left(now.write_time, self.write_milliseconds)?,
            busy_time: left(now.busy_time, self.busy_milliseconds)?,
            in_flight: now.in_flight,
        })
    }
}

fn counted(device: &Device) -> Result<DeviceIo> {
    let io = loopdev::statistics(device.major, device.minor)
        .map_err(cannot("read the statistics of a device"))?;
    Ok(DeviceIo {
        reads: io.reads,
        bytes_read: io.bytes_read,
        read_time: io.read_time,
        writes: io.writes,
        bytes_written: io.bytes_written,
        write_time: io.write_time,
        busy_time: io.busy_time,
        in_flight: io.in_flight,
    })
}

fn name_of(device: &Device) -> String {
    format!("{}:{}", device.major, device.minor)
}
