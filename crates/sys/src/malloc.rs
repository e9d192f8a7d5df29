//! What the allocator keeps of memory that was freed.

use std::path::Path;

use crate::error::{Context, Result};

const STATUS: &str = "/proc/self/status";
/// Growth that is worth the walk through all heaps.
const WORTH_TRIMMING: u64 = 2 << 20;

/// For a process with many threads that rarely work. glibc gives them up to eight heaps for each
/// processor, and once a large buffer was freed takes others of its size from the heaps too.
#[cfg(target_env = "gnu")]
pub fn limit_arenas() {
    use crate::abi::{M_ARENA_MAX, M_MMAP_THRESHOLD, set_heap_number};

    /// Threads do not get into each other's way at the rates of a control plane.
    const MAX_ARENAS: i32 = 2;
    /// A buffer of this size is mapped for itself, and gone when it is freed.
    const LARGE: i32 = 128 << 10;

    for (parameter, value) in [(M_ARENA_MAX, MAX_ARENAS), (M_MMAP_THRESHOLD, LARGE)] {
        if !set_heap_number(parameter, value) {
            tracing::debug!(parameter, value, "the allocator refuses a setting");
        }
    }
}

/// Other C libraries have one heap.
#[cfg(not(target_env = "gnu"))]
pub fn limit_arenas() {}

/// Lets the kernel have what is free, if this process has grown since `before` bytes of it were
/// resident; returns how many are now. A heap keeps the most that it ever held: without this, one
/// list of all volumes would stay resident for good.
pub fn trim(before: u64) -> Result<u64> {
    let resident = resident()?;
    if resident < before.saturating_add(WORTH_TRIMMING) {
        return Ok(resident.min(before));
    }
    #[cfg(target_env = "gnu")]
    crate::abi::trim_heaps();
    self::resident()
}

/// Trims at intervals, for as long as there may be something to gain. What a process holds when it has grown is mostly
/// freed later, so it is trimmed for a while after it grew: by then it has not grown again.
#[derive(Debug, Default)]
pub struct Trimmer {
    resident: u64,
    rounds_left: u32,
}

impl Trimmer {
    /// Longer than calls take.
    const ROUNDS: u32 = 24;

    /// To be called every few seconds.
    pub fn trim(&mut self) -> Result<()> {
        let resident = resident()?;
        if resident >= self.resident.saturating_add(WORTH_TRIMMING) {
            self.rounds_left = Self::ROUNDS;
        }
        self.resident = match self.rounds_left {
            0 => resident.min(self.resident),
            left => {
                self.rounds_left = left - 1;
                trim(0)?
            }
        };
        Ok(())
    }
}

/// Bytes of this process that are in memory.
pub fn resident() -> Result<u64> {
    let text = std::fs::read_to_string(STATUS).on("read", Path::new(STATUS))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kibibytes.unwrap_or(0).saturating_mul(1024))
}
