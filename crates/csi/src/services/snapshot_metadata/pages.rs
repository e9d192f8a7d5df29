//! Feeds a stream: one page at a time is read on a blocking thread, and no thread waits for a
//! caller that is slow to take it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use orlop_engine::request::BlockRanges;
use orlop_model::{ByteRange, PoolId, Ranges, Result};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::{Code, Status};
use tracing::Instrument;

use super::OpenStream;
use crate::connections::InFlight;
use crate::executor::Executor;
use crate::layers::is_defect;
use crate::status::{self, code_name};

/// Pages that are read before the caller asks for them.
const READ_AHEAD: usize = 1;

/// What one message holds.
pub(super) struct RangePage {
    pub(super) capacity_bytes: u64,
    pub(super) ranges: Vec<ByteRange>,
    then: AfterPage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterPage {
    /// The page is full, and there may be more after it.
    NextPage,
    /// Much was read, and the page is not full yet.
    GoOn,
    End,
}

pub(super) struct Pages {
    executor: Arc<Executor>,
    pool: PoolId,
    /// Given back when the stream ends, however it ends.
    _open: OpenStream,
    capacity_bytes: u64,
    ranges: Ranges,
    /// Of the page that is being filled.
    found: Vec<ByteRange>,
    most: usize,
}

impl Pages {
    pub(super) fn new(
        executor: Arc<Executor>,
        pool: PoolId,
        open: OpenStream,
        blocks: BlockRanges,
        most: usize,
    ) -> Self {
        let BlockRanges { capacity_bytes, ranges } = blocks;
        Self { executor, pool, _open: open, capacity_bytes, ranges, found: Vec::new(), most }
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

    /// SM-19 to SM-21: to the end, to the first error, or until the caller is gone or takes nothing
    /// any more.
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
            match page.then {
                AfterPage::NextPage | AfterPage::End => {}
                AfterPage::GoOn if sender.is_closed() => return note_hung_up(sent),
                AfterPage::GoOn => continue,
            }
            // Open point 9: type and capacity are sent even if there is nothing else to send.
            if is_first || !page.ranges.is_empty() {
                match tokio::time::timeout(timeout, sender.reserve()).await {
                    Ok(Ok(place)) => place.send(message(&page)),
                    Ok(Err(_)) => return note_hung_up(sent),
                    Err(_) => return end.fail_unread(sent),
                }
                sent += page.ranges.len();
            }
            if page.then == AfterPage::End {
                tracing::info!(code = code_name(Code::Ok), sent, "stream ended");
                return;
            }
            is_first = false;
        }
    }

    /// The stream itself goes to the blocking thread and comes back, unless reading failed. Where much
    /// is read and little found, it comes back before the page is full: others get their turn, and it
    /// is seen whether anyone still listens.
    async fn next_page(mut self) -> Result<(Self, RangePage)> {
        let executor = Arc::clone(&self.executor);
        let pool = self.pool.clone();
        executor
            .step(&pool, move |_| {
                let then = self.fill()?;
                let ranges = match then {
                    AfterPage::GoOn => Vec::new(),
                    AfterPage::NextPage | AfterPage::End => std::mem::take(&mut self.found),
                };
                let page = RangePage { capacity_bytes: self.capacity_bytes, ranges, then };
                Ok((self, page))
            })
            .await
    }

    fn fill(&mut self) -> Result<AfterPage> {
        while self.found.len() < self.most {
            match self.ranges.next().transpose()? {
                Some(Some(range)) => self.found.push(range),
                Some(None) => return Ok(AfterPage::GoOn),
                None => return Ok(AfterPage::End),
            }
        }
        Ok(AfterPage::NextPage)
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

/// How a stream ended. Not one of its messages: where the caller reads none, there is no room for it.
#[derive(Clone)]
struct StreamEnd(Arc<Mutex<EndState>>);

struct EndState {
    /// Without it a stream that broke off would look complete.
    failure: Option<Status>,
    /// A connection is not idle while a caller reads a stream on it, however slowly. Streams are few; of
    /// other calls only those that are being answered keep theirs.
    busy: Option<InFlight>,
}

impl StreamEnd {
    fn state(&self) -> MutexGuard<'_, EndState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, status: Status) {
        self.state().failure = Some(status);
    }

    /// Nor does the connection count as busy any longer.
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

fn note_hung_up(sent: usize) {
    let code = code_name(Code::Cancelled);
    tracing::info!(code, sent, "stream ended: the caller hung up");
}

#[cfg(test)]
mod tests;
