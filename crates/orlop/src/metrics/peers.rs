//! Other daemons of the cluster.

use super::family::{Family, Kind};
use crate::cluster::PeerStatus;

pub(super) fn families(view: Option<&PeerStatus>) -> Vec<Family> {
    let gauge = |name, help| Family::new(name, Kind::Gauge, help);
    let mut up = gauge("orlop_peer_up", "1 while the daemon of that node answers");
    let mut silent = gauge(
        "orlop_peer_addresses_silent",
        "Addresses of peers at which no daemon has answered yet",
    );
    let mut expiry = gauge(
        "orlop_peer_certificate_expiry_timestamp_seconds",
        "When the daemon's certificate for peers, or one above it, expires, as Unix time",
    );
    if let Some(view) = view {
        for (node, answers) in view.answering() {
            up.add(&[("peer", &node)], u64::from(answers));
        }
        silent.add_count(&[], view.silent());
        if let Some(expires) = view.certificate_expiry() {
            expiry.add(&[], expires);
        }
    }
    vec![up, silent, expiry]
}
