//! The Huffman code of HPACK (RFC 7541, appendix B), decoding only.
//!
//! The code is canonical: symbols of one length have consecutive codes, in the order of the symbols, and longer
//! codes follow shorter ones. So the length of each symbol's code determines all codes.

use std::sync::LazyLock;

use super::hpack::Malformed;

/// The code length of each byte, in bits. EOS (30 ones) is not among them: a string that contains it is
/// malformed.
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

const MAX_BITS: usize = 30;

const INVALID: Malformed = Malformed("an invalid Huffman code");

/// The codes of one length.
#[derive(Clone, Copy, Default)]
struct Length {
    first_code: u32,
    count: u32,
    /// Index of their first symbol in `Codes::symbols`.
    first_symbol: usize,
}

struct Codes {
    lengths: [Length; MAX_BITS + 1],
    symbols: Vec<u8>,
}

static CODES: LazyLock<Codes> = LazyLock::new(|| {
    let mut codes = Codes { lengths: [Length::default(); MAX_BITS + 1], symbols: Vec::new() };
    let mut next = 0;
    for (bits, length) in (0_u8..).zip(&mut codes.lengths) {
        next <<= 1;
        length.first_code = next;
        length.first_symbol = codes.symbols.len();
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
            let index = code.wrapping_sub(length.first_code);
            if index >= length.count {
                continue;
            }
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            let symbol = codes.symbols.get(length.first_symbol.saturating_add(index));
            decoded.push(*symbol.ok_or(INVALID)?);
            (code, bits) = (0, 0);
        }
    }
    // The padding is the beginning of EOS, which is all ones, and shorter than a byte.
    let has_valid_padding = bits < 8 && code == (1 << bits) - 1;
    has_valid_padding.then_some(decoded).ok_or(Malformed("a truncated Huffman code"))
}

#[cfg(test)]
#[path = "huffman_tests.rs"]
mod tests;
