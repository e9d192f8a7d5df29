//! Messages as numbered fields, for what the suite's own messages would hide: a field under the
//! wrong number, and one that must not be there.

use prost::bytes::Buf;
use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field,
};

/// A field of a message: its number and, of one that has a length, its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub number: u32,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Varint(u64),
    /// A text, a map's entry, or a message.
    Bytes(Vec<u8>),
    /// Of fixed width; nothing here has one.
    Other,
}

/// Neither a message nor text: a plugin that knows the field cannot read it, and one that does not,
/// ignores it.
pub const GARBAGE: [u8; 2] = [0xff, 0xff];

/// `None` if it is no message at all.
pub fn fields(mut message: &[u8]) -> Option<Vec<Field>> {
    let mut found = Vec::new();
    while message.has_remaining() {
        let (number, wire_type) = decode_key(&mut message).ok()?;
        let value = match wire_type {
            WireType::Varint => Value::Varint(decode_varint(&mut message).ok()?),
            WireType::LengthDelimited => Value::Bytes(delimited(&mut message)?),
            WireType::ThirtyTwoBit
            | WireType::SixtyFourBit
            | WireType::StartGroup
            | WireType::EndGroup => {
                skip_field(wire_type, number, &mut message, DecodeContext::default()).ok()?;
                Value::Other
            }
        };
        found.push(Field { number, value });
    }
    Some(found)
}

fn delimited(message: &mut &[u8]) -> Option<Vec<u8>> {
    let length = usize::try_from(decode_varint(message).ok()?).ok()?;
    let (content, rest) = message.split_at_checked(length)?;
    *message = rest;
    Some(content.to_vec())
}

/// The contents of all fields with this number.
pub fn contents(message: &[u8], number: u32) -> Option<Vec<Vec<u8>>> {
    let of_number = fields(message)?.into_iter().filter(|field| field.number == number);
    of_number
        .map(|field| match field.value {
            Value::Bytes(content) => Some(content),
            Value::Varint(_) | Value::Other => None,
        })
        .collect()
}

/// One that has a length.
pub fn delimited_field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    encode_key(number, WireType::LengthDelimited, &mut encoded);
    encode_varint(content.len().try_into().unwrap_or(u64::MAX), &mut encoded);
    encoded.extend_from_slice(content);
    encoded
}

pub fn varint_field(number: u32, value: u64) -> Vec<u8> {
    let mut encoded = Vec::new();
    encode_key(number, WireType::Varint, &mut encoded);
    encode_varint(value, &mut encoded);
    encoded
}

#[cfg(test)]
#[path = "fields_tests.rs"]
mod tests;
