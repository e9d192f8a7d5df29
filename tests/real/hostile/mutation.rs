//! Damage to messages that were right: of single bits, and of what the encoding is made of.

use orlop_tests::*;
use prost::encoding::{decode_varint, encode_varint};

const LENGTH_DELIMITED: u8 = 2;
/// Lengths that nothing has: beyond the message, beyond a message, negative, beyond 64 bits' half.
const HUGE: [u64; 5] = [1 << 16, 1 << 31, u32::MAX as u64, 1 << 63, u64::MAX];
/// Not of UTF-8: a byte that never occurs, a lone surrogate, an overlong NUL, an end too early.
const NO_TEXT: [&[u8]; 4] = [b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf0\x9f"];

/// Text, but hardly what is expected.
const ODD_TEXT: [&str; 9] =
    ["", "x", "v-", "\u{e9}", "\u{202e}\u{1f419}", "nul\0byte", "../..", "--help", "\u{feff} \n\t"];

/// A field as it is in the message, with where it begins and ends.
#[derive(Clone, Copy)]
struct Field {
    start: usize,
    end: usize,
    /// Where what it holds begins, after the tag and, if there is one, the length.
    value: usize,
    is_delimited: bool,
}

/// Those that are whole; the message may be damaged already.
fn fields(message: &[u8]) -> Vec<Field> {
    let mut found = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        let start = message.len() - rest.len();
        let Ok(tag) = decode_varint(&mut rest) else { break };
        let is_delimited = tag & 7 == u64::from(LENGTH_DELIMITED);
        let length = match tag & 7 {
            0 => rest.iter().position(|byte| *byte < 0x80).map(|last| last + 1),
            1 => Some(8),
            2 => decode_varint(&mut rest).ok().and_then(|length| usize::try_from(length).ok()),
            5 => Some(4),
            _ => None,
        };
        let value = message.len() - rest.len();
        let Some(after) = length.and_then(|length| rest.get(length..)) else { break };
        rest = after;
        found.push(Field { start, end: message.len() - rest.len(), value, is_delimited });
    }
    found
}

fn delimited(tag: u8, length: u64, content: &[u8]) -> Vec<u8> {
    let mut field = vec![tag];
    encode_varint(length, &mut field);
    field.extend_from_slice(content);
    field
}

/// The message with something in the place of one of its fields.
fn replaced(message: &[u8], field: Field, with: &[u8]) -> Vec<u8> {
    [&message[..field.start], with, &message[field.end..]].concat()
}

fn flip(message: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut flipped = message.to_vec();
    for _ in 0..=rng.u64(..4) {
        let byte = rng.usize(..flipped.len());
        flipped[byte] ^= 1 << rng.u64(..8);
    }
    flipped
}

/// Damaged in one way.
pub(crate) fn mutate(message: &[u8], rng: &mut Rng) -> Vec<u8> {
    let fields = fields(message);
    if fields.is_empty() {
        let noise = (0..=rng.u64(..16)).map(|_| rng.u8(..));
        return [message, &noise.collect::<Vec<_>>()].concat();
    }
    let field = *rng.choice(&fields).expect("a non-empty list");
    let whole = &message[field.start..field.end];
    let (tag, content) = (message[field.start], &message[field.value..field.end]);
    let length = u64::try_from(content.len()).unwrap();
    match rng.u64(..12) {
        0 | 1 => flip(message, rng),
        2 => message[..rng.usize(..message.len())].to_vec(),
        3 => [message, &whole.repeat(1 + rng.usize(..500))].concat(),
        // Bits 0 to 2 are the wire type.
        4 => replaced(
            message,
            field,
            &[&[tag ^ *rng.choice(&[1, 2, 3, 4, 5, 6, 7]).expect("a non-empty list")], &whole[1..]]
                .concat(),
        ),
        5 => replaced(message, field, &[]),
        6 if field.is_delimited => replaced(
            message,
            field,
            &delimited(tag, *rng.choice(&HUGE).expect("a non-empty list"), content),
        ),
        7 if field.is_delimited => {
            let at = rng.usize(..content.len() + 1);
            let text =
                [&content[..at], *rng.choice(&NO_TEXT).expect("a non-empty list"), &content[at..]]
                    .concat();
            let length = u64::try_from(text.len()).unwrap();
            replaced(message, field, &delimited(tag, length, &text))
        }
        8 if field.is_delimited => {
            replaced(message, field, &delimited(tag, length ^ (1 + rng.u64(..3)), content))
        }
        // Within: the length is right, and the rest as it was.
        9 if field.is_delimited && !content.is_empty() => {
            let content = mutate(content, rng);
            let length = u64::try_from(content.len()).unwrap();
            replaced(message, field, &delimited(tag, length, &content))
        }
        10 | 11 if field.is_delimited => {
            let text = *rng.choice(&ODD_TEXT).expect("a non-empty list");
            let length = u64::try_from(text.len()).unwrap();
            replaced(message, field, &delimited(tag, length, text.as_bytes()))
        }
        _ => flip(message, rng),
    }
}

#[test]
fn mutations_differ_and_can_be_repeated() {
    let message = b"\x0a\x04name\x12\x02\x08\x01";
    let many = |seed| {
        let mut rng = Rng::with_seed(seed);
        (0..200).map(|_| mutate(message, &mut rng)).collect::<Vec<_>>()
    };
    assert_eq!(many(1), many(1));
    assert_ne!(many(1), many(2));
    let changed = many(1).iter().filter(|mutated| mutated.as_slice() != message).count();
    assert!(changed > 190, "{changed}");
}
