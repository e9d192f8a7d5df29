//! How large something is, as those who use it see it.

use crate::capability::VolumeCapabilityExt;
use crate::on_node::OnNode;

/// Has the published volume this size? Exactly, for a device; a filesystem keeps some for itself.
#[track_caller]
pub fn assert_size(node: &OnNode, bytes: u64) {
    let target = &node.target;
    if node.capability.is_block() {
        let size = orlop_sys::loopdev::size(target).expect("the device's size");
        assert_eq!(size, bytes, "{}", target.display());
        return;
    }
    let total = orlop_sys::file::space(target).expect("statfs").total;
    assert!(
        total <= bytes && total > bytes / 10 * 8,
        "the filesystem at {} shows {total} of {bytes} bytes",
        target.display()
    );
}

/// Growing a mounted ext4 is a privilege that containers usually do not have.
pub fn may_grow_ext4_mounted() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = std::fs::read_to_string("/proc/self/status").expect("read what this process is");
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .expect("the kernel tells a process its capabilities");
    let effective = u64::from_str_radix(effective.trim(), 16).expect("a set of bits");
    effective & (1 << CAP_SYS_RESOURCE) != 0
}
