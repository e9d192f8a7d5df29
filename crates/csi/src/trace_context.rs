//! The trace of a caller, by the W3C header `traceparent`: its id is in every line that is logged for the call, and the
//! header is forwarded to other daemons. A malformed header is ignored, as the W3C recommendation requires.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::rand::{GetRandomFlags, getrandom};
use tonic::codegen::http::{HeaderMap, HeaderValue};
use tracing::Span;

pub const TRACE_PARENT: &str = "traceparent";
/// Data of tracing vendors, which is ignored without [`TRACE_PARENT`].
pub const TRACE_STATE: &str = "tracestate";

/// `00-TRACE-PARENT-FLAGS`, in hexadecimal digits.
const VERSION_0_LENGTH: usize = 55;
const SAMPLED: u8 = 1;

/// If set, each sampled call is a span of this process, and a call without a trace begins one.
static SPANS_ARE_EXPORTED: AtomicBool = AtomicBool::new(false);

/// To be called if the spans of calls are exported: those with a field `span_id`.
pub fn export_spans() {
    SPANS_ARE_EXPORTED.store(true, Ordering::Relaxed);
}

/// What the header says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TraceParent {
    trace_id: String,
    parent_id: String,
    flags: u8,
}

impl TraceParent {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let mut given = headers.get_all(TRACE_PARENT).iter();
        let only = given.next()?;
        match given.next() {
            None => Self::parse(only.to_str().ok()?),
            Some(_) => None,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace_id) = (hex(parts.next()?, 2)?, hex(parts.next()?, 32)?);
        let (parent_id, flags) = (hex(parts.next()?, 16)?, hex(parts.next()?, 2)?);
        let is_known = match version {
            "ff" => false,
            "00" => text.len() == VERSION_0_LENGTH,
            // Later versions may append fields.
            _ => true,
        };
        let is_set = |id: &str| id.bytes().any(|digit| digit != b'0');
        (is_known && is_set(trace_id) && is_set(parent_id)).then(|| Self {
            trace_id: trace_id.to_owned(),
            parent_id: parent_id.to_owned(),
            flags: u8::from_str_radix(flags, 16).unwrap_or(0),
        })
    }
}

fn hex(text: &str, length: usize) -> Option<&str> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == length && text.bytes().all(is_digit)).then_some(text)
}

/// Records the trace of the call in its span, and sets the headers that are forwarded. `may_begin`: a call without a trace
/// begins one if spans are exported.
pub(crate) fn continue_trace(headers: &mut HeaderMap, span: &Span, may_begin: bool) {
    let given = TraceParent::of(headers);
    let is_exported = SPANS_ARE_EXPORTED.load(Ordering::Relaxed);
    if given.is_none() {
        headers.remove(TRACE_PARENT);
        headers.remove(TRACE_STATE);
    }
    let (trace_id, parent_id, flags) = match given {
        Some(TraceParent { trace_id, parent_id, flags }) => (trace_id, Some(parent_id), flags),
        None if is_exported && may_begin => match random_id::<16>() {
            Some(trace_id) => (trace_id, None, SAMPLED),
            None => return,
        },
        None => return,
    };
    span.record("trace_id", trace_id.as_str());
    if !is_exported || flags & SAMPLED == 0 {
        return;
    }
    let Some(span_id) = random_id::<8>() else { return };
    span.record("span_id", span_id.as_str());
    if let Some(parent_id) = parent_id {
        span.record("parent_id", parent_id.as_str());
    }
    let next = format!("00-{trace_id}-{span_id}-{flags:02x}");
    if let Ok(next) = HeaderValue::try_from(next) {
        headers.insert(TRACE_PARENT, next);
    }
}

/// `None`: the kernel returns no random bytes. The call goes on without a trace.
fn random_id<const BYTES: usize>() -> Option<String> {
    let mut bytes = [0; BYTES];
    let filled = getrandom(&mut bytes, GetRandomFlags::NONBLOCK).ok()?;
    if filled != BYTES || bytes.iter().all(|byte| *byte == 0) {
        return None;
    }
    let mut text = String::with_capacity(2 * BYTES);
    for byte in bytes {
        // To a string it cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Some(text)
}

#[cfg(test)]
#[path = "trace_context_tests.rs"]
mod tests;
