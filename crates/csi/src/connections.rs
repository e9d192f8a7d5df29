//! The connection limit. Each connection costs memory and a descriptor, and any process that reaches the
//! socket can open them and send nothing. At the limit, the connection that was idle longest is closed.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};

use orlop_model::{Error, Result};
use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::Status;
use tonic::codegen::http::Request;
use tonic::transport::server::Connected;

use crate::call_stats::{CallStats, Counted};
use crate::status;

/// An orchestrator opens about ten.
const MAX_CONNECTIONS: usize = 512;

/// The connections of one socket may use one in four of all descriptors: with two sockets, half are left for other
/// files.
const DESCRIPTORS_PER_CONNECTION: u64 = 4;

/// Half of all streams, so that a client that does not read its own keeps no other from having one.
const STREAMS_PER_CONNECTION: usize = 32;

/// All connections of one socket; clones share them.
#[derive(Clone)]
pub(crate) struct ConnectionTable {
    max: usize,
    slots: Arc<Mutex<Vec<Weak<Slot>>>>,
    clock: Arc<AtomicU64>,
    stats: Arc<CallStats>,
}

impl ConnectionTable {
    /// For a process that may have so many files open; `None`: any number.
    pub(crate) fn within(descriptors: Option<u64>, stats: &Arc<CallStats>) -> Self {
        let share = descriptors.map_or(u64::MAX, |all| all / DESCRIPTORS_PER_CONNECTION);
        let max =
            usize::try_from(share).map_or(MAX_CONNECTIONS, |share| share.clamp(1, MAX_CONNECTIONS));
        Self { max, slots: Arc::default(), clock: Arc::default(), stats: Arc::clone(stats) }
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Weak<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all clients that nothing more comes. Dropping the connections would not do: as long as a
    /// thread is blocked in the kernel, all that this process has open stays open, also after its end.
    pub(crate) fn hang_up(&self) {
        for slot in self.slots().drain(..).filter_map(|slot| slot.upgrade()) {
            let _ = shutdown(&slot.stream, Shutdown::Both);
        }
    }

    /// `None`: the limit is reached, and all connections are busy.
    pub(crate) fn admit(&self, stream: UnixStream) -> Option<Connection> {
        let mut slots = self.slots();
        slots.retain(|slot| slot.strong_count() > 0);
        if slots.len() >= self.max {
            let idle = idle_longest(&slots)?;
            tracing::debug!(
                self.max,
                "connection limit reached; closing the connection that was idle longest"
            );
            // Its server reads an end of file, and drops it.
            slots.retain(|slot| !std::ptr::eq(slot.as_ptr(), Arc::as_ptr(&idle)));
            let _ = shutdown(&idle.stream, Shutdown::Both);
        }
        let slot = Arc::new(Slot {
            stream,
            calls: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
            last_heard: AtomicU64::new(0),
            clock: Arc::clone(&self.clock),
            _counted: self.stats.begin_connection(),
        });
        slot.touch();
        slots.push(Arc::downgrade(&slot));
        Some(Connection(slot))
    }
}

fn idle_longest(slots: &[Weak<Slot>]) -> Option<Arc<Slot>> {
    let idle = slots
        .iter()
        .filter_map(Weak::upgrade)
        .filter(|slot| slot.calls.load(Ordering::Relaxed) == 0);
    idle.min_by_key(|slot| slot.last_heard.load(Ordering::Relaxed))
}

struct Slot {
    stream: UnixStream,
    /// Calls that are being answered.
    calls: AtomicUsize,
    /// Streams that are open and read from.
    streams: AtomicUsize,
    last_heard: AtomicU64,
    /// Counts what is read from any connection: only the order matters.
    clock: Arc<AtomicU64>,
    _counted: Counted,
}

impl Slot {
    fn touch(&self) {
        self.last_heard.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// A call that is being answered: its connection is not idle.
pub(crate) struct InFlight(Arc<Slot>);

impl InFlight {
    pub(crate) fn with(connection: &ConnectionRef) -> Self {
        connection.0.calls.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&connection.0))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.touch();
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What calls know of their connection.
#[derive(Clone)]
pub(crate) struct ConnectionRef(Arc<Slot>);

impl ConnectionRef {
    /// Fails if as many are open as one connection may have.
    pub(crate) fn try_open_stream(&self) -> Result<ConnectionStream> {
        let more = |open| (open < STREAMS_PER_CONNECTION).then_some(open + 1);
        let (now, order) = (&self.0.streams, Ordering::Relaxed);
        let too_many = |_| {
            Error::exhausted(format!(
                "cannot open another stream: {STREAMS_PER_CONNECTION} are open on this connection \
                 already; try again later"
            ))
        };
        now.fetch_update(order, order, more).map_err(too_many)?;
        Ok(ConnectionStream(Arc::clone(&self.0)))
    }
}

/// One of the streams of a connection.
pub struct ConnectionStream(Arc<Slot>);

/// One for a call that another daemon answers, which does not see the caller's connection; `None` if this daemon does
/// not see it either.
pub fn open_forwarded_stream<T>(
    request: &Request<T>,
) -> std::result::Result<Option<ConnectionStream>, Status> {
    let connection: Option<&ConnectionRef> = request.extensions().get();
    let opened = connection.map(ConnectionRef::try_open_stream).transpose();
    opened.map_err(|error| status::from_error(&error))
}

impl Drop for ConnectionStream {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) struct Connection(Arc<Slot>);

impl Connected for Connection {
    type ConnectInfo = ConnectionRef;

    fn connect_info(&self) -> ConnectionRef {
        ConnectionRef(Arc::clone(&self.0))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let slot = &self.0;
        loop {
            ready!(slot.stream.poll_read_ready(context))?;
            match slot.stream.try_read(buffer.initialize_unfilled()) {
                Ok(length) => {
                    buffer.advance(length);
                    slot.touch();
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
