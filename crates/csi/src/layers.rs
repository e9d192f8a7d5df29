//! What every call gets, whatever it asks for: a span, a line about its outcome, and an answer
//! even if its handler panics or there are too many. Nothing here looks into a request (GEN-37, GEN-38).

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::arrival::{Arrival, CallClass, CallLimits};
use crate::call_stats::{CallStats, Counted, method_label};
use crate::deadline;
use crate::routes::Answering;
use crate::status::code_name;
use crate::trace_context::continue_trace;

/// How many calls are accepted at once: far more than the sidecars of a large cluster make together. More
/// of them than run at a time may wait, but not any number, as each holds its message.
const ACCEPTED_CALLS: usize = 1024;

#[derive(Clone)]
pub(crate) struct ObserveCalls {
    limits: CallLimits,
    stats: Arc<CallStats>,
}

impl ObserveCalls {
    pub(crate) fn counted_by(stats: &Arc<CallStats>) -> Self {
        Self { limits: CallLimits::new(ACCEPTED_CALLS), stats: Arc::clone(stats) }
    }
}

impl<S> Layer<S> for ObserveCalls {
    type Service = Observed<S>;

    fn layer(&self, inner: S) -> Observed<S> {
        Observed { inner, limits: self.limits.clone(), stats: Arc::clone(&self.stats) }
    }
}

#[derive(Clone)]
pub(crate) struct Observed<S> {
    inner: S,
    limits: CallLimits,
    stats: Arc<CallStats>,
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

    fn call(&mut self, mut request: Request<Body>) -> Answering {
        let call = CallSpan::begin(request.uri().path(), &self.stats);
        let span = call.span.clone();
        // Probes come all the time, and only a caller that traces them wants to see them.
        continue_trace(request.headers_mut(), &span, call.class.is_counted);
        // Made before the library's, so that it is not the later one.
        let deadline = deadline::of(request.headers());
        let (arrival, request) = Arrival::of(request, &self.limits, call.class);
        let answering = Box::pin(self.inner.call(request));
        let observed = async move {
            let response = tokio::select! {
                biased;
                answer = caught(answering) => match answer {
                    Some(Ok(response)) => with_message(response),
                    None => defect().into_http(),
                },
                () = deadline::passed(deadline) => deadline::exceeded().into_http(),
            };
            let response = arrival.failure().map_or(response, |status| status.into_http());
            call.end(&response);
            drop(arrival);
            Ok(response)
        };
        Box::pin(observed.instrument(span))
    }
}

fn defect() -> Status {
    Status::internal("the call ended unexpectedly; this plugin's log says where")
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

/// A call that fails at once says so in its headers, before any body. How a stream ends is
/// reported by the task that feeds it.
fn refusal(response: &Response<Body>) -> Option<Status> {
    Status::from_header_map(response.headers()).filter(|status| status.code() != Code::Ok)
}

/// One call, from its first byte to its answer.
struct CallSpan {
    span: Span,
    begun: Instant,
    class: CallClass,
    is_question: bool,
    has_ended: bool,
    label: &'static str,
    stats: Arc<CallStats>,
    _in_flight: Counted,
}

/// Change nothing, and are asked all the time: a good answer is of no interest.
const QUESTIONS: [&str; 18] = [
    "Describe",
    "ListFootprints",
    "GetCapacity",
    "NodeGetId",
    "NodeGetInfo",
    "NodeGetVolumeStats",
    "NodeGetVolumeHealth",
    "NodeGetStorageHealth",
    "ControllerGetVolumeHealth",
    "ControllerListVolumeHealth",
    "ListVolumes",
    "ControllerGetVolume",
    "ListSnapshots",
    "GetSnapshot",
    "GetVolumeGroupSnapshot",
    "ListVolumeGroups",
    "ControllerGetVolumeGroup",
    "ValidateVolumeCapabilities",
];

/// As [`QUESTIONS`], and answered however busy all else is.
const ROUTINE: [&str; 18] = [
    "Probe",
    "ListEvents",
    "ListVolumeIo",
    "ListVolumeUsage",
    "ListPools",
    "ListSnapshotNames",
    "Check",
    "Watch",
    "ServerReflectionInfo",
    "GetInfo",
    "NotifyRegistrationStatus",
    "GetPluginInfo",
    "GetPluginCapabilities",
    "ControllerGetCapabilities",
    "GroupControllerGetCapabilities",
    "NodeGetCapabilities",
    "GetIdentity",
    "GetCapabilities",
];

/// Calls with more than one message: between daemons, and of tools that ask about all services in turn.
const STREAMED: [&str; 2] = ["TakeGroupPart", "ServerReflectionInfo"];

/// Beside [`ROUTINE`]: their messages hold some ids, paths and capabilities, and no secrets.
const SMALL: [&str; 9] = [
    "GetCapacity",
    "NodeGetVolumeStats",
    "NodeUnpublishVolume",
    "NodeUnstageVolume",
    "NodeGetInfo",
    "NodeGetId",
    "ListVolumes",
    "ControllerGetVolume",
    "ListVolumeGroups",
];

impl CallSpan {
    fn begin(path: &str, stats: &Arc<CallStats>) -> Self {
        static CALLS: AtomicU64 = AtomicU64::new(1);
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let method = orlop_model::id::shown(path.rsplit('/').next().unwrap_or_default());
        let is_routine = ROUTINE.contains(&method.as_str());
        // Probes are neither kept waiting nor counted: they come through when all else is too much.
        let is_small = is_routine || SMALL.contains(&method.as_str());
        let is_stream = STREAMED.contains(&method.as_str());
        let class = CallClass { is_counted: !is_routine, is_small, is_stream };
        let is_question = is_routine || QUESTIONS.contains(&method.as_str());
        // At a level that no setting leaves out: whatever is logged in it names its call.
        let span = tracing::error_span!(
            "call",
            call,
            method,
            trace_id = Empty,
            span_id = Empty,
            parent_id = Empty,
            volume_name = Empty,
            volume = Empty,
            snapshot_name = Empty,
            snapshot = Empty,
            group_name = Empty,
            group = Empty
        );
        Self {
            span,
            begun: Instant::now(),
            class,
            is_question,
            has_ended: false,
            label: method_label(path),
            stats: Arc::clone(stats),
            _in_flight: stats.begin_call(),
        }
    }

    fn end(mut self, response: &Response<Body>) {
        self.has_ended = true;
        match refusal(response) {
            Some(status) => self.tell(status.code(), status.message()),
            None => self.tell(Code::Ok, "done"),
        }
    }

    fn tell(&self, code: Code, message: &str) {
        let (span, took) = (&self.span, self.begun.elapsed());
        self.stats.note_ended(self.label, code, took);
        let name = code_name(code);
        match importance(code, self.is_question) {
            Importance::Defect => tracing::error!(parent: span, code = name, ?took, "{message}"),
            Importance::Refusal => tracing::warn!(parent: span, code = name, ?took, "{message}"),
            Importance::Event => tracing::info!(parent: span, code = name, ?took, "{message}"),
            Importance::Detail => tracing::debug!(parent: span, code = name, ?took, "{message}"),
        }
    }
}

/// Is something broken, rather than asked for in vain?
pub(crate) fn is_defect(code: Code) -> bool {
    importance(code, false) == Importance::Defect
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Importance {
    /// Something is broken, here or below.
    Defect,
    Refusal,
    Event,
    Detail,
}

fn importance(code: Code, is_question: bool) -> Importance {
    match code {
        Code::Ok if is_question => Importance::Detail,
        // A question about something that is gone is answered by this, and a caller may hang up.
        Code::NotFound if is_question => Importance::Event,
        // A message that did not arrive in time is the caller's affair, as one that hangs up is.
        Code::Ok | Code::Cancelled | Code::DeadlineExceeded => Importance::Event,
        Code::Internal | Code::Unknown | Code::DataLoss => Importance::Defect,
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Unavailable
        | Code::Unauthenticated => Importance::Refusal,
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        if !self.has_ended {
            let message = "the caller hung up; an operation that has begun continues";
            self.tell(Code::Cancelled, message);
        }
    }
}

#[cfg(test)]
#[path = "layers_tests.rs"]
mod tests;
