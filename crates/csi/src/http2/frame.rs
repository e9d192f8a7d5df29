//! Frames of HTTP/2 (RFC 9113, section 4), as far as they are needed here.

pub(super) const HEAD_BYTES: usize = 9;
/// The largest payload of a frame, by default; no other size is announced to a peer.
pub(super) const MAX_PAYLOAD: usize = 16 << 10;

pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const GOAWAY: u8 = 7;
pub(super) const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Head {
    /// `None`: there are bytes missing.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let [long, middle, short, kind, flags, stream @ ..] = bytes else { return None };
        let stream = u32::from_be_bytes(stream.try_into().ok()?) & !(1 << 31);
        let length = u32::from_be_bytes([0, *long, *middle, *short]);
        let length = usize::try_from(length).ok()?;
        Some(Self { length, kind: *kind, flags: *flags, stream })
    }

    fn put(self, into: &mut Vec<u8>) {
        // A length has 24 bits.
        let length = u32::try_from(self.length).unwrap_or(u32::MAX).to_be_bytes();
        into.extend_from_slice(&length[1..]);
        into.extend_from_slice(&[self.kind, self.flags]);
        into.extend_from_slice(&self.stream.to_be_bytes());
    }

    /// The headers in the payload of HEADERS or CONTINUATION.
    pub(super) fn fragment(self, payload: &[u8]) -> Option<&[u8]> {
        if self.kind != HEADERS {
            return Some(payload);
        }
        let (padding, payload) = match self.flags & PADDED {
            0 => (0, payload),
            _ => payload.split_first().map(|(padding, rest)| (usize::from(*padding), rest))?,
        };
        let priority = if self.flags & PRIORITY == 0 { 0 } else { 5 };
        payload.get(priority..payload.len().checked_sub(padding)?)
    }
}

/// A block of headers, in as many frames as it takes.
pub(super) fn put_headers(into: &mut Vec<u8>, first: Head, block: &[u8]) {
    let mut kind = HEADERS;
    let mut rest = block;
    loop {
        let (fragment, next) = rest.split_at(rest.len().min(MAX_PAYLOAD));
        let end_stream = if kind == HEADERS { first.flags & END_STREAM } else { 0 };
        let end_headers = if next.is_empty() { END_HEADERS } else { 0 };
        let flags = end_stream | end_headers;
        Head { length: fragment.len(), kind, flags, stream: first.stream }.put(into);
        into.extend_from_slice(fragment);
        if next.is_empty() {
            return;
        }
        (kind, rest) = (CONTINUATION, next);
    }
}
