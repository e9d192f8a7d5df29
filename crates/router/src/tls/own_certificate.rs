//! A certificate that this daemon signs for itself, where it has the key of the CA: so that a DaemonSet, whose
//! pods all have the same files, still has a certificate for each node.

use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// For as long as a daemon can go without renewing it: it is suspended, or the files of the CA are missing.
const VALID_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

pub(super) const RENEWED_AFTER: Duration = DAY;

type Signed = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The key exists in memory only. `ca_key` is that of the first of the certificates, as PEM.
pub(super) fn sign(
    node: &str,
    ca: &[CertificateDer<'static>],
    ca_key: &[u8],
) -> Result<Signed, String> {
    let text = std::str::from_utf8(ca_key).map_err(|error| error.to_string())?;
    let wrong = |error: rcgen::Error| {
        format!("{error}; an Ed25519, ECDSA or RSA key as PKCS#8 (BEGIN PRIVATE KEY) is needed")
    };
    let ca_key = KeyPair::from_pem(text).map_err(wrong)?;
    let first = ca.first().ok_or("the file of the CA has no certificate")?;
    let failed = |error: rcgen::Error| error.to_string();
    let issuer = Issuer::from_ca_cert_der(first, ca_key).map_err(failed)?;
    let mut wanted = CertificateParams::new([node.to_owned()]).map_err(failed)?;
    wanted.distinguished_name.push(DnType::CommonName, node);
    wanted.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let now = SystemTime::now();
    // The clocks of two nodes differ.
    wanted.not_before = (now - DAY).into();
    wanted.not_after = (now + VALID_FOR).into();
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = wanted.signed_by(&key, &issuer).map_err(failed)?;
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    Ok((vec![certificate.der().clone()], key.into()))
}
