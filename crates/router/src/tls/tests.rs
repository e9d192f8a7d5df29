#![allow(clippy::unwrap_used)]

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::{ClientConnection, HandshakeKind, ServerConnection};

use super::*;

fn identity() -> (tempfile::TempDir, TlsIdentity) {
    let directory = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let (ca, ca_key) = (directory.path().join("ca.crt"), directory.path().join("ca.key"));
    std::fs::write(&ca, params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(&ca_key, key.serialize_pem()).unwrap();
    let files = TlsFiles { own: OwnCertificate::SignedHere { ca_key }, ca };
    let identity = TlsIdentity::load(files, "a").unwrap();
    (directory, identity)
}

/// Until neither has anything more to say, session tickets included.
fn converse(client: &mut ClientConnection, server: &mut ServerConnection) {
    while client.wants_write() || server.wants_write() {
        let mut sent = Vec::new();
        client.write_tls(&mut sent).unwrap();
        server.read_tls(&mut sent.as_slice()).unwrap();
        server.process_new_packets().unwrap();
        let mut sent = Vec::new();
        server.write_tls(&mut sent).unwrap();
        client.read_tls(&mut sent.as_slice()).unwrap();
        client.process_new_packets().unwrap();
    }
}

/// Or an expired certificate would be taken on the word of an earlier connection.
#[test]
fn each_connection_shows_certificates() {
    let (_directory, identity) = identity();
    let loaded = identity.current();
    for _ in 0..3 {
        let name = ServerName::try_from("a").unwrap();
        let mut client = ClientConnection::new(Arc::clone(&loaded.client), name).unwrap();
        let mut server = ServerConnection::new(Arc::clone(&loaded.server)).unwrap();
        converse(&mut client, &mut server);
        assert_eq!(server.handshake_kind(), Some(HandshakeKind::Full));
        assert!(server.peer_certificates().is_some());
    }
}
