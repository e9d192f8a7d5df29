//! What reaches a daemon from its peers, and calls that it does not answer.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http_body_util::BodyExt;
use orlop_csi::{CallService, Routes};
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower::Service;

struct Called {
    method: String,
    /// As `grpc-timeout` gives it.
    deadline: Option<String>,
}

/// Of one daemon.
#[derive(Clone, Default)]
pub(crate) struct CallLog {
    calls: Arc<Mutex<Vec<Called>>>,
    /// Methods that are not answered.
    hanging: Arc<Mutex<BTreeSet<String>>>,
    /// Answers of CSI that have begun and are not over.
    open: Arc<AtomicUsize>,
    /// What answers instead of the daemon.
    instead: Arc<Mutex<Option<Routes>>>,
}

impl CallLog {
    pub(crate) fn hang_at(&self, method: &str) {
        self.hanging.lock().unwrap().insert(method.to_owned());
    }

    /// As if the daemon were this one.
    pub(crate) fn answer_as(&self, other: Routes) {
        *self.instead.lock().unwrap() = Some(other);
    }

    pub(crate) fn deadlines_of(&self, method: &str) -> Vec<Option<String>> {
        let calls = self.calls.lock().unwrap();
        let calls = calls.iter().filter(|called| called.method == method);
        calls.map(|called| called.deadline.clone()).collect()
    }

    pub(crate) fn open_answers(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Is the call to be answered?
    fn note(&self, request: &Request<Body>) -> bool {
        let method = request.uri().path().rsplit('/').next().unwrap().to_owned();
        let deadline = request.headers().get("grpc-timeout");
        let deadline = deadline.map(|value| value.to_str().unwrap().to_owned());
        let is_answered = !self.hanging.lock().unwrap().contains(&method);
        self.calls.lock().unwrap().push(Called { method, deadline });
        is_answered
    }
}

struct Open(Arc<AtomicUsize>);

impl Open {
    fn count(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(open))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Before the services of a daemon.
#[derive(Clone)]
pub(crate) struct Watched<S> {
    inner: S,
    log: CallLog,
}

impl<S: CallService> Watched<S> {
    pub(crate) fn before(inner: S, log: CallLog) -> Self {
        Self { inner, log }
    }
}

impl<S: CallService> Service<Request<Body>> for Watched<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_of_csi = request.uri().path().starts_with("/csi.");
        if !self.log.note(&request) {
            return Box::pin(std::future::pending());
        }
        let instead = self.log.instead.lock().unwrap().clone();
        if let Some(mut other) = instead {
            return Box::pin(async move { other.call(request).await });
        }
        let answering = self.inner.call(request);
        let open = is_of_csi.then(|| Open::count(&self.log.open));
        Box::pin(async move {
            let answer = answering.await?;
            let counted = |body: Body| {
                Body::new(body.map_frame(move |frame| {
                    let _open = &open;
                    frame
                }))
            };
            Ok(answer.map(counted))
        })
    }
}
