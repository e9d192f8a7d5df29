//! The pages of a stream. Each is read on a blocking thread, and no thread waits for a caller that reads
//! slowly.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use orlop_engine::request::BlockRanges;
use orlop_model::{ByteRange, PoolId, Ranges, Result};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::{Code, Status};
use tracing::Instrument;

use super::StreamPermits;
use crate::connections::InFlight;
use crate::executor::Executor;
use crate::layers::is_defect;
use crate::status::{self, code_name};

/// Pages that are read before the caller asks for them.
const READ_AHEAD: usize = 1;

/// The ranges of one message.
pub(super) struct RangePage {
    pub(super) capacity_bytes: u64,
    pub(super) ranges: Vec<ByteRange>,
    next: NextStep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextStep {
    /// Send this page; there may be more ranges.
    SendPage,
    /// Go on reading: the page is not full, but its thread has read enough for one turn.
    ReadOn,
    /// Send this page, the last one.
    End,
}

pub(super) struct Pages {
    executor: Arc<Executor>,
    pool: PoolId,
    _permits: StreamPermits,
    capacity_bytes: u64,
    ranges: Ranges,
    /// Ranges of the page that is being filled.
    found: Vec<ByteRange>,
    max_ranges: usize,
}

impl Pages {
    pub(super) fn new(
        executor: Arc<Executor>,
        pool: PoolId,
        permits: StreamPermits,
        blocks: BlockRanges,
        max_ranges: usize,
    ) -> Self {
        let BlockRanges { capacity_bytes, ranges } = blocks;
        Self {
            executor,
            pool,
            _permits: permits,
            capacity_bytes,
            ranges,
            found: Vec::new(),
            max_ranges,
        }
    }

    pub(super) fn into_messages<Message: Send + 'static>(
        self,
        message: fn(&RangePage) -> Message,
        busy: Option<InFlight>,
    ) -> PageStream<Message> {
        let (sender, pages) = mpsc::channel(READ_AHEAD);
        let end = StreamEnd(Arc::new(Mutex::new(EndState { failure: None, busy })));
        tokio::spawn(self.feed(sender, message, end.clone()).in_current_span());
        PageStream { pages, end }
    }

    /// SM-19 to SM-21: until the end, the first error, or until the caller is gone or has stopped reading.
    async fn feed<Message: Send + 'static>(
        mut self,
        sender: mpsc::Sender<Message>,
        message: fn(&RangePage) -> Message,
        end: StreamEnd,
    ) {
        let timeout = self.executor.stream_timeout();
        let (mut is_first, mut sent) = (true, 0);
        loop {
            let page = match self.next_page().await {
                Ok((pages, page)) => {
                    self = pages;
                    page
                }
                Err(error) => {
                    let status = status::from_error(&error);
                    let code = code_name(status.code());
                    if is_defect(status.code()) {
                        tracing::error!(code, sent, "stream ended: {error}");
                    } else {
                        tracing::warn!(code, sent, "stream ended: {error}");
                    }
                    return end.fail(status);
                }
            };
            match page.next {
                NextStep::SendPage | NextStep::End => {}
                NextStep::ReadOn if sender.is_closed() => return log_hung_up(sent),
                NextStep::ReadOn => continue,
            }
            // Point 9 of docs/specification.md: the first message is sent even without ranges, with type and capacity.
            if is_first || !page.ranges.is_empty() {
                match tokio::time::timeout(timeout, sender.reserve()).await {
                    Ok(Ok(permit)) => permit.send(message(&page)),
                    Ok(Err(_)) => return log_hung_up(sent),
                    Err(_) => return end.fail_unread(sent),
                }
                sent += page.ranges.len();
            }
            if page.next == NextStep::End {
                tracing::info!(code = code_name(Code::Ok), sent, "stream ended");
                return;
            }
            is_first = false;
        }
    }

    /// Moves `self` to a blocking thread and back, unless reading fails. Where much is read and little found, it
    /// returns before the page is full, so that other streams get their turn and a caller that hung up is
    /// noticed.
    async fn next_page(mut self) -> Result<(Self, RangePage)> {
        let executor = Arc::clone(&self.executor);
        let pool = self.pool.clone();
        executor
            .step(&pool, move |_| {
                let next = self.fill()?;
                let ranges = match next {
                    NextStep::ReadOn => Vec::new(),
                    NextStep::SendPage | NextStep::End => std::mem::take(&mut self.found),
                };
                let page = RangePage { capacity_bytes: self.capacity_bytes, ranges, next };
                Ok((self, page))
            })
            .await
    }

    fn fill(&mut self) -> Result<NextStep> {
        while self.found.len() < self.max_ranges {
            match self.ranges.next().transpose()? {
                Some(Some(range)) => self.found.push(range),
                Some(None) => return Ok(NextStep::ReadOn),
                None => return Ok(NextStep::End),
            }
        }
        Ok(NextStep::SendPage)
    }
}

/// The messages of a stream, as its caller reads them.
pub(crate) struct PageStream<Message> {
    pages: mpsc::Receiver<Message>,
    end: StreamEnd,
}

impl<Message> Stream for PageStream<Message> {
    type Item = std::result::Result<Message, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(match ready!(self.pages.poll_recv(context)) {
            Some(message) => Some(Ok(message)),
            None => self.end.state().failure.take().map(Err),
        })
    }
}

/// How a stream ended. Kept apart from the messages: the channel is full while the caller does not read.
#[derive(Clone)]
struct StreamEnd(Arc<Mutex<EndState>>);

struct EndState {
    /// The status that ends the stream; without it an interrupted stream would look complete.
    failure: Option<Status>,
    /// Keeps the connection from counting as idle while a caller reads the stream, however slowly.
    busy: Option<InFlight>,
}

impl StreamEnd {
    fn state(&self) -> MutexGuard<'_, EndState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, status: Status) {
        self.state().failure = Some(status);
    }

    /// The caller has stopped reading: the connection may count as idle again.
    fn fail_unread(&self, sent: usize) {
        let status = Status::deadline_exceeded(
            "the stream was not read for too long and has ended; call again with the \
             starting_offset after the last message",
        );
        let code = code_name(status.code());
        tracing::warn!(code, sent, "stream ended: the caller did not read it for too long");
        self.fail(status);
        self.state().busy = None;
    }
}

fn log_hung_up(sent: usize) {
    let code = code_name(Code::Cancelled);
    tracing::info!(code, sent, "stream ended: the caller hung up");
}

#[cfg(test)]
mod tests;
