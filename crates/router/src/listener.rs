//! Where peers connect: TCP, mutual TLS, and nothing before that.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use orlop_csi::CallService;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::Stream;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::transport::server::Connected;
use tower::Service;

use crate::target::NODE;
use crate::tls::{TlsIdentity, is_named};

/// Routers have one connection to each peer; more than this are not peers.
const CONNECTIONS: usize = 256;
const HANDSHAKE: Duration = Duration::from_secs(5);
/// After an error of accept, as when there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

pub struct PeerListener {
    connections: mpsc::Receiver<io::Result<PeerConnection>>,
    address: SocketAddr,
    accepting: tokio::task::JoinHandle<()>,
}

impl PeerListener {
    pub async fn bind(address: SocketAddr, identity: Arc<TlsIdentity>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (sender, connections) = mpsc::channel(1);
        let accepting = tokio::spawn(accept(listener, identity, sender));
        Ok(Self { connections, address, accepting })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for PeerListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Stream for PeerListener {
    type Item = io::Result<PeerConnection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.connections.poll_recv(context)
    }
}

async fn accept(
    listener: TcpListener,
    identity: Arc<TlsIdentity>,
    sender: mpsc::Sender<io::Result<PeerConnection>>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // One that finds no place waits in the backlog.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of a peer; trying again");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (identity, sender) = (Arc::clone(&identity), sender.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE, greet(stream, &identity, place)).await {
                // The receiver is gone only if the daemon stops.
                Ok(Ok(connection)) => drop(sender.send(Ok(connection)).await),
                Ok(Err(error)) => {
                    tracing::warn!(%from, %error, "refused a connection to the peers' port")
                }
                Err(_) => {
                    tracing::warn!(%from, "refused a connection to the peers' port: no handshake in time")
                }
            }
        });
    }
}

async fn greet(
    stream: TcpStream,
    identity: &TlsIdentity,
    place: OwnedSemaphorePermit,
) -> io::Result<PeerConnection> {
    stream.set_nodelay(true)?;
    let server = Arc::clone(&identity.current().server);
    let stream = TlsAcceptor::from(server).accept(stream).await?;
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let own = certificates.first().map(|certificate| certificate.clone().into_owned());
    let certificate = own.ok_or_else(|| io::Error::other("the peer has shown no certificate"))?;
    Ok(PeerConnection {
        stream,
        certificate: PeerCertificate(Arc::new(certificate)),
        _place: place,
    })
}

pub struct PeerConnection {
    stream: TlsStream<TcpStream>,
    certificate: PeerCertificate,
    _place: OwnedSemaphorePermit,
}

/// Of the peer that a call came from.
#[derive(Clone)]
pub struct PeerCertificate(Arc<CertificateDer<'static>>);

impl Connected for PeerConnection {
    type ConnectInfo = PeerCertificate;

    fn connect_info(&self) -> PeerCertificate {
        self.certificate.clone()
    }
}

impl AsyncRead for PeerConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for PeerConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Lets calls through whose caller is the node that its certificate is for.
#[derive(Clone)]
pub struct PeerGate<S> {
    inner: S,
}

impl<S: CallService> PeerGate<S> {
    pub fn before(inner: S) -> Self {
        Self { inner }
    }
}

impl<S: CallService> Service<Request<Body>> for PeerGate<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = orlop_csi::Answering;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match check_caller(&request) {
            Ok(()) => Box::pin(self.inner.call(request)),
            Err(refusal) => Box::pin(std::future::ready(Ok(refusal.into_http()))),
        }
    }
}

fn check_caller(request: &Request<Body>) -> Result<(), Status> {
    let named = request.headers().get(NODE).and_then(|value| value.to_str().ok());
    let named = named.unwrap_or_default();
    let certificate = request.extensions().get::<PeerCertificate>();
    if certificate.is_some_and(|certificate| is_named(&certificate.0, named)) {
        return Ok(());
    }
    let shown = orlop_model::id::shown(named);
    tracing::warn!(node = shown, "refused a call of a peer whose certificate is for another node");
    Err(Status::unauthenticated(format!(
        "the caller says that it is node {shown:?}, and its certificate is for another one; give each \
         daemon a certificate with its own node id"
    )))
}
