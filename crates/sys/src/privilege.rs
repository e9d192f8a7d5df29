//! Rights of this process, given up for good.
//!
//! Rights belong to threads; a process gives some up before it has a second thread, and
//! all threads and programs that follow have no more.

use std::path::Path;

use rustix::io::Errno;
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
    /// Programs cannot get back what was given up. Not so where the right to see to that
    /// (`CAP_SETPCAP`) was missing from the start.
    pub for_good: bool,
}

/// Keeps those of `wanted` that the process has, and nothing else.
pub fn keep_only(wanted: CapabilitySet) -> Result<KeptCapabilities> {
    let process = Path::new(SELF);
    let had = capabilities(None).on("read the rights of", process)?;
    // First, for it needs a right that the next step gives up.
    let for_good = shrink_bounding_set(wanted).effect_on("bound the rights of", process)?;
    clear_ambient_capability_set().effect_on("bound the rights of", process)?;
    let kept = had.permitted.intersection(wanted);
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).effect_on("give up rights of", process)?;
    // No program that is started gets rights from its file, whatever its owner.
    set_no_new_privs(true).effect_on("give up rights of", process)?;
    Ok(KeptCapabilities { capabilities: kept, for_good })
}

/// False if that is not allowed.
fn shrink_bounding_set(wanted: CapabilitySet) -> rustix::io::Result<bool> {
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if wanted.contains(capability) {
            continue;
        }
        match capability_is_in_bounding_set(capability) {
            Ok(true) => {}
            Ok(false) => continue,
            // More than this kernel knows.
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
