//! Which capabilities the daemon needs, by what it serves; docs/deploy/requirements.md has the
//! same list with reasons.

use orlop_sys::privilege::{self, CapabilitySet, KeptCapabilities};

use crate::config::Config;

/// Mounts, loop devices, device-mapper and freezes; paths of other users; groups of volumes; nodes of devices; asking who
/// has a file of another user open; and growing an ext4 that is mounted.
const NODE: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::LEASE)
    .union(CapabilitySet::SYS_RESOURCE);

/// Freezes, loop devices, device-mapper, managed pools and subvolumes; asking who has a file of another user open.
const LOCAL_CONTROLLER: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::LEASE);

/// A keyring that is another user's.
const RBD_CONTROLLER: CapabilitySet = CapabilitySet::DAC_READ_SEARCH;

fn needed(config: &Config) -> CapabilitySet {
    match (config.mode.serves_node(), config.has_local_pool()) {
        (true, _) => NODE,
        (false, true) => LOCAL_CONTROLLER,
        (false, false) => RBD_CONTROLLER,
    }
}

/// Before there is a second thread.
pub(crate) fn give_up(config: &Config) -> orlop_sys::Result<()> {
    if config.keep_capabilities {
        tracing::warn!("keeping all capabilities, as configured");
        return Ok(());
    }
    let needed = needed(config);
    let KeptCapabilities { capabilities, bounded } = privilege::keep_only(needed)?;
    let missing = needed.difference(capabilities);
    let (kept, lacking) = (names(capabilities), names(missing));
    tracing::info!(kept, missing = lacking, "dropped all other capabilities");
    if missing.contains(CapabilitySet::SYS_ADMIN) {
        tracing::warn!(
            "CAP_SYS_ADMIN is missing, so nothing can be attached, mounted or frozen; run the \
             daemon as root"
        );
    }
    if !bounded {
        tracing::warn!(
            "CAP_SETPCAP is missing, so tools that are started may have more capabilities"
        );
    }
    Ok(())
}

fn names(capabilities: CapabilitySet) -> String {
    let names: Vec<_> = capabilities.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
    names.join(" ")
}
