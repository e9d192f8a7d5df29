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
