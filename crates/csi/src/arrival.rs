//! The message of a call while it arrives. A caller may send headers and never a message, so permits and memory are
//! taken only when the message begins to arrive, and it has to be complete soon after its headers.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::Request;

use crate::connections::{ConnectionRef, InFlight};

/// Far more than a message needs on a socket of this machine. It limits
/// neither answers nor streams.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Of all messages that are on their way or belong to a call that has not been answered, over what each
/// call may send without being counted: one message of the largest size. Parsed, an entry of two bytes may
/// take ninety, and that has to fit into the memory that a daemon is given (docs/deploy/requirements.md).
const MESSAGE_BYTES: usize = LARGEST_MESSAGE;

/// Messages of the orchestrators are smaller, so however large others are, theirs come through.
const UNCOUNTED_BYTES: usize = 16 << 10;

/// The largest message of a method whose message has neither secrets nor lists.
const SMALL_MESSAGE: usize = 64 << 10;

/// The gRPC library refuses larger ones unread.
const LARGEST_MESSAGE: usize = 4 << 20;

type Data = <Body as http_body::Body>::Data;

/// What all calls of a server share.
#[derive(Clone)]
pub(crate) struct CallLimits {
    /// How many calls are accepted at once.
    pub(crate) calls: Arc<Semaphore>,
    /// For messages of more than [`UNCOUNTED_BYTES`].
    bytes: Arc<Semaphore>,
}

impl CallLimits {
    pub(crate) fn new(calls: usize) -> Self {
        let bytes = Arc::new(Semaphore::new(MESSAGE_BYTES));
        Self { calls: Arc::new(Semaphore::new(calls)), bytes }
    }
}

/// What is known of a call by its method.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallClass {
    /// Does it count among the calls that are accepted at once?
    pub(crate) is_counted: bool,
    /// Can its message be large?
    pub(crate) is_small: bool,
    /// Does it have further messages, which come when their turn is?
    pub(crate) is_stream: bool,
}

impl CallClass {
    /// A stream that is not counted, such as reflection, waits for its caller's next question for as long as the
    /// caller likes, and may be closed for a new connection.
    fn occupies_connection(self) -> bool {
        self.is_counted || !self.is_stream
    }
}

/// What is kept for a call from the moment its message begins to come, until this is dropped.
#[derive(Clone)]
pub(crate) struct Arrival {
    state: Arc<Mutex<ArrivalState>>,
}

struct ArrivalState {
    limits: CallLimits,
    class: CallClass,
    connection: Option<ConnectionRef>,
    kept: Option<(Option<OwnedSemaphorePermit>, Option<InFlight>)>,
    /// The announced sizes of all messages of the call so far; there should be one message.
    announced: usize,
    bytes: Option<OwnedSemaphorePermit>,
    failure: Option<Status>,
}

impl Arrival {
    /// The request, as it is to be read from now on.
    pub(crate) fn of(
        request: Request<Body>,
        limits: &CallLimits,
        class: CallClass,
    ) -> (Self, Request<Body>) {
        let state = ArrivalState {
            limits: limits.clone(),
            class,
            connection: request.extensions().get().cloned(),
            kept: None,
            announced: 0,
            bytes: None,
            failure: None,
        };
        let arrival = Self { state: Arc::new(Mutex::new(state)) };
        let arriving = |body| Arriving {
            body,
            is_stream: class.is_stream,
            limit: None,
            framing: Framing::default(),
            arrival: arrival.clone(),
        };
        let request = request.map(|body| Body::new(arriving(body)));
        (arrival, request)
    }

    /// Why there was no whole message. What reads messages has its own words for it, in which a
    /// caller that hung up looks like a defect here.
    pub(crate) fn failure(&self) -> Option<Status> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failure.clone()
    }

    fn fail(&self, status: Status) -> Status {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failure.get_or_insert(status).clone()
    }

    /// From the first piece of the message on, as that is what takes memory.
    fn begin(&self) -> Result<(), Status> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.kept.is_some() {
            return Ok(());
        }
        let too_many = |_| Status::unavailable("too many calls at once; try again");
        let calls = state.class.is_counted.then(|| Arc::clone(&state.limits.calls));
        let permit = calls.map(Semaphore::try_acquire_owned).transpose().map_err(too_many)?;
        let connection = state.connection.as_ref().filter(|_| state.class.occupies_connection());
        let in_flight = connection.map(InFlight::with);
        state.kept = Some((permit, in_flight));
        Ok(())
    }

    fn admit_message(&self, length: usize) -> Result<(), Status> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.admit_message(length)
    }
}

impl ArrivalState {
    /// Before any of the message is kept: its buffer is made as large as it says that it is.
    fn admit_message(&mut self, length: usize) -> Result<(), Status> {
        if length > LARGEST_MESSAGE {
            return Ok(());
        }
        self.announced = self.announced.saturating_add(length);
        if self.class.is_small && self.announced > SMALL_MESSAGE {
            return Err(Status::out_of_range(format!(
                "the call's message is larger than the limit of {SMALL_MESSAGE} bytes"
            )));
        }
        let counted = self.announced.saturating_sub(UNCOUNTED_BYTES);
        let held = self.bytes.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = u32::try_from(counted.saturating_sub(held)).unwrap_or(u32::MAX);
        if missing == 0 {
            return Ok(());
        }
        let more = Arc::clone(&self.limits.bytes).try_acquire_many_owned(missing);
        let too_much = |_| Status::unavailable("too many large messages at once; try again");
        let more = more.map_err(too_much)?;
        match &mut self.bytes {
            Some(held) => held.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }
}

/// Finds the beginning of each message in what comes: a byte, and the length in four.
#[derive(Default)]
struct Framing {
    head: [u8; HEAD],
    /// How many bytes of `head` have arrived.
    filled: usize,
    /// What is left of the message that has begun.
    left: usize,
}

const HEAD: usize = 5;

impl Framing {
    /// Calls `found` with the length of each message that begins in this piece.
    fn read(
        &mut self,
        mut piece: &[u8],
        mut found: impl FnMut(usize) -> Result<(), Status>,
    ) -> Result<(), Status> {
        while let Some((first, rest)) = piece.split_first() {
            if self.left > 0 {
                let skipped = self.left.min(piece.len());
                self.left -= skipped;
                piece = piece.get(skipped..).unwrap_or_default();
                continue;
            }
            if let Some(byte) = self.head.get_mut(self.filled) {
                *byte = *first;
            }
            self.filled += 1;
            piece = rest;
            if self.filled == HEAD {
                let [_, length @ ..] = self.head;
                self.left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                self.filled = 0;
                found(self.left)?;
            }
        }
        Ok(())
    }
}

/// A message that is bound to come.
struct Arriving {
    body: Body,
    is_stream: bool,
    /// From the first time that it was not there yet.
    limit: Option<Pin<Box<Sleep>>>,
    framing: Framing,
    arrival: Arrival,
}

impl Arriving {
    fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Data>, Status>>> {
        if let Poll::Ready(piece) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(piece.map(|piece| self.accepted(piece)));
        }
        if self.is_stream {
            return Poll::Pending;
        }
        let limit = self.limit.get_or_insert_with(|| Box::pin(tokio::time::sleep(MESSAGE_TIMEOUT)));
        ready!(limit.as_mut().poll(context));
        let late = "the call's message did not arrive in time; send it with its headers";
        Poll::Ready(Some(Err(Status::deadline_exceeded(late))))
    }

    /// Whatever it is that came instead of a piece, the caller or its connection has ended.
    fn accepted(&mut self, piece: Result<Frame<Data>, Status>) -> Result<Frame<Data>, Status> {
        let hung_up = |why: Status| {
            tracing::debug!(%why, "the message of a call did not arrive");
            Status::cancelled("the caller hung up before its message had arrived")
        };
        let piece = piece.map_err(hung_up)?;
        if let Some(data) = piece.data_ref() {
            self.arrival.begin()?;
            let arrival = &self.arrival;
            self.framing.read(data, |length| arrival.admit_message(length))?;
        }
        Ok(piece)
    }
}

impl http_body::Body for Arriving {
    type Data = Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Data>, Status>>> {
        let piece = ready!(self.poll_piece(context));
        Poll::Ready(piece.map(|piece| piece.map_err(|status| self.arrival.fail(status))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
