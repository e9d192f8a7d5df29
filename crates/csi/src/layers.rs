//! What every call gets, whatever it asks for: a span, a line about its outcome, and an answer
//! even if its handler panics. Nothing here looks into a request (GEN-37, GEN-38).

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::routes::Answering;
use crate::status::code_name;

#[derive(Clone)]
pub(crate) struct ObserveCalls;

impl<S> Layer<S> for ObserveCalls {
    type Service = Observed<S>;

    fn layer(&self, inner: S) -> Observed<S> {
        Observed { inner }
    }
}

#[derive(Clone)]
pub(crate) struct Observed<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for Observed<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        let call = Call::begin(request.uri().path());
        let span = call.span.clone();
        let answering = Box::pin(self.inner.call(request));
        let observed = async move {
            let response = match caught(answering).await {
                Some(Ok(response)) => with_message(response),
                None => {
                    Status::internal("the call ended unexpectedly; this plugin's log says where")
                        .into_http()
                }
            };
            call.end(&response);
            Ok(response)
        };
        Box::pin(observed.instrument(span))
    }
}

/// `None` if the future panicked. It is not polled again, so nothing sees it half-changed.
async fn caught<F: Future>(mut future: Pin<Box<F>>) -> Option<F::Output> {
    let polled =
        poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(poll) => poll.map(Some),
            Err(_panic) => Poll::Ready(None),
        });
    polled.await
}

/// Generated code refuses methods that it does not know without a word (GEN-16).
fn with_message(response: Response<Body>) -> Response<Body> {
    match refusal(&response) {
        Some(status) if status.message().is_empty() => {
            Status::new(status.code(), "there is no such method in this service").into_http()
        }
        Some(_) | None => response,
    }
}

/// All calls are unary: one that fails says so in its headers, before any body.
fn refusal(response: &Response<Body>) -> Option<Status> {
    Status::from_header_map(response.headers()).filter(|status| status.code() != Code::Ok)
}

/// One call, from its first byte to its answer.
struct Call {
    span: Span,
    begun: Instant,
    is_routine: bool,
    has_ended: bool,
}

/// Asked for again and again by any orchestrator, and never of interest.
const ROUTINE: [&str; 5] = [
    "Probe",
    "GetPluginInfo",
    "GetPluginCapabilities",
    "ControllerGetCapabilities",
    "NodeGetCapabilities",
];

impl Call {
    fn begin(path: &str) -> Self {
        static CALLS: AtomicU64 = AtomicU64::new(1);
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let method = orlop_model::id::shown(path.rsplit('/').next().unwrap_or_default());
        let is_routine = ROUTINE.contains(&method.as_str());
        let span = if is_routine {
            tracing::debug_span!("call", call, method)
        } else {
            tracing::info_span!("call", call, method, volume = Empty, snapshot = Empty)
        };
        Self { span, begun: Instant::now(), is_routine, has_ended: false }
    }

    fn end(mut self, response: &Response<Body>) {
        self.has_ended = true;
        match refusal(response) {
            Some(status) => self.tell(code_name(status.code()), status.message()),
            None => self.tell(code_name(Code::Ok), "done"),
        }
    }

    fn tell(&self, code: &'static str, message: &str) {
        let took = self.begun.elapsed();
        if self.is_routine {
            tracing::debug!(parent: &self.span, code, ?took, "{message}");
        } else {
            tracing::info!(parent: &self.span, code, ?took, "{message}");
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.has_ended {
            let message = "the caller hung up; what has begun goes on";
            self.tell(code_name(Code::Cancelled), message);
        }
    }
}

#[cfg(test)]
#[path = "layers_tests.rs"]
mod tests;
