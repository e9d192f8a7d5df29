//! The connection to a peer, and the first question over it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use orlop_csi::proto::peer;
use orlop_csi::proto::peer::peer_client::PeerClient;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::codegen::http::{HeaderValue, Uri};
use tonic::transport::{Channel, Endpoint};

use super::PEER_TIMEOUT;
use super::description::{Description, PeerReports};
use crate::target::{PeerTarget, Target, causes};
use crate::tls::{TlsIdentity, is_named};

/// A peer that lost its power is noticed after this twice, while a call waits for it.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// What a peer may send of one answer before it is read. Streams that are not read leave room for others:
/// a connection takes that much of each of the 256 calls that it may have.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 256 * STREAM_WINDOW;

/// A peer that has answered.
pub(super) struct PeerAnswer {
    pub(super) description: Description,
    pub(super) reports: PeerReports,
    pub(super) channels: Channels,
}

/// Questions about the peer itself have their own connection: however many calls wait on the other, or
/// streams are not read, the peer does not count as unreachable.
#[derive(Clone)]
pub(super) struct Channels {
    /// The node that the certificate at the other end is for.
    node: String,
    pub(super) calls: Channel,
    pub(super) questions: Channel,
}

/// What a peer says of itself, or why it says nothing.
pub(super) type Answer = Result<PeerAnswer, String>;

/// Over the connection that there is, or a new one.
pub(super) async fn ask(
    address: SocketAddr,
    known: Option<Channels>,
    identity: Arc<TlsIdentity>,
    caller: HeaderValue,
) -> Answer {
    if let Some(channels) = known
        && let Ok((description, reports)) = describe(address, &channels.questions, &caller).await
        && description.node == channels.node
    {
        return Ok(PeerAnswer { description, reports, channels });
    }
    let certificate = Arc::new(Mutex::new(None));
    let expected = Arc::new(OnceLock::new());
    let questions = connect(address, &identity, &certificate, &expected).await?;
    let (description, reports) = describe(address, &questions, &caller).await?;
    let shown = certificate.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if !shown.is_some_and(|certificate| is_named(&certificate, &description.node)) {
        return Err(format!(
            "it claims to be node {:?}, but its certificate is for another one",
            description.node
        ));
    }
    // A channel connects again by itself, and then it has to be the same node.
    let node = description.node.clone();
    let _ = expected.set(node.clone());
    let calls = connect(address, &identity, &certificate, &expected).await?;
    Ok(PeerAnswer { description, reports, channels: Channels { node, calls, questions } })
}

async fn describe(
    address: SocketAddr,
    channel: &Channel,
    caller: &HeaderValue,
) -> Result<(Description, PeerReports), String> {
    let (node, channel) = (address.to_string(), channel.clone());
    let target = PeerTarget { node, channel, caller: caller.clone() };
    let mut client = PeerClient::new(Target::Peer(target));
    let described = client.describe(peer::DescribeRequest {}).await;
    let described = described.map_err(|status| status.message().to_owned())?.into_inner();
    Ok((Description::parse(&described)?, PeerReports::parse(&described)))
}

type Shown = Arc<Mutex<Option<CertificateDer<'static>>>>;

async fn connect(
    address: SocketAddr,
    identity: &Arc<TlsIdentity>,
    shown: &Shown,
    expected: &Arc<OnceLock<String>>,
) -> Result<Channel, String> {
    let (identity, shown, expected) =
        (Arc::clone(identity), Arc::clone(shown), Arc::clone(expected));
    let connector = tower::service_fn(move |_: Uri| {
        let (identity, shown, expected) =
            (Arc::clone(&identity), Arc::clone(&shown), Arc::clone(&expected));
        async move {
            let stream = greet(address, &identity).await?;
            let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let certificate = certificates.first().map(|first| first.clone().into_owned());
            if let (Some(node), Some(certificate)) = (expected.get(), &certificate)
                && !is_named(certificate, node)
            {
                let why = format!("the certificate at {address} is no longer that of node {node}");
                return Err(std::io::Error::other(why));
            }
            *shown.lock().unwrap_or_else(PoisonError::into_inner) = certificate;
            Ok(TokioIo::new(stream))
        }
    });
    Endpoint::from_static("http://peer")
        .connect_timeout(PEER_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .connect_with_connector(connector)
        .await
        .map_err(|error| causes(&error))
}

async fn greet(
    address: SocketAddr,
    identity: &TlsIdentity,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let client = Arc::clone(&identity.current().client);
    // Not verified by name: which node is there is not known before it says so.
    let name = ServerName::from(address.ip());
    TlsConnector::from(client).connect(name, stream).await
}
