//! The message of a call, on its way here. A caller may send headers and never a message, so what is
//! scarce is taken only when the message begins to come, and it has to be whole soon after its headers.

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

/// Far more than a message needs on a socket of this machine. Answers, streams among them, are not
/// measured by it.
const PATIENCE: Duration = Duration::from_secs(10);

type Data = <Body as http_body::Body>::Data;

/// What is kept for a call from the moment its message begins to come, until this is dropped.
#[derive(Clone)]
pub(crate) struct Arrival {
    state: Arc<Mutex<ArrivalState>>,
}

struct ArrivalState {
    /// `None` for calls that are not counted.
    calls: Option<Arc<Semaphore>>,
    connection: Option<ConnectionRef>,
    kept: Option<(Option<OwnedSemaphorePermit>, Option<InFlight>)>,
    failure: Option<Status>,
}

impl Arrival {
    /// The request, as it is to be read from now on.
    pub(crate) fn of(
        request: Request<Body>,
        calls: Option<Arc<Semaphore>>,
    ) -> (Self, Request<Body>) {
        let connection = request.extensions().get().cloned();
        let state = ArrivalState { calls, connection, kept: None, failure: None };
        let arrival = Self { state: Arc::new(Mutex::new(state)) };
        let arriving = |body| Arriving { body, limit: None, arrival: arrival.clone() };
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
        let permit = state.calls.clone().map(Semaphore::try_acquire_owned).transpose();
        let permit = permit.map_err(too_many)?;
        let in_flight = state.connection.as_ref().map(InFlight::with);
        state.kept = Some((permit, in_flight));
        Ok(())
    }
}

/// A message that is bound to come.
struct Arriving {
    body: Body,
    /// From the first time that it was not there yet.
    limit: Option<Pin<Box<Sleep>>>,
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
        let limit = self.limit.get_or_insert_with(|| Box::pin(tokio::time::sleep(PATIENCE)));
        ready!(limit.as_mut().poll(context));
        let late = "the call's message did not arrive in time; send it with its headers";
        Poll::Ready(Some(Err(Status::deadline_exceeded(late))))
    }

    /// Whatever it is that came instead of a piece, the caller or its connection has ended.
    fn accepted(&self, piece: Result<Frame<Data>, Status>) -> Result<Frame<Data>, Status> {
        let hung_up = |why: Status| {
            tracing::debug!(%why, "the message of a call did not arrive");
            Status::cancelled("the caller hung up before its message had arrived")
        };
        let piece = piece.map_err(hung_up)?;
        if piece.is_data() {
            self.arrival.begin()?;
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
