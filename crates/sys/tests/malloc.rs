//! Alone in its process: other tests would use memory at the same time.

#![cfg(target_env = "gnu")]
#![allow(clippy::unwrap_used, reason = "a failed test ends")]

use orlop_sys::malloc::{Trimmer, limit_arenas, resident, trim};

const MIB: u64 = 1 << 20;

#[test]
fn freed_memory_returns_to_the_kernel() {
    limit_arenas();
    let before = resident().unwrap();
    // Small enough to come from a heap; the one that stays keeps the heap from being cut short.
    let mut things: Vec<Vec<u8>> = (0..200_000).map(|_| vec![1; 200]).collect();
    let full = resident().unwrap();
    assert!(full > before + 30 * MIB, "{before} {full}");
    let last = things.pop().unwrap();
    drop(things);
    let after = trim(before).unwrap();
    assert!(after < before + 5 * MIB, "{before} {full} {after}");
    assert_eq!(last.len(), 200);
    assert!(trim(after).unwrap() <= after, "nothing has grown");
    memory_freed_after_the_first_look_returns_too();
}

/// What a call holds when the process is looked at is freed only after that. No test by itself: it would run beside the
/// other one.
fn memory_freed_after_the_first_look_returns_too() {
    let mut trimmer = Trimmer::default();
    trimmer.trim().unwrap();
    let before = resident().unwrap();
    let mut things: Vec<Vec<u8>> = (0..200_000).map(|_| vec![1; 200]).collect();
    trimmer.trim().unwrap();
    let full = resident().unwrap();
    assert!(full > before + 30 * MIB, "{before} {full}");
    let last = things.pop().unwrap();
    drop(things);
    trimmer.trim().unwrap();
    let after = resident().unwrap();
    assert!(after < before + 5 * MIB, "{before} {full} {after}");
    assert_eq!(last.len(), 200);
}
