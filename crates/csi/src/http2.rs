//! A connection as the HTTP library is to see it: any client is understood, whatever it takes for
//! the authority of a UNIX socket, and what the library refuses is logged.

mod frame;
#[cfg(test)]
mod hex;
pub(crate) mod hpack;
mod huffman;
pub(crate) mod inbound;
mod refusals;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use self::inbound::Inbound;
use self::refusals::{Refusal, Refusals};

/// What is kept for the next piece, at most, while there is nothing in it.
const KEPT_BYTES: usize = 16 << 10;

pub(crate) struct Lenient<S> {
    stream: S,
    /// The peer's process, for the log.
    pid: Option<i32>,
    inbound: Inbound,
    /// Bytes that the server reads, from `given` on.
    passed: Vec<u8>,
    given: usize,
    refusals: Refusals,
    has_warned: bool,
}

impl<S> Lenient<S> {
    pub(crate) fn new(stream: S, pid: Option<i32>) -> Self {
        Self {
            stream,
            pid,
            inbound: Inbound::default(),
            passed: Vec::new(),
            given: 0,
            refusals: Refusals::default(),
            has_warned: false,
        }
    }

    fn give(&mut self, buffer: &mut ReadBuf<'_>) {
        let rest = &self.passed[self.given..];
        let given = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..given]);
        self.given += given;
        if self.given < self.passed.len() {
            return;
        }
        self.given = 0;
        self.passed.clear();
        self.passed.shrink_to(KEPT_BYTES);
    }

    fn look_for_refusals(&mut self, written: &[u8]) {
        match self.refusals.find(written) {
            None => {}
            Some(Refusal::Call(code)) => {
                self.warn(&format!("refused a call with {}, an error of HTTP/2", code.name()));
            }
            Some(Refusal::Connection(code)) => {
                let code = code.name();
                self.warn(&format!("closed a connection with {code}, an error of HTTP/2"));
            }
        }
    }

    /// Once for each connection: a peer may break the rules as often as it likes.
    fn warn(&mut self, what: &str) {
        let pid = self.pid.unwrap_or_default();
        if self.has_warned {
            tracing::debug!(pid, "{what}");
        } else {
            tracing::warn!(pid, "{what}");
        }
        self.has_warned = true;
    }
}

impl<S: Connected> Connected for Lenient<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> S::ConnectInfo {
        self.stream.connect_info()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lenient<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if !this.passed.is_empty() {
                this.give(buffer);
                return Poll::Ready(Ok(()));
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
            let read = &buffer.filled()[before..];
            if read.is_empty() || this.inbound.passes_through() {
                return Poll::Ready(Ok(()));
            }
            let taken = this.inbound.take(read, &mut this.passed);
            buffer.set_filled(before);
            if let Some(malformed) = this.inbound.notice() {
                this.warn(&format!("a peer sent {malformed}, which will be refused"));
            }
            if let Err(malformed) = taken {
                this.warn(&format!("closed a connection: the peer sent {malformed}"));
                this.passed.clear();
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, malformed)));
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Lenient<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(context, slices))?;
        let mut left = written;
        for slice in slices {
            let taken = left.min(slice.len());
            this.look_for_refusals(&slice[..taken]);
            left -= taken;
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
#[path = "http2/stream_tests.rs"]
mod tests;
