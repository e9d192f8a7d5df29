//! The writer whose limit is changed: a process, as the kernel limits the processes of a cgroup.

use std::convert::Infallible;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::OFlags;

pub(crate) const SUBCOMMAND: &str = "demo-writer";

/// At once, past the page cache.
const CHUNK: usize = 256 << 10;
const CHUNKS: u64 = 128;

#[derive(clap::Args)]
pub(crate) struct LimitedWriterArguments {
    /// The file `cgroup.procs` of the cgroup
    group: PathBuf,
    /// Written over and over
    file: PathBuf,
}

/// Until it is killed.
pub(super) fn write(arguments: &LimitedWriterArguments) -> std::io::Result<Infallible> {
    let mut group = File::options().write(true).open(&arguments.group)?;
    group.write_all(std::process::id().to_string().as_bytes())?;
    let direct = i32::try_from(OFlags::DIRECT.bits()).map_err(std::io::Error::other)?;
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(direct)
        .open(&arguments.file)?;
    // O_DIRECT wants memory that is aligned as sectors are; the vector is larger by one.
    const SECTOR: usize = 4096;
    let room = vec![0x5a; CHUNK + SECTOR];
    let start = room.as_ptr().align_offset(SECTOR);
    let chunk = room
        .get(start..start + CHUNK)
        .ok_or_else(|| std::io::Error::other("memory cannot be aligned"))?;
    loop {
        for number in 0..CHUNKS {
            file.write_all_at(chunk, number * chunk.len() as u64)?;
        }
    }
}
