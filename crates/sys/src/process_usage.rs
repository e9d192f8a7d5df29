//! What this process uses of the machine.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use crate::error::{Context, Error, Result};

const STAT: &str = "/proc/self/stat";
const MACHINE: &str = "/proc/stat";
const DESCRIPTORS: &str = "/proc/self/fd";

/// The kernel tells times to processes in these, whatever it counts in itself.
const TICKS_PER_SECOND: u64 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessUsage {
    pub cpu: Duration,
    /// Since 1970.
    pub started: Duration,
    pub resident_bytes: u64,
    pub virtual_bytes: u64,
    pub threads: u64,
    pub open_descriptors: u64,
    /// `None`: any number.
    pub most_descriptors: Option<u64>,
}

pub fn of_this() -> Result<ProcessUsage> {
    let path = Path::new(STAT);
    let text = std::fs::read_to_string(path).on("read", path)?;
    let unusual = || Error::refused("read", path, "it is not as proc(5) describes it");
    // The name comes before, in brackets, and may hold anything.
    let (_, fields) = text.rsplit_once(") ").ok_or_else(unusual)?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    // By the numbers of proc(5), in which the state is the third.
    let field = |number: usize| -> Result<u64> {
        let field = number.checked_sub(3).and_then(|index| fields.get(index));
        field.and_then(|text| text.parse().ok()).ok_or_else(unusual)
    };
    let open = std::fs::read_dir(DESCRIPTORS).on("list", Path::new(DESCRIPTORS))?.count();
    Ok(ProcessUsage {
        cpu: ticks(field(14)?.saturating_add(field(15)?)),
        started: booted()?.saturating_add(ticks(field(22)?)),
        threads: field(20)?,
        virtual_bytes: field(23)?,
        resident_bytes: crate::malloc::resident()?,
        open_descriptors: u64::try_from(open).unwrap_or(u64::MAX),
        most_descriptors: getrlimit(Resource::Nofile).current,
    })
}

fn ticks(count: u64) -> Duration {
    Duration::from_millis(count.saturating_mul(1000 / TICKS_PER_SECOND))
}

fn booted() -> Result<Duration> {
    let path = Path::new(MACHINE);
    let text = std::fs::read_to_string(path).on("read", path)?;
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok());
    let missing = || Error::refused("read", path, "it does not say when the machine started");
    seconds.map(Duration::from_secs).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::SystemTime;

    use super::*;

    #[test]
    fn usage_of_this_process_is_plausible() {
        let usage = of_this().unwrap();
        assert!(usage.resident_bytes > 1 << 16 && usage.virtual_bytes >= usage.resident_bytes);
        assert!(usage.threads >= 1 && usage.open_descriptors >= 3, "{usage:?}");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert!(usage.started < now + Duration::from_secs(2), "{usage:?}");
        assert!(usage.started > now - Duration::from_secs(24 * 3600), "{usage:?}");
        let before = usage.open_descriptors;
        let _held: Vec<_> = (0..32).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        assert!(of_this().unwrap().open_descriptors > before);
    }
}
