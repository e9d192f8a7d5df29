//! A page for browsers: pools, volumes, snapshots and nodes; with a token, it can also take snapshots and set I/O limits.
//! It is part of the binary and loads nothing from elsewhere. docs/page.md describes it, and the requests behind it.

mod actions;
mod blocks;
mod history;
mod overview;
mod query;
mod request_check;
mod token;
mod volumes;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use orlop_csi::{Executor, Mode};
use orlop_engine::Engine;
use orlop_model::Error;
use serde::Serialize;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;

use crate::cluster::PeerStatus;
use crate::config::ConfigError;
use crate::metrics::About;
use history::History;
use query::Query;
use token::TokenFile;

/// Nothing but the page's own files may be loaded or run, and no other site may show it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// How many requests may query pools at once. Others wait for a permit.
const MAX_QUERIES: usize = 2;
const PERMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How many requests for changes are handled at once, including those whose token is wrong.
const MAX_CHANGES: usize = 4;
/// How many comparisons of snapshots run at once: each is a stream on the CSI socket, and backups need those.
const MAX_COMPARISONS: usize = 4;
/// How long an overview is reused for further requests.
const OVERVIEW_AGE: Duration = Duration::from_secs(2);
const MAX_BODY_BYTES: usize = 4 << 10;

const JSON: &str = "application/json; charset=utf-8";

pub(crate) struct Page {
    about: About,
    executor: Arc<Executor>,
    /// `None`: the daemon has no peers.
    peers: Option<PeerStatus>,
    /// The CSI socket, on which changes are made.
    csi: PathBuf,
    serves_controller: bool,
    token: Option<TokenFile>,
    history: History,
    overview: Mutex<Option<(Instant, Bytes)>>,
    query_permits: Arc<Semaphore>,
    change_permits: Arc<Semaphore>,
    comparison_permits: Semaphore,
}

/// An error as the answer to a request.
#[derive(Debug)]
struct Refusal {
    status: StatusCode,
    why: String,
}

type Answered = Result<Response<Full<Bytes>>, Refusal>;

impl Refusal {
    fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }

    fn of(error: &Error) -> Self {
        let is_unknown = matches!(error, Error::NoSuchVolume(_) | Error::NotServed { .. });
        let status =
            if is_unknown { StatusCode::NOT_FOUND } else { StatusCode::SERVICE_UNAVAILABLE };
        Self::new(status, error.to_string())
    }
}

impl Page {
    pub(crate) fn new(
        about: About,
        mode: Mode,
        (executor, peers): (Arc<Executor>, Option<PeerStatus>),
        csi: PathBuf,
        token_file: Option<PathBuf>,
    ) -> Self {
        let token = token_file.map(TokenFile::at);
        if let Some(Ok(Some(warning))) = token.as_ref().map(TokenFile::check) {
            tracing::warn!("{warning}");
        }
        Self {
            about,
            executor,
            peers,
            csi,
            serves_controller: mode.serves_controller(),
            token,
            history: History::default(),
            overview: Mutex::default(),
            query_permits: Arc::new(Semaphore::new(MAX_QUERIES)),
            change_permits: Arc::new(Semaphore::new(MAX_CHANGES)),
            comparison_permits: Semaphore::new(MAX_COMPARISONS),
        }
    }

    /// Checks the file with the token; returns a warning if others can read it.
    pub(crate) fn check_token(path: PathBuf) -> Result<Option<String>, ConfigError> {
        TokenFile::at(path).check().map_err(|why| ConfigError::new("ORLOP_PAGE_TOKEN_FILE", why))
    }

    /// Does this path belong to the page?
    pub(crate) fn has(path: &str) -> bool {
        asset(path).is_some() || path.starts_with("/api/")
    }

    /// Measures the I/O of volumes at intervals, for as long as it is polled.
    pub(crate) async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(history::STEP).await;
            let page = Arc::clone(&self);
            let sampled = tokio::task::spawn_blocking(move || {
                if let Ok(engine) = page.executor.engine() {
                    page.history.sample(&engine);
                }
            });
            if sampled.await.is_err() {
                return;
            }
        }
    }

    pub(crate) async fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        let mut answer = match self.answered(request).await {
            Ok(answer) => answer,
            Err(Refusal { status, why }) => refused(status, &why),
        };
        let headers = answer.headers_mut();
        let fixed: [(HeaderName, &str); 6] = [
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (X_FRAME_OPTIONS, "DENY"),
            (REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        ];
        for (name, value) in fixed {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        answer
    }

    async fn answered(self: &Arc<Self>, request: Request<Incoming>) -> Answered {
        request_check::check_host(&request)?;
        let path = request.uri().path().to_owned();
        let is_change = actions::PATHS.contains(&path.as_str());
        let allowed = if is_change { "POST" } else { "GET, HEAD" };
        let method = request.method();
        let fits = match is_change {
            true => method == Method::POST,
            false => method == Method::GET || method == Method::HEAD,
        };
        if !fits {
            let why = format!("this path answers {allowed} only");
            let mut answer = refused(StatusCode::METHOD_NOT_ALLOWED, &why);
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
            return Ok(answer);
        }
        if let Some((kind, text)) = asset(&path) {
            return Ok(whole(kind, Bytes::from_static(text.as_bytes())));
        }
        request_check::check_origin(&request)?;
        if is_change {
            return self.change(&path, request).await;
        }
        if !request.body().is_end_stream() {
            let why = "a GET or HEAD request has no body";
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        let query = Query::parse(request.uri().query().unwrap_or_default());
        match path.as_str() {
            "/api/overview" => self.overview().await,
            "/api/volumes" => self.volumes(&query).await,
            "/api/blocks" => self.blocks(&query).await,
            other => match other.strip_prefix("/api/volumes/") {
                Some(id) => self.volume(id).await,
                None => Err(Refusal::new(
                    StatusCode::NOT_FOUND,
                    "there is no such path; docs/page.md lists all",
                )),
            },
        }
    }

    /// Checks the token before it reads the body.
    async fn change(&self, path: &str, request: Request<Incoming>) -> Answered {
        let Ok(permit) = Arc::clone(&self.change_permits).try_acquire_owned() else {
            let why = "other changes are being made; try again";
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why));
        };
        let token = self.token.as_ref().filter(|_| self.serves_controller).ok_or_else(|| {
            let why = "this page is read-only: changes need ORLOP_PAGE_TOKEN_FILE, and a daemon that \
                       serves the controller side";
            Refusal::new(StatusCode::FORBIDDEN, why)
        })?;
        let _permit = token.check_given(request.headers(), permit).await?;
        let body = Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await;
        let body = body.map_err(|_| {
            let why =
                format!("the body could not be read, or is longer than {MAX_BODY_BYTES} bytes");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, why)
        })?;
        self.act(path, &body.to_bytes()).await
    }

    /// Runs a query on a blocking thread; it waits for pools a few seconds at most.
    async fn query<T: Send + 'static>(
        self: &Arc<Self>,
        query: impl FnOnce(&Self, &Engine) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let busy = "other requests of the page are being answered; try again";
        let permit = timeout(PERMIT_TIMEOUT, Arc::clone(&self.query_permits).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, busy));
        };
        let engine = self.executor.engine().map_err(|error| Refusal::of(&error))?;
        let page = Arc::clone(self);
        let running = tokio::task::spawn_blocking(move || {
            // The query continues if the browser hangs up, and keeps its permit until it ends.
            let _permit = permit;
            query(&page, &engine)
        });
        running.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a request of the page ended without an answer");
            let why = "the request failed; see the log of the daemon";
            Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why))
        })
    }
}

/// The content type and the contents of one of the page's files.
fn asset(path: &str) -> Option<(&'static str, &'static str)> {
    Some(match path {
        "/" => ("text/html; charset=utf-8", include_str!("page/assets/page.html")),
        "/page.css" => ("text/css; charset=utf-8", include_str!("page/assets/page.css")),
        "/page.js" => ("text/javascript; charset=utf-8", include_str!("page/assets/page.js")),
        "/draw.js" => ("text/javascript; charset=utf-8", include_str!("page/assets/draw.js")),
        "/icon.svg" => ("image/svg+xml", include_str!("page/assets/icon.svg")),
        _ => return None,
    })
}

fn json(answer: &impl Serialize) -> Result<Bytes, Refusal> {
    serde_json::to_vec(answer).map(Bytes::from).map_err(|error| {
        Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("cannot write the answer as JSON: {error}"),
        )
    })
}

fn whole(kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

fn refused(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    let body = serde_json::json!({ "error": why }).to_string();
    let mut answer = whole(JSON, Bytes::from(body));
    *answer.status_mut() = status;
    answer
}
