//! Events: what Orlop logs at `info` or above, kept in memory whatever ORLOP_LOG says. What must not be in the log, such
//! as secrets, is not in events either.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use orlop_csi::{Event, EventLog};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Callers name volumes, and messages quote errors of other programs.
const LONGEST_MESSAGE: usize = 1024;
const LONGEST_FIELD: usize = 256;
const MAX_FIELDS: usize = 16;

static LOG: LazyLock<Arc<EventLog>> = LazyLock::new(Arc::default);

pub(crate) fn log() -> &'static Arc<EventLog> {
    &LOG
}

/// The layer for the tracing subscriber of this process.
pub(crate) fn layer<S>() -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let is_event = |metadata: &Metadata<'_>| {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("orlop")
    };
    EventLayer.with_filter(filter_fn(is_event).with_max_level_hint(LevelFilter::INFO))
}

struct EventLayer;

impl<S> Layer<S> for EventLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        let mut found = Fields::default();
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(fields) = span.extensions().get::<Fields>() {
                found.add_outer(fields);
            }
        }
        event.record(&mut found);
        LOG.push(Event {
            sequence: 0,
            time: SystemTime::now(),
            level: level_name(*event.metadata().level()),
            kind: kind(event.metadata().target()),
            message: found.message,
            fields: found.named,
        });
    }
}

/// The fields of a span, or of an event and the spans around it.
#[derive(Default)]
struct Fields {
    message: String,
    named: BTreeMap<String, String>,
}

impl Fields {
    fn set(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = shortened(value, LONGEST_MESSAGE),
            name if self.named.len() < MAX_FIELDS => {
                self.named.insert(name.to_owned(), shortened(value, LONGEST_FIELD));
            }
            _ => {}
        }
    }

    /// Adds the fields of an outer span. Fields that are set already win.
    fn add_outer(&mut self, outer: &Self) {
        for (name, value) in &outer.named {
            self.named.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.set(field, format!("{value:?}"));
    }
}

fn shortened(mut text: String, longest: usize) -> String {
    if text.len() > longest {
        let end = (0..=longest).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
    text
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        _ => "info",
    }
}

/// The kind of an event, by the module that logged it.
fn kind(target: &str) -> &'static str {
    const KINDS: [(&str, &str); 10] = [
        ("orlop_csi::layers", "call"),
        ("orlop_csi::services::snapshot_metadata", "call"),
        ("orlop_csi::readiness", "pool"),
        ("orlop_csi::cluster_memory", "peer"),
        ("orlop_router", "peer"),
        ("orlop_pools", "pool"),
        ("orlop_engine::pool_breaker", "pool"),
        ("orlop_engine", "volume"),
        ("orlop_host", "node"),
        ("orlop::pool_startup", "pool"),
    ];
    let found = KINDS.iter().find(|(prefix, _)| target.starts_with(prefix));
    found.map_or("daemon", |(_, kind)| kind)
}

#[cfg(test)]
mod tests;
