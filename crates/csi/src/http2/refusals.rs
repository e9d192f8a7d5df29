//! What the HTTP library refuses: it reports that only to the peer, by frames RST_STREAM and GOAWAY, so what is
//! sent is searched for them.

use super::frame::{GOAWAY, HEAD_BYTES, Head, RST_STREAM};

/// Reads what is sent, whatever pieces it is written in.
#[derive(Default)]
pub(crate) struct Refusals {
    /// The head of a frame; if the frame may be a refusal, also its payload up to the code.
    seen: Vec<u8>,
    /// Bytes left of a payload that is not inspected.
    to_skip: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Call(Code),
    Connection(Code),
}

/// The code of an error (RFC 9113, section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(u32);

impl Refusals {
    /// The first refusal in these bytes.
    pub(crate) fn find(&mut self, mut written: &[u8]) -> Option<Refusal> {
        let mut found = None;
        while !written.is_empty() {
            let skipped = self.to_skip.min(written.len());
            self.to_skip -= skipped;
            written = &written[skipped..];
            let Some((byte, rest)) = written.split_first() else { break };
            written = rest;
            self.seen.push(*byte);
            found = found.or(self.parse_frame());
        }
        found
    }

    fn parse_frame(&mut self) -> Option<Refusal> {
        let (head, payload) = self.seen.split_at_checked(HEAD_BYTES)?;
        let head = Head::parse(head)?;
        let code_bytes = match head.kind {
            RST_STREAM => 0..4,
            GOAWAY => 4..8,
            _ => 0..0,
        };
        if payload.len() < code_bytes.end.min(head.length) {
            return None;
        }
        let code = payload.get(code_bytes).and_then(|code| code.try_into().ok());
        self.to_skip = head.length - payload.len();
        self.seen.clear();
        let code = Code(u32::from_be_bytes(code?));
        match head.kind {
            RST_STREAM if !code.is_usual() => Some(Refusal::Call(code)),
            GOAWAY if code != Code::NO_ERROR => Some(Refusal::Connection(code)),
            _ => None,
        }
    }
}

impl Code {
    const NO_ERROR: Self = Self(0);

    /// A stream that ended early, or that a frame came too late for.
    fn is_usual(self) -> bool {
        const STREAM_CLOSED: Code = Code(5);
        const CANCEL: Code = Code(8);
        [Self::NO_ERROR, STREAM_CLOSED, CANCEL].contains(&self)
    }

    pub(crate) fn name(self) -> &'static str {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        let name = usize::try_from(self.0).ok().and_then(|number| NAMES.get(number));
        name.copied().unwrap_or("an unknown code")
    }
}

#[cfg(test)]
#[path = "refusals_tests.rs"]
mod tests;
