//! What was measured, on what, and how.

use std::fmt::Write;

use crate::results::Results;

pub(crate) fn introduction(results: &Results) -> String {
    let Results { ours, peer, took, .. } = results;
    let mut text = String::new();
    let minutes = took.as_secs() / 60 + 1;
    let _ = write!(
        text,
        "# Performance

Written by `make bench`, from one run of less than {minutes} minutes, which measured in turns

- **{ours}**,
- **{peer}**, on the same filesystem, and
- the **floor**: the bare system calls of a durable operation, done the usual way by the benchmark
  itself.

{}

A cell holds the median and, after a slash, the 99th percentile; of fewer than a hundred samples
that is the largest. A ratio is one of medians, in brackets the interval that holds 95 % of what
resampling gives: more than 1 means that Orlop is the better one. Before each volume's
life and before each copy the filesystem is synced and given 10 ms to free what was deleted, so that
nobody pays for what another one left to be done.
",
        machine()
    );
    text
}

/// Without anything that names the machine.
fn machine() -> String {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    // What follows the version says whose build it is.
    let version = release.split('-').next().unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes: u64 = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok())
        .unwrap_or_default();
    let gibibytes = kibibytes.div_ceil(1 << 20);
    format!(
        "Linux {version}, {cores} cores, {gibibytes} GiB of memory; an XFS with reflinks, in an \
         image on a loop device with direct I/O."
    )
}
