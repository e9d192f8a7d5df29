//! The Huffman code of HPACK (RFC 7541, appendix B), decoding only.
//!
//! The code is canonical: among codes of one length, and from one length to the next, symbols and
//! codes rise together. So the lengths say everything.

use std::sync::LazyLock;

use super::hpack::Malformed;

/// How many bits each byte takes. The end of a string (30 bits, all ones) is no byte: where it
/// appears, the string is malformed.
#[rustfmt::skip]
const BITS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5,
    6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23,
    23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22,
    22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26,
    27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25,
    25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

const LONGEST: usize = 30;

const INVALID: Malformed = Malformed("an invalid Huffman code");

/// The codes of one length.
#[derive(Clone, Copy, Default)]
struct Length {
    first: u32,
    count: u32,
    /// Where their symbols begin.
    begin: usize,
}

struct Codes {
    lengths: [Length; LONGEST + 1],
    symbols: Vec<u8>,
}

static CODES: LazyLock<Codes> = LazyLock::new(|| {
    let mut codes = Codes { lengths: [Length::default(); LONGEST + 1], symbols: Vec::new() };
    let mut next = 0;
    for (bits, length) in (0_u8..).zip(&mut codes.lengths) {
        next <<= 1;
        length.first = next;
        length.begin = codes.symbols.len();
        for (symbol, _) in (0..=u8::MAX).zip(BITS).filter(|(_, needed)| *needed == bits) {
            codes.symbols.push(symbol);
            length.count += 1;
        }
        next += length.count;
    }
    codes
});

pub(super) fn decode(encoded: &[u8]) -> Result<Vec<u8>, Malformed> {
    let codes = &*CODES;
    // The shortest code has 5 bits.
    let mut decoded = Vec::with_capacity(encoded.len() * 8 / 5);
    let (mut code, mut bits) = (0_u32, 0_usize);
    for byte in encoded {
        for shift in (0..8).rev() {
            code = code << 1 | u32::from(byte >> shift & 1);
            bits += 1;
            let length = codes.lengths.get(bits).ok_or(INVALID)?;
            let place = code.wrapping_sub(length.first);
            if place >= length.count {
                continue;
            }
            let place = usize::try_from(place).unwrap_or(usize::MAX);
            let symbol = codes.symbols.get(length.begin.saturating_add(place));
            decoded.push(*symbol.ok_or(INVALID)?);
            (code, bits) = (0, 0);
        }
    }
    // Filled up with the beginning of the end's code, by less than a byte.
    let is_filled_up = bits < 8 && code == (1 << bits) - 1;
    is_filled_up.then_some(decoded).ok_or(Malformed("a truncated Huffman code"))
}

#[cfg(test)]
#[path = "huffman_tests.rs"]
mod tests;
