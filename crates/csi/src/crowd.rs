//! Who is connected. Connections cost memory and a descriptor each, and anyone who reaches the
//! socket can open them and say nothing; so there is a limit, and beyond it whoever was silent for
//! longest has to go.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::transport::server::Connected;

/// An orchestrator has some ten.
const MOST: usize = 512;

/// Of all descriptors, so much is for the connections of one socket: with two of them, half are left
/// for the work.
const SHARE: u64 = 4;

/// All connections of one socket.
pub(crate) struct Crowd {
    most: usize,
    members: Vec<Weak<Member>>,
    clock: Arc<AtomicU64>,
}

impl Crowd {
    /// For a process that may have so many files open; `None`: any number.
    pub(crate) fn within(descriptors: Option<u64>) -> Self {
        let share = descriptors.map_or(u64::MAX, |all| all / SHARE);
        let most = usize::try_from(share).map_or(MOST, |share| share.clamp(1, MOST));
        Self { most, members: Vec::new(), clock: Arc::default() }
    }

    /// `None`: there is no room, and all others are busy.
    pub(crate) fn admit(&mut self, stream: UnixStream) -> Option<Connection> {
        let members = &mut self.members;
        members.retain(|member| member.strong_count() > 0);
        if members.len() >= self.most {
            let silent = longest_silent(members)?;
            tracing::debug!(
                self.most,
                "connection limit reached; closing the connection that was idle longest"
            );
            // Whoever serves it reads an end, and lets go of it.
            members.retain(|member| !std::ptr::eq(member.as_ptr(), Arc::as_ptr(&silent)));
            let _ = shutdown(&silent.stream, Shutdown::Both);
        }
        let member = Arc::new(Member {
            stream,
            calls: AtomicUsize::new(0),
            last_heard: AtomicU64::new(0),
            clock: Arc::clone(&self.clock),
        });
        member.touch();
        members.push(Arc::downgrade(&member));
        Some(Connection(member))
    }
}

fn longest_silent(members: &[Weak<Member>]) -> Option<Arc<Member>> {
    let idle = members
        .iter()
        .filter_map(Weak::upgrade)
        .filter(|member| member.calls.load(Ordering::Relaxed) == 0);
    idle.min_by_key(|member| member.last_heard.load(Ordering::Relaxed))
}

struct Member {
    stream: UnixStream,
    /// That are being answered.
    calls: AtomicUsize,
    last_heard: AtomicU64,
    /// Counts what is heard from anyone: an order is all that is needed.
    clock: Arc<AtomicU64>,
}

impl Member {
    fn touch(&self) {
        self.last_heard.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Keeps the connection of a call that is being answered.
pub(crate) struct Busy(Arc<Member>);

impl Busy {
    pub(crate) fn with(peer: &Peer) -> Self {
        peer.0.calls.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&peer.0))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.touch();
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What calls know of their connection.
#[derive(Clone)]
pub(crate) struct Peer(Arc<Member>);

pub(crate) struct Connection(Arc<Member>);

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        Peer(Arc::clone(&self.0))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let member = &self.0;
        loop {
            ready!(member.stream.poll_read_ready(context))?;
            match member.stream.try_read(buffer.initialize_unfilled()) {
                Ok(length) => {
                    buffer.advance(length);
                    member.touch();
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Connection {
    /// The peer's process, as the kernel noted it when it connected.
    pub(crate) fn pid(&self) -> Option<i32> {
        self.0.stream.peer_cred().ok()?.pid()
    }

    fn poll_writing(
        &self,
        context: &mut Context<'_>,
        write: impl Fn(&UnixStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.stream.poll_write_ready(context))?;
            match write(&self.0.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(context, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The peer may be gone already, and then there is nothing to say.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = shutdown(&self.0.stream, Shutdown::Write);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
