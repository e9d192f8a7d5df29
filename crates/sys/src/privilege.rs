//! Capabilities of this process, dropped for the rest of its life.
//!
//! Capabilities belong to threads. A process drops some before it starts its second thread; all threads and
//! programs that it starts later have only those that are left.

use std::path::Path;

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
pub use rustix::thread::CapabilitySet;
use rustix::thread::{
    CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::error::{Context, Result};

const SELF: &str = "/proc/self";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptCapabilities {
    pub capabilities: CapabilitySet,
    /// Programs that are started cannot regain the dropped capabilities. False if `CAP_SETPCAP`, which is needed
    /// to drop them from the bounding set, was missing from the start.
    pub bounded: bool,
}

/// Keeps those of `wanted` that the process has, and nothing else.
pub fn keep_only(wanted: CapabilitySet) -> Result<KeptCapabilities> {
    let process = Path::new(SELF);
    let had = capabilities(None).on("read the capabilities of", process)?;
    // First: it needs CAP_SETPCAP, which the next step may drop.
    let bounded = shrink_bounding_set(wanted).effect_on("limit the capabilities of", process)?;
    clear_ambient_capability_set().effect_on("limit the capabilities of", process)?;
    let kept = had.permitted.intersection(wanted);
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).effect_on("drop capabilities of", process)?;
    // No program that is started gains capabilities from its file, such as a setuid one.
    set_no_new_privs(true).effect_on("drop capabilities of", process)?;
    Ok(KeptCapabilities { capabilities: kept, bounded })
}

/// The memory of this process gets into no core file, and no process without rights of root may read it.
pub fn forbid_dumps() -> Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .on("keep core files from the memory of", Path::new(SELF))
}

/// False if this process may not change its bounding set.
fn shrink_bounding_set(wanted: CapabilitySet) -> rustix::io::Result<bool> {
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if wanted.contains(capability) {
            continue;
        }
        match capability_is_in_bounding_set(capability) {
            Ok(true) => {}
            Ok(false) => continue,
            // This kernel knows no further capabilities.
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(errno),
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            Err(Errno::PERM) => return Ok(false),
            Err(errno) => return Err(errno),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
