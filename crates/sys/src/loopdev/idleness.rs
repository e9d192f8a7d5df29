//! Whether a device that is in use does anything.
//!
//! A device can be in use without a visible process. Either the kernel is at the end of an unmount, which
//! writes to the device and then releases it; or a process has it open that this one may not inspect,
//! possibly for long.

use super::{LoopDevice, numbers_in};

/// Half a second apart. Not in a row: a filesystem in use writes every now and then, if only its journal, but
/// an unmount does not pause.
const CHECKS: u32 = 4;

/// What the device has done until the last check, and how many checks found that nothing was added.
#[derive(Debug, Default)]
pub(super) struct Idleness {
    done: Option<Vec<u64>>,
    checks: u32,
}

impl Idleness {
    /// True once several checks found that the device had done nothing.
    pub(super) fn is_certain(&mut self, device: &LoopDevice) -> bool {
        self.observe(done_by(device))
    }

    fn observe(&mut self, done: Option<Vec<u64>>) -> bool {
        if done.is_some() && done == self.done {
            self.checks += 1;
        }
        self.done = done;
        self.checks >= CHECKS
    }
}

/// How many reads, writes, discards and flushes it has finished; `None` while one is under way, and of a
/// device that is gone.
fn done_by(device: &LoopDevice) -> Option<Vec<u64>> {
    let under_way = numbers_in(&device.sysfs().join("inflight")).ok()?;
    if under_way.iter().any(|requests| *requests > 0) {
        return None;
    }
    let finished = numbers_in(&device.sysfs().join("stat")).ok()?;
    Some([0, 4, 11, 15].iter().filter_map(|index| finished.get(*index).copied()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_idle_after_a_pause() {
        let is_idle = |done: &[Option<u64>]| {
            let mut idleness = Idleness::default();
            done.iter().any(|done| idleness.observe(done.map(|count| vec![count])))
        };
        assert!(is_idle(&[Some(1); 5]));
        assert!(is_idle(&[Some(1), Some(1), Some(1), Some(2), None, Some(3), Some(3), Some(3)]));
        assert!(!is_idle(&[Some(1), Some(1), Some(1), Some(1), Some(2), Some(3)]));
        assert!(!is_idle(&[Some(1), Some(2), Some(3), Some(4), Some(5), Some(6)]));
        assert!(!is_idle(&[None, None, None, None, None, None]));
    }
}
