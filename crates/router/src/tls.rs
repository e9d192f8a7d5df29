//! Certificates: read from files, read again when they change.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme,
};

#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate of this daemon and those between it and the CA, as PEM.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// The certificates that peers' certificates have to be signed by.
    pub ca: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: std::io::Error },

    #[error("cannot use {path}: {reason}")]
    Unusable { path: String, reason: String },

    #[error(
        "cannot use {path}: it is not for node {node}; the node's id has to be among the DNS names \
         of its certificate"
    )]
    OtherNode { path: String, node: String },
}

/// This daemon to its peers.
pub struct TlsIdentity {
    files: TlsFiles,
    node: String,
    loaded: RwLock<Arc<Loaded>>,
}

pub(crate) struct Loaded {
    contents: [Vec<u8>; 3],
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

impl TlsIdentity {
    pub fn load(files: TlsFiles, node: &str) -> Result<Self, TlsError> {
        let loaded = Loaded::of(&files, node, read_all(&files)?)?;
        Ok(Self { files, node: node.to_owned(), loaded: RwLock::new(Arc::new(loaded)) })
    }

    pub(crate) fn current(&self) -> Arc<Loaded> {
        Arc::clone(&self.loaded.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files again. Those that cannot be used are logged and not taken: a renewal may be half done.
    pub(crate) fn refresh(&self) {
        let reloaded = read_all(&self.files).and_then(|contents| {
            if contents == self.current().contents {
                return Ok(None);
            }
            Loaded::of(&self.files, &self.node, contents).map(Some)
        });
        match reloaded {
            Ok(None) => {}
            Ok(Some(loaded)) => {
                *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
                tracing::info!("the certificate for peers was renewed");
            }
            Err(error) => tracing::error!(
                %error,
                "cannot renew the certificate for peers; the former one stays in use"
            ),
        }
    }
}

fn read_all(files: &TlsFiles) -> Result<[Vec<u8>; 3], TlsError> {
    let read = |path: &PathBuf| {
        std::fs::read(path)
            .map_err(|source| TlsError::Read { path: path.display().to_string(), source })
    };
    Ok([read(&files.certificate)?, read(&files.key)?, read(&files.ca)?])
}

impl Loaded {
    fn of(files: &TlsFiles, node: &str, contents: [Vec<u8>; 3]) -> Result<Self, TlsError> {
        let unusable = |path: &PathBuf, reason: String| TlsError::Unusable {
            path: path.display().to_string(),
            reason,
        };
        let [certificate, key, ca] = &contents;
        let chain = certificates(certificate).map_err(|why| unusable(&files.certificate, why))?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| unusable(&files.key, error.to_string()))?;
        let mut roots = RootCertStore::empty();
        for root in certificates(ca).map_err(|why| unusable(&files.ca, why))? {
            roots.add(root).map_err(|error| unusable(&files.ca, error.to_string()))?;
        }
        if !chain.first().is_some_and(|own| is_named(own, node)) {
            let path = files.certificate.display().to_string();
            return Err(TlsError::OtherNode { path, node: node.to_owned() });
        }
        let configs = configs(chain, key, Arc::new(roots));
        let (client, server) =
            configs.map_err(|error| unusable(&files.certificate, error.to_string()))?;
        Ok(Self { contents, client: Arc::new(client), server: Arc::new(server) })
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| error.to_string())?;
    if found.is_empty() {
        return Err("there is no certificate in it".to_owned());
    }
    Ok(found)
}

fn configs(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
) -> Result<(ClientConfig, ServerConfig), Box<dyn std::error::Error + Send + Sync>> {
    let provider = Arc::new(ring::default_provider());
    let verifier = SignedByCa { roots: Arc::clone(&roots), provider: Arc::clone(&provider) };
    let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(chain.clone(), key.clone_key())?;
    let callers =
        WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build()?;
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(callers)
        .with_single_cert(chain, key)?;
    for protocols in [&mut client.alpn_protocols, &mut server.alpn_protocols] {
        *protocols = vec![b"h2".to_vec()];
    }
    Ok((client, server))
}

/// Is the certificate one of this node? Node ids are DNS names in it.
pub(crate) fn is_named(certificate: &CertificateDer<'_>, node: &str) -> bool {
    let Ok(name) = ServerName::try_from(node) else { return false };
    ParsedCertificate::try_from(certificate)
        .and_then(|certificate| verify_server_name(&certificate, &name))
        .is_ok()
}

/// A peer is found by an address, and says itself who it is: so here its certificate has to be signed by
/// the CA, and its name is compared with its node id afterwards.
#[derive(Debug)]
struct SignedByCa {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for SignedByCa {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        None
    }
}
