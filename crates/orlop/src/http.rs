//! HTTP for clients without gRPC, such as kubelet's probes, Prometheus and browsers. It is off unless configured, and only
//! the page can change anything, with its token. Every client that reaches the port is answered, so all resources that a
//! client could use up are bounded.

mod health;
mod wanted;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use orlop_csi::Socket;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::AbortHandle;

use crate::metrics::Metrics;
use crate::page::Page;
pub(crate) use health::Health;
pub(crate) use wanted::WantedListener;

/// How many connections may be open; the oldest is closed for a new one.
const CONNECTIONS: usize = 64;
/// To send the request line and the headers.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(5);
/// For one request and its answer.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(15);
/// The smallest buffer that hyper accepts.
const BUFFER: usize = 8 << 10;
/// After an error of accept, as when there are no descriptors left.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What a listener answers.
pub(crate) struct Pages {
    pub(crate) health: Health,
    pub(crate) metrics: Option<Arc<Metrics>>,
    pub(crate) page: Option<Arc<Page>>,
}

impl Pages {
    fn all(&self) -> String {
        format!("there is {}", paths(self.metrics.is_some(), self.page.is_some()))
    }
}

/// What a listener with these answers, for people.
fn paths(has_metrics: bool, has_page: bool) -> &'static str {
    match (has_metrics, has_page) {
        (true, true) => "/, /metrics, /healthz and /readyz",
        (true, false) => "/metrics, /healthz and /readyz",
        (false, true) => "/, /healthz and /readyz",
        (false, false) => "/healthz and /readyz",
    }
}

pub(crate) enum HttpListener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        /// Removes the socket when it is dropped.
        _file: Socket,
    },
}

impl HttpListener {
    pub(crate) fn on_socket(mut socket: Socket) -> io::Result<Self> {
        let listener = socket.take_listener();
        let listener =
            listener.ok_or_else(|| io::Error::other("the listener is already in use"))?;
        Ok(Self::Unix { listener: UnixListener::from_std(listener)?, _file: socket })
    }

    /// Serves for as long as it is polled.
    pub(crate) async fn serve(self, pages: Pages) -> Infallible {
        let pages = Arc::new(pages);
        let mut open = OpenConnections::default();
        loop {
            let accepted = match &self {
                Self::Tcp(listener) => {
                    let accepted = listener.accept().await;
                    accepted.map(|(stream, _)| open.begin(stream, &pages))
                }
                Self::Unix { listener, .. } => {
                    let accepted = listener.accept().await;
                    accepted.map(|(stream, _)| open.begin(stream, &pages))
                }
            };
            if let Err(error) = accepted {
                tracing::warn!(%error, "cannot accept an HTTP connection; trying again");
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
            }
        }
    }
}

/// Open connections, which are closed with the listener.
#[derive(Default)]
struct OpenConnections(VecDeque<AbortHandle>);

impl OpenConnections {
    fn begin<S>(&mut self, stream: S, pages: &Arc<Pages>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.0.retain(|connection| !connection.is_finished());
        if self.0.len() >= CONNECTIONS
            && let Some(oldest) = self.0.pop_front()
        {
            tracing::debug!("too many HTTP connections; closing the oldest");
            oldest.abort();
        }
        let answering = tokio::spawn(converse(stream, Arc::clone(pages)));
        self.0.push_back(answering.abort_handle());
    }
}

impl Drop for OpenConnections {
    fn drop(&mut self) {
        for connection in &self.0 {
            connection.abort();
        }
    }
}

/// One request on each connection.
async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin + Send, pages: Arc<Pages>) {
    let service = service_fn(move |request| {
        let pages = Arc::clone(&pages);
        async move { Ok::<_, Infallible>(answer(request, &pages).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_TIMEOUT, serving).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an HTTP connection ended with an error"),
        Err(_) => tracing::debug!("closed an HTTP connection that took too long"),
    }
}

async fn answer(request: Request<Incoming>, pages: &Pages) -> Response<Full<Bytes>> {
    if let Some(page) = pages.page.as_ref().filter(|_| Page::has(request.uri().path())) {
        return page.answer(request).await;
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    if !request.body().is_end_stream() {
        return text(StatusCode::PAYLOAD_TOO_LARGE, "a request here has no body");
    }
    let well = match request.uri().path() {
        "/healthz" => pages.health.alive().await.map(|()| None),
        "/readyz" => pages.health.ready().await,
        path => match &pages.metrics {
            Some(metrics) if path == "/metrics" => return measured(metrics).await,
            Some(_) | None => return text(StatusCode::NOT_FOUND, &pages.all()),
        },
    };
    match well {
        Ok(None) => text(StatusCode::OK, "ok"),
        Ok(Some(warning)) => text(StatusCode::OK, &format!("ok\nwarning: {warning}")),
        Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, &why.to_string()),
    }
}

/// On a thread that may wait for pools, for a few seconds. One that comes while as many are under way as
/// Prometheus ever needs is refused: they would all wait for the same pools.
async fn measured(metrics: &Arc<Metrics>) -> Response<Full<Bytes>> {
    let Ok(permit) = Arc::clone(&metrics.scrapes).try_acquire_owned() else {
        return text(
            StatusCode::SERVICE_UNAVAILABLE,
            "other clients are being answered; try again",
        );
    };
    let metrics = Arc::clone(metrics);
    let gathering = tokio::task::spawn_blocking(move || {
        let gathered = metrics.gather();
        drop(permit);
        gathered
    });
    let Ok(Ok(gathered)) = gathering.await else {
        return text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the metrics cannot be gathered; see the log",
        );
    };
    let mut answer = Response::new(Full::new(Bytes::from(gathered)));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(OPENMETRICS));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

fn text(status: StatusCode, line: &str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(format!("{line}\n"))));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
