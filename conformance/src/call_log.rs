//! What was asked and answered, for the report. Values of secrets are left out.

use std::fmt;

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage, Value};

use crate::wire::descriptor;

#[derive(Debug, Clone)]
pub struct Call {
    /// `/csi.v1.Controller/CreateVolume`
    pub path: String,
    pub request: String,
    pub answer: String,
}

impl fmt::Display for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "call:     {} {}", self.path, self.request)?;
        write!(formatter, "answer:   {}", self.answer)
    }
}

/// Longer values say nothing more to a reader.
const SHOWN: usize = 160;

/// A message as text, by its full name; what it holds beyond its description is not shown.
pub(crate) fn render(message: &str, encoded: &[u8]) -> String {
    let decoded = descriptor(message).map(|kind| DynamicMessage::decode(kind, encoded));
    match decoded {
        Some(Ok(decoded)) => render_message(&decoded),
        Some(Err(error)) => format!("{} bytes that cannot be decoded: {error}", encoded.len()),
        None => format!("{} bytes", encoded.len()),
    }
}

fn render_message(message: &DynamicMessage) -> String {
    let fields = message.fields().map(|(field, value)| {
        let shown = if is_secret(&field) {
            "(secret)".to_owned()
        } else {
            render_value(&field.kind(), value)
        };
        format!("{}: {shown}", field.name())
    });
    let fields: Vec<_> = fields.collect();
    if fields.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", fields.join(", ")) }
}

fn is_secret(field: &FieldDescriptor) -> bool {
    field.name().ends_with("secrets")
}

fn render_value(kind: &Kind, value: &Value) -> String {
    match value {
        Value::Message(message) => render_message(message),
        Value::String(text) => quoted(text),
        Value::EnumNumber(number) => {
            match kind.as_enum().and_then(|kind| kind.get_value(*number)) {
                Some(known) => known.name().to_owned(),
                None => number.to_string(),
            }
        }
        Value::List(entries) => {
            let entries: Vec<_> = entries.iter().map(|entry| render_value(kind, entry)).collect();
            shortened(format!("[{}]", entries.join(", ")))
        }
        Value::Map(entries) => {
            let mut entries: Vec<_> =
                entries.iter().map(|(key, value)| render_entry(key, value)).collect();
            entries.sort();
            shortened(format!("{{{}}}", entries.join(", ")))
        }
        Value::Bool(value) => value.to_string(),
        Value::I32(value) => value.to_string(),
        Value::I64(value) => value.to_string(),
        Value::U32(value) => value.to_string(),
        Value::U64(value) => value.to_string(),
        Value::F32(value) => value.to_string(),
        Value::F64(value) => value.to_string(),
        Value::Bytes(bytes) => format!("{} bytes", bytes.len()),
    }
}

/// Of the maps of CSI, whose keys and values are text.
fn render_entry(key: &MapKey, value: &Value) -> String {
    let (key, value) = (key.as_str().unwrap_or_default(), value.as_str().unwrap_or_default());
    format!("{key:?}: {value:?}")
}

fn quoted(text: &str) -> String {
    shortened(format!("{text:?}"))
}

fn shortened(text: String) -> String {
    if text.len() <= SHOWN {
        return text;
    }
    let kept: String = text.chars().take(SHOWN).collect();
    format!("{kept}… ({} bytes)", text.len())
}

/// Of a reply that came: its fields, named by their message.
pub(crate) fn render_reply(message: &str, encoded: &[u8]) -> String {
    let name = message.rsplit('.').next().unwrap_or(message);
    format!("OK {name} {}", render(message, encoded))
}

pub(crate) fn render_status(status: &tonic::Status) -> String {
    format!("{:?} {:?}", status.code(), status.message())
}

/// Visits all fields that are set in a message and in those that it holds, each with its path.
pub(crate) fn descend(
    message: &DynamicMessage,
    at: &str,
    visit: &mut dyn FnMut(&str, &FieldDescriptor, &Value),
) {
    for (field, value) in message.fields() {
        let at = format!("{at}.{}", field.name());
        visit(&at, &field, value);
        match value {
            Value::Message(inner) => descend(inner, &at, visit),
            Value::List(entries) => {
                for entry in entries.iter().filter_map(Value::as_message) {
                    descend(entry, &at, visit);
                }
            }
            Value::Bool(_)
            | Value::I32(_)
            | Value::I64(_)
            | Value::U32(_)
            | Value::U64(_)
            | Value::F32(_)
            | Value::F64(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::EnumNumber(_)
            | Value::Map(_) => {}
        }
    }
}

pub(crate) fn full_name(message: &DynamicMessage) -> String {
    message.descriptor().full_name().to_owned()
}
