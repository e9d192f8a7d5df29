//! Carries calls to the daemon that can answer them, so that an orchestrator sees one plugin.
//!
//! The id of a volume or snapshot names its pool, and peers say which pools they serve, so the way of a
//! call is a function of its id. Only creation, lists and capacity need more. A router keeps nothing: what
//! it knows it has learned from its peers, and a peer that does not answer is away, which is an answer too.
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
