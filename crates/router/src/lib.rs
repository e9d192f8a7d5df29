//! Forwards calls to the daemon that can answer them, so that an orchestrator sees one plugin.
//!
//! The id of a volume or snapshot names its pool, and peers say which pools they serve, so the target of a call follows
//! from its id. Only creation, lists and capacity need more. A router has no state of its own: it polls its peers, and a
//! peer that does not answer counts as unreachable.
//!
//! Peers talk over mutual TLS; a peer's node id stands in its certificate.

mod capacity;
mod create;
mod forgotten;
mod gather;
mod group;
mod listener;
mod members;
mod message;
mod peers;
mod router;
mod target;
mod tls;
mod turns;
mod volume_group;

pub use listener::{PeerGate, PeerListener};
pub use peers::{Informed, Peers, PeersConfig};
pub use router::Router;
pub use tls::{OwnCertificate, TlsError, TlsFiles, TlsIdentity, fits_in_a_certificate};
