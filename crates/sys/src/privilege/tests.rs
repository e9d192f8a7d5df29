#![allow(clippy::unwrap_used)]

use std::thread;

use super::*;
use crate::testbed::root;

/// Of the thread that asks: the bounding set and `NoNewPrivs` are not reported by rustix.
fn status_field(field: &str) -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap().trim().to_owned()
}

/// Rights are a thread's, so a thread can give them up for this test alone.
#[test]
fn dropped_capabilities_cannot_be_regained() {
    if !root() {
        return;
    }
    let wanted = CapabilitySet::CHOWN | CapabilitySet::SYS_ADMIN;
    let giving_up = thread::spawn(move || {
        let kept = keep_only(wanted).unwrap();
        assert_eq!(kept, KeptCapabilities { capabilities: wanted, bounded: true });
        let mask = format!("{:016x}", wanted.bits());
        for field in ["CapPrm", "CapEff", "CapBnd"] {
            assert_eq!(status_field(field), mask, "{field}");
        }
        for field in ["CapInh", "CapAmb"] {
            assert_eq!(status_field(field), "0".repeat(16), "{field}");
        }
        assert_eq!(status_field("NoNewPrivs"), "1");

        // Asked again for more, it has no more, and says what it could not see to.
        let again = keep_only(CapabilitySet::all()).unwrap();
        assert_eq!(again.capabilities, wanted);
        let less = keep_only(CapabilitySet::CHOWN).unwrap();
        assert_eq!(less, KeptCapabilities { capabilities: CapabilitySet::CHOWN, bounded: false });
        assert_eq!(status_field("CapEff"), format!("{:016x}", CapabilitySet::CHOWN.bits()));
    });
    giving_up.join().unwrap();
    assert_eq!(status_field("NoNewPrivs"), "0", "other threads are as they were");
}
