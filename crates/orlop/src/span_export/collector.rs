//! A tracing layer that collects the spans of calls, with the lines that were logged in them.

use std::fmt::Debug;
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event as LoggedEvent, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::messages::{Event, KeyValue, Span, SpanKind, SpanStatus, StatusCode};
use super::queue::QUEUE;

/// The name of the span of a call in `csi/src/layers.rs`.
const CALL: &str = "call";
const MAX_EVENTS: usize = 64;

/// Codes that are errors of the server by the conventions of OpenTelemetry, with their numbers.
const ERRORS: [(&str, i64); 6] = [
    ("UNKNOWN", 2),
    ("DEADLINE_EXCEEDED", 4),
    ("UNIMPLEMENTED", 12),
    ("INTERNAL", 13),
    ("UNAVAILABLE", 14),
    ("DATA_LOSS", 15),
];
const OTHERS: [(&str, i64); 11] = [
    ("OK", 0),
    ("CANCELLED", 1),
    ("INVALID_ARGUMENT", 3),
    ("NOT_FOUND", 5),
    ("ALREADY_EXISTS", 6),
    ("PERMISSION_DENIED", 7),
    ("RESOURCE_EXHAUSTED", 8),
    ("FAILED_PRECONDITION", 9),
    ("ABORTED", 10),
    ("OUT_OF_RANGE", 11),
    ("UNAUTHENTICATED", 16),
];

pub(crate) struct SpanCollector;

/// A running call.
struct RecordedCall {
    begun: SystemTime,
    fields: Fields,
    events: Vec<Event>,
    left_out: u32,
    /// The code and message of its outcome.
    outcome: Option<(String, String)>,
}

#[derive(Default)]
struct Fields(Vec<(&'static str, String)>);

impl Fields {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    fn attributes(&self, without: &[&str]) -> Vec<KeyValue> {
        let fields = self.0.iter().filter(|(name, _)| !without.contains(name));
        fields.map(|(name, value)| KeyValue::text(&format!("orlop.{name}"), value)).collect()
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanCollector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if !QUEUE.is_open() || attributes.metadata().name() != CALL {
            return;
        }
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(RecordedCall {
            begun: SystemTime::now(),
            fields,
            events: Vec::new(),
            left_out: 0,
            outcome: None,
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(call) = span.extensions_mut().get_mut::<RecordedCall>() {
            values.record(&mut call.fields);
        }
    }

    fn on_event(&self, event: &LoggedEvent<'_>, context: Context<'_, S>) {
        if !QUEUE.is_open() || *event.metadata().level() > Level::INFO {
            return self.on_outcome(event, &context);
        }
        let Some(span) =
            context.event_scope(event).and_then(|mut scope| scope.find(|it| it.name() == CALL))
        else {
            return;
        };
        if let Some(call) = span.extensions_mut().get_mut::<RecordedCall>() {
            call.note(event, true);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let call = span.extensions_mut().remove::<RecordedCall>();
        if let Some(exported) = call.and_then(RecordedCall::exported) {
            QUEUE.push(exported);
        }
    }
}

impl SpanCollector {
    /// The outcome of a read-only call is logged at `debug`, a level that is not collected otherwise.
    fn on_outcome<S>(&self, event: &LoggedEvent<'_>, context: &Context<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        if !QUEUE.is_open() || event.fields().all(|field| field.name() != "code") {
            return;
        }
        let scope = context.event_scope(event);
        let Some(span) = scope.and_then(|mut scope| scope.find(|it| it.name() == CALL)) else {
            return;
        };
        if let Some(call) = span.extensions_mut().get_mut::<RecordedCall>() {
            call.note(event, false);
        }
    }
}

impl RecordedCall {
    fn note(&mut self, event: &LoggedEvent<'_>, is_kept: bool) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = fields.get("message").unwrap_or_default().to_owned();
        if let Some(code) = fields.get("code") {
            self.outcome = Some((code.to_owned(), message.clone()));
        }
        if !is_kept {
            return;
        }
        if self.events.len() >= MAX_EVENTS {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        let mut attributes = fields.attributes(&["message"]);
        let level = event.metadata().level().as_str();
        attributes.push(KeyValue::text("level", level));
        self.events.push(Event {
            time_unix_nano: nanoseconds(SystemTime::now()),
            name: message,
            attributes,
        });
    }

    /// `None`: its trace is not sampled.
    fn exported(self) -> Option<Span> {
        let id = |name: &str| self.fields.get(name).and_then(bytes);
        let method = self.fields.get("method").unwrap_or_default();
        let mut attributes =
            self.fields.attributes(&["call", "method", "trace_id", "span_id", "parent_id"]);
        attributes.push(KeyValue::text("rpc.system", "grpc"));
        attributes.push(KeyValue::text("rpc.method", method));
        let mut status = None;
        if let Some((code, message)) = &self.outcome {
            let known = ERRORS.iter().chain(&OTHERS).find(|(name, _)| name == code);
            attributes
                .extend(known.map(|(_, number)| KeyValue::number("rpc.grpc.status_code", *number)));
            if ERRORS.iter().any(|(name, _)| name == code) {
                let code = StatusCode::Error.into();
                status = Some(SpanStatus { message: message.clone(), code });
            }
        }
        Some(Span {
            trace_id: id("trace_id")?,
            span_id: id("span_id")?,
            parent_span_id: id("parent_id").unwrap_or_default(),
            name: method.to_owned(),
            kind: SpanKind::Server.into(),
            start_time_unix_nano: nanoseconds(self.begun),
            end_time_unix_nano: nanoseconds(SystemTime::now()),
            attributes,
            events: self.events,
            dropped_events_count: self.left_out,
            status,
        })
    }
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Of an id in hexadecimal digits.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
