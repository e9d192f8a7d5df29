//! Rates from two readings of the kernel's counters.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use orlop_csi::proto::monitor::VolumeIo;
use orlop_model::Bytes;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(super) enum SortKey {
    Name,
    /// Reads and writes per second together
    #[default]
    Iops,
    Reads,
    Writes,
    /// Bytes read and written per second together
    Throughput,
    ReadRate,
    WriteRate,
    /// The slower of reads and writes
    Latency,
    Busy,
}

/// What one volume did in an interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Activity {
    pub(super) id: String,
    name: String,
    pool: String,
    read_iops: u64,
    write_iops: u64,
    read_bytes_per_second: u64,
    write_bytes_per_second: u64,
    /// On average; `None` if nothing was read.
    read_latency_microseconds: Option<u64>,
    write_latency_microseconds: Option<u64>,
    /// At the end of the interval.
    in_flight: u64,
    /// For how much of the interval there was anything under way.
    busy_percent: u64,
    limits: BTreeMap<String, u64>,
}

impl Activity {
    /// The counters of a device that was attached again begin at 0, and its rates in this interval are 0.
    pub(super) fn between(before: &VolumeIo, now: &VolumeIo, elapsed: Duration) -> Self {
        let since = |counter: fn(&VolumeIo) -> u64| counter(now).saturating_sub(counter(before));
        let (reads, writes) = (since(|io| io.reads), since(|io| io.writes));
        let busy = since(|io| io.busy_nanoseconds).saturating_mul(100);
        Self {
            id: now.volume_id.clone(),
            name: now.name.clone(),
            pool: now.pool.clone(),
            read_iops: per_second(reads, elapsed),
            write_iops: per_second(writes, elapsed),
            read_bytes_per_second: per_second(since(|io| io.bytes_read), elapsed),
            write_bytes_per_second: per_second(since(|io| io.bytes_written), elapsed),
            read_latency_microseconds: average(since(|io| io.read_nanoseconds), reads),
            write_latency_microseconds: average(since(|io| io.write_nanoseconds), writes),
            in_flight: now.in_flight,
            busy_percent: rounded(busy.into(), elapsed.as_nanos()).min(100),
            limits: now.limits.clone(),
        }
    }

    pub(super) fn iops(&self) -> u64 {
        self.read_iops.saturating_add(self.write_iops)
    }

    pub(super) fn bytes_per_second(&self) -> u64 {
        self.read_bytes_per_second.saturating_add(self.write_bytes_per_second)
    }

    fn name(&self) -> &str {
        if self.name.is_empty() { &self.id } else { &self.name }
    }

    pub(super) fn cells(&self) -> [String; 11] {
        let rate = |bytes: u64| format!("{}/s", Bytes(bytes));
        [
            self.name().to_owned(),
            self.pool.clone(),
            self.read_iops.to_string(),
            self.write_iops.to_string(),
            rate(self.read_bytes_per_second),
            rate(self.write_bytes_per_second),
            self.read_latency_microseconds.map(latency).unwrap_or_default(),
            self.write_latency_microseconds.map(latency).unwrap_or_default(),
            self.in_flight.to_string(),
            format!("{} %", self.busy_percent),
            limits(&self.limits),
        ]
    }
}

/// The highest first, and equal ones by name.
pub(super) fn sort(volumes: &mut [Activity], key: SortKey) {
    let order = |volume: &Activity| match key {
        SortKey::Name => 0,
        SortKey::Iops => volume.iops(),
        SortKey::Reads => volume.read_iops,
        SortKey::Writes => volume.write_iops,
        SortKey::Throughput => volume.bytes_per_second(),
        SortKey::ReadRate => volume.read_bytes_per_second,
        SortKey::WriteRate => volume.write_bytes_per_second,
        SortKey::Latency => {
            let slower = volume.read_latency_microseconds.max(volume.write_latency_microseconds);
            slower.unwrap_or(0)
        }
        SortKey::Busy => volume.busy_percent,
    };
    volumes.sort_by_cached_key(|volume| {
        (Reverse(order(volume)), volume.name().to_owned(), volume.id.clone())
    });
}

fn per_second(count: u64, elapsed: Duration) -> u64 {
    rounded(u128::from(count) * 1_000_000_000, elapsed.as_nanos())
}

/// In microseconds.
fn average(nanoseconds: u64, count: u64) -> Option<u64> {
    (count > 0).then(|| rounded(nanoseconds.into(), u128::from(count) * 1000))
}

fn rounded(amount: u128, of: u128) -> u64 {
    let of = of.max(1);
    u64::try_from((amount + of / 2) / of).unwrap_or(u64::MAX)
}

fn latency(microseconds: u64) -> String {
    match microseconds {
        0..1000 => format!("{microseconds} µs"),
        1000..1_000_000 => {
            format!("{}.{} ms", microseconds / 1000, microseconds % 1000 / 100)
        }
        _ => format!("{}.{} s", microseconds / 1_000_000, microseconds % 1_000_000 / 100_000),
    }
}

/// A limit with an unknown key is shown as it is.
fn limits(limits: &BTreeMap<String, u64>) -> String {
    let text = |(key, limit): (&String, &u64)| match key.as_str() {
        "readIops" => format!("{limit} reads/s"),
        "writeIops" => format!("{limit} writes/s"),
        "readBytesPerSecond" => format!("read {}/s", Bytes(*limit)),
        "writeBytesPerSecond" => format!("write {}/s", Bytes(*limit)),
        key => format!("{key}={limit}"),
    };
    limits.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
