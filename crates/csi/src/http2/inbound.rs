//! Rewrites an authority (`:authority`) that the HTTP library would refuse.
//!
//! On a UNIX socket the authority of a call has no meaning, and many clients send the socket's path, which is not a
//! valid one. Headers are compressed with those of earlier calls on the connection. So from the first such call on,
//! every block of headers is written again, uncompressed; until then all bytes are forwarded unchanged.

use tonic::codegen::http::uri::Authority;

use super::frame::{self, HEAD_BYTES, Head, MAX_PAYLOAD};
use super::hpack::{self, Decoder, Field, Malformed};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The size of headers that the HTTP library accepts in one message.
const MAX_DECODED: usize = 16 << 10;
/// The size of a block of headers whose last frame has not arrived.
const MAX_HELD: usize = 64 << 10;

const AUTHORITY: &[u8] = b":authority";
/// True as well: the client is on this machine.
const REPLACEMENT: &str = "localhost";

pub(crate) struct Inbound {
    state: ParserState,
    head: Vec<u8>,
    /// Frames of a block of headers, kept back until its last one is there.
    held: Vec<u8>,
    block: Option<Block>,
    decoder: Decoder,
    is_rewriting: bool,
    notice: Option<Malformed>,
}

enum ParserState {
    /// How many bytes of it have been seen.
    Preface(usize),
    Head,
    /// How many bytes of it are still to come.
    Payload(usize),
    /// As `Payload`, for a frame that is kept back.
    Fragment(Head, usize),
    /// Malformed: everything is forwarded unchanged, and the HTTP library refuses it.
    PassThrough,
}

/// The headers of one message.
struct Block {
    first: Head,
    compressed: Vec<u8>,
}

impl Default for Inbound {
    fn default() -> Self {
        Self {
            state: ParserState::Preface(0),
            head: Vec::new(),
            held: Vec::new(),
            block: None,
            decoder: Decoder::default(),
            is_rewriting: false,
            notice: None,
        }
    }
}

impl Inbound {
    /// Appends to `passed` what the HTTP library is to read. An error ends the connection: its bytes can neither be
    /// parsed nor forwarded unchanged.
    pub(crate) fn take(&mut self, bytes: &[u8], passed: &mut Vec<u8>) -> Result<(), Malformed> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = match self.state {
                ParserState::Preface(seen) => self.preface(seen, rest, passed),
                ParserState::Head => self.head(rest, passed)?,
                ParserState::Payload(left) => {
                    let taken = left.min(rest.len());
                    passed.extend_from_slice(&rest[..taken]);
                    self.state = if taken < left {
                        ParserState::Payload(left - taken)
                    } else {
                        ParserState::Head
                    };
                    taken
                }
                ParserState::Fragment(head, left) => {
                    let taken = left.min(rest.len());
                    self.held.extend_from_slice(&rest[..taken]);
                    if taken < left {
                        self.state = ParserState::Fragment(head, left - taken);
                    } else {
                        self.end_of_fragment(head, passed)?;
                    }
                    taken
                }
                ParserState::PassThrough => {
                    passed.extend_from_slice(rest);
                    rest.len()
                }
            };
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// Everything is forwarded without being parsed.
    pub(crate) fn passes_through(&self) -> bool {
        matches!(self.state, ParserState::PassThrough)
    }

    /// What the HTTP library will refuse, once for each.
    pub(crate) fn notice(&mut self) -> Option<Malformed> {
        self.notice.take()
    }

    fn preface(&mut self, seen: usize, rest: &[u8], passed: &mut Vec<u8>) -> usize {
        let expected = &PREFACE[seen..];
        let taken = expected.len().min(rest.len());
        passed.extend_from_slice(&rest[..taken]);
        self.state = if rest[..taken] != expected[..taken] {
            self.notice = Some(Malformed("something other than HTTP/2"));
            ParserState::PassThrough
        } else if taken == expected.len() {
            ParserState::Head
        } else {
            ParserState::Preface(seen + taken)
        };
        taken
    }

    fn head(&mut self, rest: &[u8], passed: &mut Vec<u8>) -> Result<usize, Malformed> {
        let taken = (HEAD_BYTES - self.head.len()).min(rest.len());
        self.head.extend_from_slice(&rest[..taken]);
        let Some(head) = Head::parse(&self.head) else { return Ok(taken) };
        let belongs = match &self.block {
            None => head.kind == frame::HEADERS,
            Some(block) => head.kind == frame::CONTINUATION && head.stream == block.first.stream,
        };
        if belongs {
            self.held.append(&mut self.head);
            if head.length > MAX_PAYLOAD || self.held.len() + head.length > MAX_HELD {
                self.pass_through(Malformed("more than 64 KiB of headers"), passed)?;
            } else if head.length == 0 {
                self.end_of_fragment(head, passed)?;
            } else {
                self.state = ParserState::Fragment(head, head.length);
            }
        } else if self.block.is_some() {
            self.held.append(&mut self.head);
            self.pass_through(Malformed("a frame inside a block of headers"), passed)?;
        } else {
            passed.append(&mut self.head);
            self.state = if head.length == 0 {
                ParserState::Head
            } else {
                ParserState::Payload(head.length)
            };
        }
        Ok(taken)
    }

    fn end_of_fragment(&mut self, head: Head, passed: &mut Vec<u8>) -> Result<(), Malformed> {
        self.state = ParserState::Head;
        let payload = &self.held[self.held.len() - head.length..];
        let Some(fragment) = head.fragment(payload) else {
            return self.pass_through(Malformed("padding longer than its frame"), passed);
        };
        let block = self.block.get_or_insert_with(|| Block { first: head, compressed: Vec::new() });
        block.compressed.extend_from_slice(fragment);
        if head.flags & frame::END_HEADERS == 0 {
            return Ok(());
        }
        match self.block.take() {
            Some(block) => self.end_of_block(&block, passed),
            None => Ok(()),
        }
    }

    fn end_of_block(&mut self, block: &Block, passed: &mut Vec<u8>) -> Result<(), Malformed> {
        let mut fields = match self.decoder.decode(&block.compressed) {
            Ok(fields) => fields,
            Err(malformed) => return self.pass_through(malformed, passed),
        };
        if fields.iter().map(Field::size).sum::<usize>() > MAX_DECODED {
            self.notice = Some(Malformed("more than 16 KiB of headers"));
        }
        self.is_rewriting |= fields.iter().any(is_refused);
        if !self.is_rewriting {
            passed.append(&mut self.held);
            return Ok(());
        }
        for field in fields.iter_mut().filter(|field| is_refused(field)) {
            field.value = REPLACEMENT.into();
        }
        self.held.clear();
        frame::put_headers(passed, block.first, &hpack::encode(&fields));
        Ok(())
    }

    /// The HTTP library says what it thinks of it, if it still knows what the peer refers to: once
    /// blocks were rewritten, its table is another than the peer's.
    fn pass_through(&mut self, why: Malformed, passed: &mut Vec<u8>) -> Result<(), Malformed> {
        if self.is_rewriting {
            return Err(why);
        }
        passed.append(&mut self.held);
        self.block = None;
        self.state = ParserState::PassThrough;
        self.notice = Some(why);
        Ok(())
    }
}

fn is_refused(field: &Field) -> bool {
    field.name == AUTHORITY && Authority::try_from(field.value.as_slice()).is_err()
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;
