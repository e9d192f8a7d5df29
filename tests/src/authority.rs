//! Certificates for daemons that call each other.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    ca: String,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("make a key");
        let mut params = CertificateParams::new(Vec::new()).expect("describe the authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).expect("sign the authority").pem();
        Self { issuer: Issuer::new(params, key), ca }
    }

    /// Writes the files for this node, and returns the variables that name them.
    pub fn issue(&self, node: &str, directory: &Path) -> [(&'static str, PathBuf); 3] {
        let key = KeyPair::generate().expect("make a key");
        let params = CertificateParams::new(vec![node.to_owned()]).expect("describe the node");
        let certificate = params.signed_by(&key, &self.issuer).expect("sign the certificate");
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            std::fs::write(&path, text).expect("write a certificate");
            path
        };
        [
            ("ORLOP_PEER_CERTIFICATE", write("tls.crt", &certificate.pem())),
            ("ORLOP_PEER_KEY", write("tls.key", &key.serialize_pem())),
            ("ORLOP_PEER_CA", write("ca.crt", &self.ca)),
        ]
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
