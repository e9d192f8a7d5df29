//! Messages with their fields elsewhere, as of a plugin that was made for another version.

use csi_conformance::fields::{Field, Value, delimited_field, fields, varint_field};

fn encoded(found: Vec<Field>) -> Vec<u8> {
    let field = |field: Field| match field.value {
        Value::Varint(value) => varint_field(field.number, value),
        Value::Bytes(content) => delimited_field(field.number, &content),
        Value::Other => Vec::new(),
    };
    found.into_iter().flat_map(field).collect()
}

/// Each field gets another number, or none: then it is left out.
pub(crate) fn renumbered(message: &[u8], number: impl Fn(u32) -> Option<u32>) -> Vec<u8> {
    let found = fields(message).unwrap_or_default().into_iter();
    let moved = |field: Field| number(field.number).map(|number| Field { number, ..field });
    encoded(found.filter_map(moved).collect())
}

/// One field goes elsewhere.
pub(crate) fn moved(message: &[u8], from: u32, to: u32) -> Vec<u8> {
    renumbered(message, |number| Some(if number == from { to } else { number }))
}

pub(crate) fn without(message: &[u8], number: u32) -> Vec<u8> {
    renumbered(message, |other| (other != number).then_some(other))
}

pub(crate) fn has(message: &[u8], number: u32) -> bool {
    fields(message).unwrap_or_default().iter().any(|field| field.number == number)
}

/// Changes the messages that are in fields with this number.
pub(crate) fn inside(message: &[u8], number: u32, change: impl Fn(Vec<u8>) -> Vec<u8>) -> Vec<u8> {
    let found = fields(message).unwrap_or_default().into_iter();
    let changed = |field: Field| match field.value {
        Value::Bytes(content) if field.number == number => {
            Field { number, value: Value::Bytes(change(content)) }
        }
        value @ (Value::Bytes(_) | Value::Varint(_) | Value::Other) => {
            Field { number: field.number, value }
        }
    };
    encoded(found.map(changed).collect())
}

/// With one more field at its end.
pub(crate) fn with(mut message: Vec<u8>, field: &[u8]) -> Vec<u8> {
    message.extend_from_slice(field);
    message
}
