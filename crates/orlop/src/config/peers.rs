//! Peers: the daemons that calls are forwarded to, and the address at which they reach this one.

use std::net::SocketAddr;
use std::path::PathBuf;

use orlop_model::NodeId;
use orlop_router::{OwnCertificate, TlsFiles};

use super::ConfigError;
use super::file::PeerSettings;

#[derive(Debug, Clone)]
pub(crate) struct PeerConfig {
    /// Where peers reach this daemon; none: no peer does.
    pub(crate) listen: Option<SocketAddr>,
    /// The addresses of the peers that calls are forwarded to; empty: this daemon answers every call itself.
    pub(crate) addresses: Vec<String>,
    pub(crate) files: TlsFiles,
}

/// `None`: this daemon neither forwards calls nor answers those of peers.
pub(super) fn validate(
    given: PeerSettings,
    node: &NodeId,
    is_router: bool,
) -> Result<Option<PeerConfig>, ConfigError> {
    let PeerSettings { addresses, listen, certificate, key, ca, ca_key } = given;
    if is_router && addresses.is_empty() {
        return Err(ConfigError::new(
            "ORLOP_PEERS",
            "is not set, and a router has no pools; name the daemons to forward calls to, as HOST:PORT",
        ));
    }
    for address in &addresses {
        check_address(address)?;
    }
    let files = [
        ("ORLOP_PEER_CERTIFICATE", certificate),
        ("ORLOP_PEER_KEY", key),
        ("ORLOP_PEER_CA", ca),
        ("ORLOP_PEER_CA_KEY", ca_key),
    ];
    if addresses.is_empty() && listen.is_none() {
        return match files.into_iter().find(|(_, file)| file.is_some()) {
            None => Ok(None),
            Some((setting, _)) => Err(ConfigError::new(
                setting,
                "is for peers; set ORLOP_PEERS or ORLOP_PEER_LISTEN as well",
            )),
        };
    }
    let files = tls_files(files)?;
    let listen = listen.map(|text| listen_address(&text)).transpose()?;
    if !orlop_router::fits_in_a_certificate(&node.to_string()) {
        return Err(ConfigError::new(
            "ORLOP_NODE_ID",
            format!(
                "{node} cannot be used in a certificate, where it is a DNS name; choose one of \
                 letters, digits and '-', whose last part is not a number"
            ),
        ));
    }
    Ok(Some(PeerConfig { listen, addresses, files }))
}

fn tls_files(files: [(&str, Option<PathBuf>); 4]) -> Result<TlsFiles, ConfigError> {
    let [certificate, key, ca, ca_key] = files;
    let own = match (ca_key, &certificate, &key) {
        ((_, None), _, _) => OwnCertificate::Files {
            certificate: required(certificate.0, certificate.1)?,
            key: required(key.0, key.1)?,
        },
        ((setting, Some(_)), (_, Some(_)), _) | ((setting, Some(_)), _, (_, Some(_))) => {
            return Err(ConfigError::new(
                setting,
                "is for a daemon that signs its certificate itself; take out ORLOP_PEER_CERTIFICATE and \
                 ORLOP_PEER_KEY, or this",
            ));
        }
        ((setting, file), _, _) => OwnCertificate::SignedHere { ca_key: required(setting, file)? },
    };
    Ok(TlsFiles { own, ca: required(ca.0, ca.1)? })
}

fn required(setting: &str, file: Option<PathBuf>) -> Result<PathBuf, ConfigError> {
    let missing = "is not set; peers prove who they are by certificates, so name the PEM file";
    let file = file.ok_or_else(|| ConfigError::new(setting, missing))?;
    if !file.is_absolute() {
        return Err(ConfigError::new(setting, "is not the absolute path of a file"));
    }
    Ok(file)
}

fn check_address(address: &str) -> Result<(), ConfigError> {
    let parts = address.rsplit_once(':');
    if parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
        return Ok(());
    }
    Err(ConfigError::new("ORLOP_PEERS", format!("{address:?} is not HOST:PORT")))
}

fn listen_address(text: &str) -> Result<SocketAddr, ConfigError> {
    text.parse().map_err(|_| {
        let problem = format!("{text:?} is not an address such as 0.0.0.0:7420 or [::]:7420");
        ConfigError::new("ORLOP_PEER_LISTEN", problem)
    })
}
