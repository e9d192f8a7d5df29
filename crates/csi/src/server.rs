//! Serves the services on a socket until told to stop.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::time::Sleep;
use tokio_stream::Stream;
use tonic::transport::Server;

use crate::dispatch::Core;
use crate::layers::ObserveCalls;
use crate::offers::Offers;
use crate::routes::Routes;
use crate::socket::Socket;

/// Calls at once on one connection; more than any orchestrator makes, and a bound.
const CALLS_PER_CONNECTION: u32 = 256;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on the socket: {0}")]
    Listen(#[from] io::Error),

    #[error("cannot serve: {0}")]
    Serve(#[from] tonic::transport::Error),
}

/// Answers calls until `shutdown` is done. Then no new connection is accepted, calls that run
/// are answered, operations whose callers hung up are waited for, and the socket is removed.
/// How long that may take is up to the caller: dropping the future ends it, and removes the
/// socket all the same.
pub async fn serve(
    mut socket: Socket,
    core: Arc<Core>,
    offers: Offers,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let listener = socket.take_listener();
    let listener = listener.ok_or_else(|| io::Error::other("it was taken before"))?;
    let connections = Connections { listener: UnixListener::from_std(listener)?, pause: None };
    let routes = Routes::new(&core, &Arc::new(offers));
    Server::builder()
        .max_concurrent_streams(CALLS_PER_CONNECTION)
        .layer(ObserveCalls)
        .serve_with_incoming_shutdown(routes, connections, shutdown)
        .await?;
    core.drained().await;
    Ok(())
}

/// Accepted connections. Where accepting fails (out of descriptors, most likely), it is tried
/// again after a while instead of at once and for ever.
struct Connections {
    listener: UnixListener,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Stream for Connections {
    type Item = io::Result<UnixStream>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        const PAUSE: Duration = Duration::from_millis(100);
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(context)) {
                Ok((stream, _)) => return Poll::Ready(Some(Ok(stream))),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    self.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
                }
            }
        }
    }
}
