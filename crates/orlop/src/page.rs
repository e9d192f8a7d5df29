//! A page for people: pools, volumes, snapshots and nodes, and two changes for those who have a token. It is part of
//! the binary and loads nothing from elsewhere. docs/page.md describes what it shows, and the requests behind it.

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

use crate::cluster::PeersInView;
use crate::config::ConfigError;
use crate::metrics::About;
use history::History;
use query::Query;
use token::TokenFile;

/// Only what the page itself brings may be loaded or run, and no other site may show it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Requests that look at pools at once. Others wait.
const LOOKS: usize = 2;
/// How long they wait.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests that change something at once, with those whose token is wrong.
const CHANGES: usize = 4;
/// What several people see of pools is asked for once in this time.
const OVERVIEW_AGE: Duration = Duration::from_secs(2);
/// Of the body of a request.
const LONGEST_BODY: usize = 4 << 10;

const JSON: &str = "application/json; charset=utf-8";

pub(crate) struct Page {
    about: About,
    executor: Arc<Executor>,
    /// `None`: the daemon has no peers.
    peers: Option<PeersInView>,
    /// What is changed is changed by calls on it, as callers make them.
    csi: PathBuf,
    serves_controller: bool,
    token: Option<TokenFile>,
    history: History,
    overview: Mutex<Option<(Instant, Bytes)>>,
    looks: Arc<Semaphore>,
    changes: Semaphore,
}

/// An answer that is not what was asked for.
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
        (executor, peers): (Arc<Executor>, Option<PeersInView>),
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
            looks: Arc::new(Semaphore::new(LOOKS)),
            changes: Semaphore::new(CHANGES),
        }
    }

    /// Is the file with the token as it has to be? With a warning, if there is something to warn of.
    pub(crate) fn check_token(path: PathBuf) -> Result<Option<String>, ConfigError> {
        TokenFile::at(path).check().map_err(|why| ConfigError::new("ORLOP_PAGE_TOKEN_FILE", why))
    }

    /// Is this path the page's?
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
            let why = "a request that changes nothing has no body";
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
                    "there is no such request; see docs/page.md",
                )),
            },
        }
    }

    /// The token is checked before the body is read.
    async fn change(&self, path: &str, request: Request<Incoming>) -> Answered {
        let Ok(_permit) = self.changes.try_acquire() else {
            let why = "other changes are under way; try again";
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why));
        };
        let token = self.token.as_ref().filter(|_| self.serves_controller).ok_or_else(|| {
            let why = "the page only shows: changes need ORLOP_PAGE_TOKEN_FILE, and a daemon that \
                       serves the controller side";
            Refusal::new(StatusCode::FORBIDDEN, why)
        })?;
        token.check_given(request.headers()).await?;
        let body = Limited::new(request.into_body(), LONGEST_BODY).collect().await;
        let body = body.map_err(|_| {
            let why = format!("the body could not be read, or is longer than {LONGEST_BODY} bytes");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, why)
        })?;
        self.act(path, &body.to_bytes()).await
    }

    /// On a thread that may wait for pools, a few seconds at most.
    async fn look<T: Send + 'static>(
        self: &Arc<Self>,
        look: impl FnOnce(&Self, &Engine) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let busy = "other requests of the page are being answered; try again";
        let permit = timeout(LOOK_TIMEOUT, Arc::clone(&self.looks).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, busy));
        };
        let engine = self.executor.engine().map_err(|error| Refusal::of(&error))?;
        let page = Arc::clone(self);
        let looking = tokio::task::spawn_blocking(move || {
            // It goes on if the browser hangs up, and counts until it has ended.
            let _permit = permit;
            look(&page, &engine)
        });
        looking.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a request of the page ended without an answer");
            let why = "the request failed; see the log of the daemon";
            Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why))
        })
    }
}

/// What the page is made of, and of which type.
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
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the answer has no JSON: {error}"))
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
