//! Where peers connect: TCP, mutual TLS, and nothing before that.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use orlop_csi::CallService;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::AbortHandle;
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

/// Each daemon opens two to every peer, and some more while it starts again: enough for a thousand daemons.
const CONNECTIONS: usize = 2048;
/// At once; with one more, the oldest is closed.
const HANDSHAKES: usize = 64;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// After an error of accept, as when there are no descriptors left.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

pub struct PeerListener {
    connections: mpsc::Receiver<io::Result<PeerConnection>>,
    address: SocketAddr,
    accepting: tokio::task::JoinHandle<()>,
}

impl PeerListener {
    pub async fn bind(address: SocketAddr, identity: Arc<TlsIdentity>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (sender, connections) = mpsc::channel(CONNECTIONS);
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
    let admission = Arc::new(Admission {
        identity,
        permits: Arc::new(Semaphore::new(CONNECTIONS)),
        sender,
        refusals: RefusalLog::default(),
    });
    let mut handshakes = Handshakes::default();
    loop {
        match listener.accept().await {
            Ok((stream, from)) => handshakes.begin(Arc::clone(&admission).admit(stream, from)),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of a peer; trying again");
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
            }
        }
    }
}

/// Connections that have not shown a certificate yet; they end with the listener. Anything that reaches the port
/// can open one, so they do not count against the connection limit of peers, and beyond their own limit the
/// oldest is closed: the handshake of a peer takes milliseconds.
#[derive(Default)]
struct Handshakes(VecDeque<AbortHandle>);

impl Handshakes {
    fn begin(&mut self, handshake: impl Future<Output = ()> + Send + 'static) {
        self.0.retain(|handshake| !handshake.is_finished());
        if self.0.len() >= HANDSHAKES
            && let Some(oldest) = self.0.pop_front()
        {
            tracing::debug!("too many connections to the peers' port; closing the oldest");
            oldest.abort();
        }
        self.0.push_back(tokio::spawn(handshake).abort_handle());
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        for handshake in &self.0 {
            handshake.abort();
        }
    }
}

/// Checks the certificate of a connection, and the connection limit.
struct Admission {
    identity: Arc<TlsIdentity>,
    permits: Arc<Semaphore>,
    sender: mpsc::Sender<io::Result<PeerConnection>>,
    refusals: RefusalLog,
}

impl Admission {
    async fn admit(self: Arc<Self>, stream: TcpStream, from: SocketAddr) {
        let shown =
            tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake(stream, &self.identity)).await;
        let shown = shown.unwrap_or_else(|_| Err(io::Error::other("no handshake in time")));
        let admitted = shown.and_then(|(stream, certificate)| {
            let permit = Arc::clone(&self.permits).try_acquire_owned();
            let full = || io::Error::other(format!("{CONNECTIONS} peers are connected already"));
            Ok(PeerConnection { stream, certificate, _permit: permit.map_err(|_| full())? })
        });
        match admitted {
            // The channel holds as many as there are permits; the receiver is gone only if the daemon stops.
            Ok(connection) => drop(self.sender.try_send(Ok(connection))),
            Err(error) => self.refusals.warn(from, &error),
        }
    }
}

async fn handshake(
    stream: TcpStream,
    identity: &TlsIdentity,
) -> io::Result<(TlsStream<TcpStream>, PeerCertificate)> {
    stream.set_nodelay(true)?;
    let server = Arc::clone(&identity.current().server);
    let stream = TlsAcceptor::from(server).accept(stream).await?;
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let own = certificates.first().map(|certificate| certificate.clone().into_owned());
    let own = own.ok_or_else(|| io::Error::other("the peer sent no certificate"))?;
    Ok((stream, PeerCertificate(Arc::new(own))))
}

/// One line in ten seconds: anything that reaches the port could fill the log.
#[derive(Default)]
struct RefusalLog(Mutex<RefusalCounts>);

#[derive(Default)]
struct RefusalCounts {
    logged: Option<Instant>,
    unlogged: u64,
}

impl RefusalLog {
    fn warn(&self, from: SocketAddr, error: &io::Error) {
        let mut refusals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.logged.is_some_and(|last| last.elapsed() < REFUSAL_LOG_INTERVAL) {
            refusals.unlogged += 1;
            return;
        }
        let unlogged = std::mem::take(&mut refusals.unlogged);
        refusals.logged = Some(Instant::now());
        tracing::warn!(%from, %error, unlogged, "refused a connection to the peers' port");
    }
}

pub struct PeerConnection {
    stream: TlsStream<TcpStream>,
    certificate: PeerCertificate,
    _permit: OwnedSemaphorePermit,
}

/// The certificate of the peer that sent a call.
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
        "the caller claims to be node {shown:?}, but its certificate is for another one; give each \
         daemon a certificate with its own node id"
    )))
}
