//! Header compression (RFC 7541): decoding as the peer encoded, and encoding in the plainest way.

use std::collections::VecDeque;

use super::huffman;

/// The size of the dynamic table: the default of HTTP/2, as no other size is announced.
const TABLE_BYTES: usize = 4096;

/// The size of all headers of one message, decoded. More than the HTTP library accepts (16 KiB); it bounds what a few
/// compressed bytes can expand to.
const MAX_BYTES: usize = 64 << 10;

/// What each entry costs beyond its text (RFC 7541, 4.1).
const OVERHEAD: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub(super) &'static str);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(super) name: Vec<u8>,
    pub(super) value: Vec<u8>,
}

impl Field {
    fn new(name: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), value: value.into() }
    }

    pub(super) fn size(&self) -> usize {
        self.name.len() + self.value.len() + OVERHEAD
    }
}

/// What the headers of one connection refer to: its dynamic table.
pub(crate) struct Decoder {
    /// The newest first.
    entries: VecDeque<Field>,
    bytes: usize,
    most_bytes: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { entries: VecDeque::new(), bytes: 0, most_bytes: TABLE_BYTES }
    }
}

impl Decoder {
    /// After an error the table is not what the peer takes it for: no block may follow.
    pub(super) fn decode(&mut self, block: &[u8]) -> Result<Vec<Field>, Malformed> {
        let mut input = Input(block);
        let (mut fields, mut bytes) = (Vec::new(), 0_usize);
        while let Some(first) = input.peek() {
            let field = match first {
                0x80.. => self.entry(input.integer(7)?)?,
                0x40.. => {
                    let field = self.literal(&mut input, 6)?;
                    self.remember(field.clone());
                    field
                }
                0x20.. if fields.is_empty() => {
                    self.resize(input.integer(5)?)?;
                    continue;
                }
                0x20.. => return Err(Malformed("a table size update between headers")),
                // Literals without indexing, and never indexed: the same for a decoder.
                0x00.. => self.literal(&mut input, 4)?,
            };
            bytes += field.size();
            if bytes > MAX_BYTES {
                return Err(Malformed("more than 64 KiB of headers"));
            }
            fields.push(field);
        }
        Ok(fields)
    }

    fn literal(&self, input: &mut Input<'_>, prefix: u8) -> Result<Field, Malformed> {
        let name = match input.integer(prefix)? {
            0 => input.string()?,
            index => self.entry(index)?.name,
        };
        Ok(Field { name, value: input.string()? })
    }

    fn entry(&self, index: usize) -> Result<Field, Malformed> {
        const UNKNOWN: Malformed = Malformed("a reference to a header that is not in the table");
        let position = index.checked_sub(1).ok_or(UNKNOWN)?;
        if let Some((name, value)) = STATIC.get(position) {
            return Ok(Field::new(*name, *value));
        }
        self.entries.get(position - STATIC.len()).cloned().ok_or(UNKNOWN)
    }

    fn remember(&mut self, field: Field) {
        self.bytes += field.size();
        self.entries.push_front(field);
        self.forget();
    }

    fn resize(&mut self, bytes: usize) -> Result<(), Malformed> {
        if bytes > TABLE_BYTES {
            return Err(Malformed("a table size beyond the announced one"));
        }
        self.most_bytes = bytes;
        self.forget();
        Ok(())
    }

    fn forget(&mut self) {
        while self.bytes > self.most_bytes {
            let Some(oldest) = self.entries.pop_back() else { return };
            self.bytes -= oldest.size();
        }
    }
}

struct Input<'a>(&'a [u8]);

const TRUNCATED: Malformed = Malformed("a truncated block of headers");

impl<'a> Input<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(*first)
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// In the lower `prefix` bits of the next byte, and after it if they are all ones.
    fn integer(&mut self, prefix: u8) -> Result<usize, Malformed> {
        let max_in_prefix = (1_u8 << prefix) - 1;
        let start = self.byte()? & max_in_prefix;
        let mut value = usize::from(start);
        if start < max_in_prefix {
            return Ok(value);
        }
        // 28 bits are far beyond whatever is taken.
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed("a number that is too long"))
    }

    fn string(&mut self) -> Result<Vec<u8>, Malformed> {
        let is_huffman = self.peek().ok_or(TRUNCATED)? >= 0x80;
        let length = self.integer(7)?;
        let bytes = self.bytes(length)?;
        if is_huffman { huffman::decode(bytes) } else { Ok(bytes.to_vec()) }
    }
}

/// Literals that nothing has to be remembered for: whatever is in the reader's table, this block
/// means the same.
pub(super) fn encode(fields: &[Field]) -> Vec<u8> {
    let mut block = Vec::new();
    for field in fields {
        block.push(0);
        put_string(&mut block, &field.name);
        put_string(&mut block, &field.value);
    }
    block
}

fn put_string(block: &mut Vec<u8>, text: &[u8]) {
    const PREFIX: u8 = 0x7f;
    match u8::try_from(text.len()) {
        Ok(length) if length < PREFIX => block.push(length),
        Ok(_) | Err(_) => {
            block.push(PREFIX);
            let mut rest = text.len() - usize::from(PREFIX);
            while rest >= 0x80 {
                block.push(low_bits(rest) | 0x80);
                rest >>= 7;
            }
            block.push(low_bits(rest));
        }
    }
    block.extend_from_slice(text);
}

fn low_bits(number: usize) -> u8 {
    u8::try_from(number & 0x7f).unwrap_or_default()
}

/// RFC 7541, appendix A.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
#[path = "hpack_tests.rs"]
mod tests;
