#![allow(clippy::unwrap_used)]

use super::*;
use crate::testbed::{Volume, root, scratch};

#[test]
fn freeze_lasts_until_thaw_and_thaw_is_idempotent() {
    if !root() {
        return;
    }
    for kind in FsKind::ALL {
        let volume = Volume::new(kind);
        std::fs::write(volume.root().join("before"), "x").unwrap();
        assert_eq!(ensure_thawed(volume.root()).unwrap(), ThawOutcome::WasNotFrozen, "{kind}");
        freeze(volume.root()).unwrap();
        let thaw = ThawOnDrop(volume.root());
        assert!(freeze(volume.root()).unwrap_err().is_busy(), "{kind}");
        assert_eq!(ensure_thawed(volume.root()).unwrap(), ThawOutcome::Thawed, "{kind}");
        assert_eq!(ensure_thawed(volume.root()).unwrap(), ThawOutcome::WasNotFrozen, "{kind}");
        drop(thaw);
        std::fs::write(volume.root().join("after"), "x").unwrap();
    }
}

/// A failed test must not leave its own clean-up hanging.
struct ThawOnDrop<'a>(&'a Path);

impl Drop for ThawOnDrop<'_> {
    fn drop(&mut self) {
        let _ = ensure_thawed(self.0);
    }
}

#[test]
fn missing_path_cannot_be_frozen() {
    let dir = scratch();
    assert!(freeze(&dir.path().join("missing")).unwrap_err().is_not_found());
    assert!(ensure_thawed(&dir.path().join("missing")).unwrap_err().is_not_found());
}

#[test]
fn tools_are_known_by_kind() {
    for kind in FsKind::ALL {
        assert!(required_tools(kind).contains(&kind.mkfs()));
    }
    let complete = FsKind::ALL.into_iter().all(|kind| missing_tool(&[kind]).is_none());
    assert_eq!(missing_tool(&FsKind::ALL).is_none(), complete);
    assert_eq!(missing_tool(&[]), None);
    if root() {
        assert_eq!(available_tools(), FsKind::ALL);
    }
}
