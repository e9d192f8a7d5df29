//! Serves the services on a socket until a signal stops it.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Sleep;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tower::Service;

use crate::call_stats::CallStats;
use crate::connections::{Connection, ConnectionTable};
use crate::executor::Executor;
use crate::http2::Lenient;
use crate::layers::ObserveCalls;
use crate::socket::Socket;
use crate::socket_watch::keep_reachable;

/// Calls at once on one connection; more than any orchestrator makes, and a bound.
const CALLS_PER_CONNECTION: u32 = 256;

/// Twice this long after it has lost its power, a peer holds nothing any more.
const PEER_KEEPALIVE: Duration = Duration::from_secs(10);

const SLOW_READER_GRACE: Duration = Duration::from_secs(3);

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on the socket: {0}")]
    Listen(#[from] io::Error),

    #[error("cannot serve: {0}")]
    Serve(#[from] tonic::transport::Error),
}

/// What answers the calls of a socket: [`Routes`](crate::Routes), or a router before them.
pub trait CallService:
    Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> CallService for S where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// Answers calls until `shutdown` is done. Then no new connection is accepted, calls that run
/// are answered, streams are ended, operations whose callers hung up are waited for, and the
/// socket is removed. How long that may take is up to the caller: dropping the future ends it,
/// and removes the socket all the same.
pub async fn serve(
    mut socket: Socket,
    executor: Arc<Executor>,
    service: impl CallService,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let (connections, renew) = Connections::of(&mut socket, executor.calls())?;
    let table = connections.table.clone();
    let (stop, stopping) = oneshot::channel();
    let shutdown = async {
        shutdown.await;
        executor.end_streams();
        // The receiver is gone only if serving has ended by itself.
        let _ = stop.send(());
    };
    let serving = Server::builder()
        .max_concurrent_streams(CALLS_PER_CONNECTION)
        .layer(ObserveCalls::counted_by(executor.calls()))
        .serve_with_incoming_shutdown(service, connections, shutdown);
    tokio::select! {
        served = serving => served?,
        // With two sockets, both look: a pool is asked when it is due, however many do.
        () = executor.watch_pools() => {}
        never = keep_reachable(&mut socket, renew) => match never {},
        () = left_unread(&executor, stopping) => {
            tracing::warn!("stopping without waiting for clients that do not read their responses");
            table.hang_up();
        }
    }
    executor.drained().await;
    Ok(())
}

/// As [`serve`], for the connections of other daemons. One that is gone without a word is noticed, as it may
/// hold names.
pub async fn serve_peers<C>(
    connections: impl Stream<Item = io::Result<C>>,
    executor: Arc<Executor>,
    service: impl CallService,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError>
where
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let (stop, stopping) = oneshot::channel();
    let shutdown = async {
        shutdown.await;
        // The receiver is gone only if serving has ended by itself.
        let _ = stop.send(());
    };
    let serving = Server::builder()
        .max_concurrent_streams(CALLS_PER_CONNECTION)
        .http2_keepalive_interval(Some(PEER_KEEPALIVE))
        .http2_keepalive_timeout(Some(PEER_KEEPALIVE))
        .layer(ObserveCalls::counted_by(executor.calls()))
        .serve_with_incoming_shutdown(service, connections, shutdown);
    tokio::select! {
        served = serving => Ok(served?),
        () = left_unread(&executor, stopping) => {
            tracing::warn!("stopping without waiting for peers that keep their calls open");
            Ok(())
        }
    }
}

/// As [`serve`], for kubelet's questions about this plugin: none of them takes time, so a stop waits for
/// nothing. The socket is removed at the end.
pub async fn serve_registration(
    mut socket: Socket,
    service: impl CallService,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let calls = Arc::default();
    let (connections, renew) = Connections::of(&mut socket, &calls)?;
    let table = connections.table.clone();
    let serving = Server::builder()
        .max_concurrent_streams(CALLS_PER_CONNECTION)
        .layer(ObserveCalls::counted_by(&calls))
        .serve_with_incoming(service, connections);
    tokio::select! {
        served = serving => served?,
        never = keep_reachable(&mut socket, renew) => match never {},
        () = shutdown => table.hang_up(),
    }
    // It waits while another program holds a lock on the directory.
    let _ = tokio::task::spawn_blocking(move || drop(socket)).await;
    Ok(())
}

/// A client that stops reading would keep its connection busy. Once the last call has been answered,
/// clients have [`SLOW_READER_GRACE`] to read their responses.
async fn left_unread(executor: &Executor, stopping: oneshot::Receiver<()>) {
    if stopping.await.is_err() {
        return std::future::pending().await;
    }
    executor.idle().await;
    tokio::time::sleep(SLOW_READER_GRACE).await;
}

/// Accepted connections. Where accepting fails (out of descriptors, most likely), it is tried
/// again after a pause.
struct Connections {
    listener: UnixListener,
    /// Listeners of the socket that was made again.
    renewed: mpsc::Receiver<std::os::unix::net::UnixListener>,
    table: ConnectionTable,
    pause: Option<Pin<Box<Sleep>>>,
    /// The last poll gave out a connection.
    has_accepted: bool,
}

type Renew = mpsc::Sender<std::os::unix::net::UnixListener>;

impl Connections {
    /// Those of this socket, and where to send its listener when the socket is made again.
    fn of(socket: &mut Socket, calls: &Arc<CallStats>) -> io::Result<(Self, Renew)> {
        let listener = socket.take_listener();
        let listener =
            listener.ok_or_else(|| io::Error::other("the socket's listener is already in use"))?;
        let listener = UnixListener::from_std(listener)?;
        let table = ConnectionTable::within(getrlimit(Resource::Nofile).current, calls);
        let (renew, renewed) = mpsc::channel(1);
        Ok((Self { listener, renewed, table, pause: None, has_accepted: false }, renew))
    }
}

impl Stream for Connections {
    type Item = io::Result<Lenient<Connection>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);
        // A connection that the table has closed keeps its descriptor until its task runs: let that be
        // before the next one is accepted, or many newcomers at once use up all descriptors.
        if std::mem::take(&mut self.has_accepted) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            while let Poll::Ready(Some(listener)) = self.renewed.poll_recv(context) {
                match UnixListener::from_std(listener) {
                    Ok(listener) => self.listener = listener,
                    Err(error) => tracing::error!(%error, "cannot listen on the renewed socket"),
                }
            }
            match ready!(self.listener.poll_accept(context)) {
                Ok((stream, _)) => match self.table.admit(stream) {
                    Some(connection) => {
                        let pid = connection.pid();
                        self.has_accepted = true;
                        return Poll::Ready(Some(Ok(Lenient::new(connection, pid))));
                    }
                    None => tracing::warn!(
                        "connection limit reached and every connection is busy; closed the new one"
                    ),
                },
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    self.pause = Some(Box::pin(tokio::time::sleep(ACCEPT_RETRY_INTERVAL)));
                }
            }
        }
    }
}
