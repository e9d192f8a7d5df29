//! HTTP/2 as it goes over the socket, frame by frame.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Reached only if the daemon does not answer.
const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// Of its table: literals that are remembered, and that later calls refer to.
pub(crate) const AUTHORITY: u8 = 1;
pub(crate) const PATH: u8 = 4;
pub(crate) const CONTENT_TYPE: u8 = 31;
/// POST and http.
pub(crate) const CALL: [u8; 2] = [0x83, 0x86];

pub(crate) fn remembered(name: u8, value: &str) -> Vec<u8> {
    let length = u8::try_from(value.len()).unwrap();
    assert!(length < 127);
    [&[0x40 | name, length], value.as_bytes()].concat()
}

/// The headers of a call.
pub(crate) fn call(method: &str, content_type: &str) -> Vec<u8> {
    let headers = [
        &CALL[..],
        &remembered(AUTHORITY, "localhost"),
        &remembered(PATH, method),
        &remembered(CONTENT_TYPE, content_type),
        b"\x40\x02te\x08trailers",
    ];
    headers.concat()
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

pub(crate) struct Raw(UnixStream);

impl Raw {
    pub(crate) fn connect(socket: &Path) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).unwrap();
        Self(stream)
    }

    /// A call with an empty message, and the kinds of all that is answered until it ends.
    pub(crate) fn call(&mut self, stream: u32, headers: &[u8]) -> Vec<u8> {
        self.call_with(stream, headers, &frame(DATA, END_STREAM, stream, &[0; 5]))
    }

    /// As [`Self::call`], with a message that may have no end.
    pub(crate) fn call_with(&mut self, stream: u32, headers: &[u8], message: &[u8]) -> Vec<u8> {
        let headers = frame(HEADERS, END_HEADERS, stream, headers);
        self.0.write_all(&[&headers, message].concat()).unwrap();
        let mut kinds = Vec::new();
        loop {
            let found = read_frame(&mut self.0).unwrap();
            if found.stream == stream || found.kind == GOAWAY {
                kinds.push(found.kind);
            }
            let ends = found.kind == RST_STREAM || found.flags & END_STREAM != 0;
            if found.kind == GOAWAY || found.stream == stream && ends {
                return kinds;
            }
        }
    }

    /// Sends all of it, unless the daemon hangs up before, and then no more; what was answered until
    /// the end of the connection.
    pub(crate) fn send_all(self, pieces: impl Iterator<Item = Vec<u8>>) -> Vec<Frame> {
        let Self(mut writing) = self;
        let mut reading = writing.try_clone().unwrap();
        let answers = std::thread::spawn(move || {
            let mut frames = Vec::new();
            while let Some(found) = read_frame(&mut reading) {
                frames.push(found);
            }
            frames
        });
        for piece in pieces {
            if writing.write_all(&piece).is_err() {
                break;
            }
        }
        let _ = writing.shutdown(Shutdown::Write);
        answers.join().unwrap()
    }
}

/// `None` at the end of the connection.
#[track_caller]
fn read_frame(stream: &mut UnixStream) -> Option<Frame> {
    let mut head = [0; 9];
    if let Err(error) = stream.read_exact(&mut head) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "the daemon does not answer");
        return None;
    }
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut payload).ok()?;
    let number = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Some(Frame { kind: head[3], flags: head[4], stream: number })
}
