//! Certificates: read from files, read again when they change.
//!
//! An expired certificate does not keep a daemon from starting: volumes of its node need no peer.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore,
    ServerConfig, SignatureScheme,
};

mod own_certificate;
mod validity;

use validity::Validity;

/// Between two checks whether the files have changed.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// For the filesystem that the files are on.
const READ_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub own: OwnCertificate,
    /// The certificates that peers' certificates have to be signed by.
    pub ca: PathBuf,
}

/// Where the certificate of this daemon comes from.
#[derive(Debug, Clone)]
pub enum OwnCertificate {
    /// Files: the certificate and those between it and the CA, and its key, as PEM.
    Files { certificate: PathBuf, key: PathBuf },
    /// This daemon signs it, with the key of the first certificate in the file of the CA.
    SignedHere { ca_key: PathBuf },
}

impl TlsFiles {
    /// The file to name when the daemon's certificate cannot be used.
    fn of_own(&self) -> &PathBuf {
        match &self.own {
            OwnCertificate::Files { certificate, .. } => certificate,
            OwnCertificate::SignedHere { ca_key } => ca_key,
        }
    }

    fn not_signed(&self, error: rustls::Error) -> TlsError {
        let ca = self.ca.display();
        let reason = match (&self.own, error) {
            (OwnCertificate::SignedHere { .. }, _) => {
                format!("it is not the key of the first certificate in {ca}")
            }
            // Two authorities may have one name.
            (
                _,
                rustls::Error::InvalidCertificate(
                    CertificateError::UnknownIssuer | CertificateError::BadSignature,
                ),
            ) => format!("it is not signed by a certificate in {ca}"),
            (_, other) => format!("it cannot be verified with {ca}: {other}"),
        };
        unusable(self.of_own(), reason)
    }
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
    is_reading: AtomicBool,
    /// Why the files cannot be used now, which is logged once.
    failure: Mutex<Option<String>>,
}

pub(crate) struct Loaded {
    contents: Vec<Vec<u8>>,
    at: Instant,
    validity: Validity,
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

impl TlsIdentity {
    pub fn load(files: TlsFiles, node: &str) -> Result<Self, TlsError> {
        let loaded = Loaded::of(&files, node, read_all(&files)?)?;
        Ok(Self {
            files,
            node: node.to_owned(),
            loaded: RwLock::new(Arc::new(loaded)),
            is_reading: AtomicBool::new(false),
            failure: Mutex::default(),
        })
    }

    pub(crate) fn current(&self) -> Arc<Loaded> {
        Arc::clone(&self.loaded.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Renews the certificate when its files change, for as long as it is polled. For a daemon that listens for peers and
    /// asks none: one that asks renews it then.
    pub async fn watch(self: Arc<Self>) {
        loop {
            Arc::clone(&self).refresh_in_time().await;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// What is wrong with the certificate's time, if something is.
    /// When the first of the daemon's own certificates expires, as Unix time.
    pub fn expiry(&self) -> Option<u64> {
        self.current().validity.expiry()
    }

    pub fn warning(&self) -> Option<String> {
        self.current().validity.problem(UnixTime::now()).map(|problem| problem.to_string())
    }

    fn check_is_better(&self, loaded: &Loaded) -> Result<(), TlsError> {
        let now = UnixTime::now();
        let is_refused = |loaded: &Loaded| loaded.validity.is_refused(now);
        match is_refused(loaded) && !is_refused(&self.current()) {
            true => Err(unusable(self.files.of_own(), "it, or its CA, is not valid at this time")),
            false => Ok(()),
        }
    }

    /// Reads the files again, without waiting for a filesystem that hangs.
    pub(crate) async fn refresh_in_time(self: Arc<Self>) {
        if self.is_reading.swap(true, Ordering::AcqRel) {
            return;
        }
        let reading = tokio::task::spawn_blocking(move || {
            self.refresh();
            self.is_reading.store(false, Ordering::Release);
        });
        if tokio::time::timeout(READ_TIMEOUT, reading).await.is_err() {
            tracing::error!(
                "cannot read the certificate for peers: its filesystem does not answer"
            );
        }
    }

    /// Files that cannot be used are logged and not taken: a renewal may be half done.
    fn refresh(&self) {
        let reloaded = read_all(&self.files).and_then(|contents| {
            if !self.current().is_outdated(&self.files, &contents) {
                return Ok(None);
            }
            let loaded = Loaded::of(&self.files, &self.node, contents)?;
            self.check_is_better(&loaded)?;
            Ok(Some(loaded))
        });
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match reloaded {
            Ok(loaded) => {
                *failure = None;
                if let Some(loaded) = loaded {
                    *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
                    tracing::info!("the certificate for peers was renewed");
                }
            }
            Err(error) => {
                let why = error.to_string();
                if failure.as_ref() != Some(&why) {
                    tracing::error!(
                        %error,
                        "cannot renew the certificate for peers; the former one stays in use"
                    );
                    *failure = Some(why);
                }
            }
        }
        drop(failure);
        self.current().validity.log_change(UnixTime::now());
    }
}

/// The file of the CA, and those of the daemon's certificate.
fn read_all(files: &TlsFiles) -> Result<Vec<Vec<u8>>, TlsError> {
    let read = |path: &PathBuf| {
        read_file(path)
            .map_err(|source| TlsError::Read { path: path.display().to_string(), source })
    };
    let mut contents = vec![read(&files.ca)?];
    match &files.own {
        OwnCertificate::Files { certificate, key } => {
            contents.extend([read(certificate)?, read(key)?]);
        }
        OwnCertificate::SignedHere { ca_key } => contents.push(read(ca_key)?),
    }
    Ok(contents)
}

/// A named pipe would be waited for.
fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    match std::fs::metadata(path)?.is_file() {
        true => std::fs::read(path),
        false => Err(std::io::Error::other("it is not a regular file")),
    }
}

fn unusable(path: &Path, reason: impl ToString) -> TlsError {
    TlsError::Unusable { path: path.display().to_string(), reason: reason.to_string() }
}

impl Loaded {
    fn of(files: &TlsFiles, node: &str, contents: Vec<Vec<u8>>) -> Result<Self, TlsError> {
        let part = |index: usize| contents.get(index).map_or(&[][..], Vec::as_slice);
        let trusted = certificates(part(0)).map_err(|why| unusable(&files.ca, why))?;
        let (chain, key) = match &files.own {
            OwnCertificate::Files { certificate, key } => (
                certificates(part(1)).map_err(|why| unusable(certificate, why))?,
                PrivateKeyDer::from_pem_slice(part(2)).map_err(|error| unusable(key, error))?,
            ),
            OwnCertificate::SignedHere { ca_key } => own_certificate::sign(node, &trusted, part(1))
                .map_err(|why| unusable(ca_key, why))?,
        };
        let mut roots = RootCertStore::empty();
        for root in trusted {
            roots.add(root).map_err(|error| unusable(&files.ca, error))?;
        }
        let roots = Arc::new(roots);
        let validity = Validity::new(chain.clone(), Arc::clone(&roots));
        validity.check_signed(UnixTime::now()).map_err(|error| files.not_signed(error))?;
        if !chain.first().is_some_and(|own| is_named(own, node)) {
            let path = files.of_own().display().to_string();
            return Err(TlsError::OtherNode { path, node: node.to_owned() });
        }
        let configs = configs(chain, key, roots);
        let (client, server) = configs.map_err(|error| unusable(files.of_own(), error))?;
        let (client, server) = (Arc::new(client), Arc::new(server));
        Ok(Self { contents, at: Instant::now(), validity, client, server })
    }

    /// Also a certificate that was signed here, long before its end.
    fn is_outdated(&self, files: &TlsFiles, contents: &[Vec<u8>]) -> bool {
        let is_signed_here = matches!(files.own, OwnCertificate::SignedHere { .. });
        contents != self.contents
            || is_signed_here && self.at.elapsed() > own_certificate::RENEWED_AFTER
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
    // A resumed session shows no certificate: one that has expired would be taken for as long as there are tickets.
    client.resumption = Resumption::disabled();
    server.send_tls13_tickets = 0;
    for protocols in [&mut client.alpn_protocols, &mut server.alpn_protocols] {
        *protocols = vec![b"h2".to_vec()];
    }
    Ok((client, server))
}

/// A DNS name, or an address: some clusters name their nodes so.
pub fn fits_in_a_certificate(node: &str) -> bool {
    !node.contains('_') && ServerName::try_from(node).is_ok()
}

/// Is the certificate one of this node? Node ids are DNS names in it.
pub(crate) fn is_named(certificate: &CertificateDer<'_>, node: &str) -> bool {
    let Ok(name) = ServerName::try_from(node) else { return false };
    ParsedCertificate::try_from(certificate)
        .and_then(|certificate| verify_server_name(&certificate, &name))
        .is_ok()
}

fn check_signed(
    certificate: &CertificateDer<'_>,
    between: &[CertificateDer<'_>],
    roots: &RootCertStore,
    now: UnixTime,
) -> Result<(), rustls::Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&parsed, roots, between, now, algorithms)
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
        check_signed(end_entity, intermediates, &self.roots, now)?;
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

#[cfg(test)]
mod tests;
