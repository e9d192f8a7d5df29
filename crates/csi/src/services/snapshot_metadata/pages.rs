//! Feeds a stream: one page at a time is read on a blocking thread, and no thread waits for a
//! caller that is slow to take it.

use std::sync::Arc;

use orlop_engine::request::BlockRanges;
use orlop_model::{ByteRange, PoolId, Ranges, Result};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};
use tracing::Instrument;

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
    _place: OwnedSemaphorePermit,
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
        place: OwnedSemaphorePermit,
        blocks: BlockRanges,
        most: usize,
    ) -> Self {
        let BlockRanges { capacity_bytes, ranges } = blocks;
        Self { executor, pool, _place: place, capacity_bytes, ranges, found: Vec::new(), most }
    }

    pub(super) fn into_messages<Message: Send + 'static>(
        self,
        message: fn(&RangePage) -> Message,
    ) -> ReceiverStream<std::result::Result<Message, Status>> {
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        tokio::spawn(self.feed(sender, message).in_current_span());
        ReceiverStream::new(receiver)
    }

    /// SM-19 to SM-21: to the end, to the first error, or until the caller is gone.
    async fn feed<Message: Send + 'static>(
        mut self,
        sender: mpsc::Sender<std::result::Result<Message, Status>>,
        message: fn(&RangePage) -> Message,
    ) {
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
                    // To a caller that is gone there is nothing to say.
                    let _ = sender.send(Err(status)).await;
                    return;
                }
            };
            match page.then {
                AfterPage::NextPage | AfterPage::End => {}
                AfterPage::GoOn if sender.is_closed() => return note_hung_up(sent),
                AfterPage::GoOn => continue,
            }
            // Open point 9: type and capacity are sent even if there is nothing else to send.
            if is_first || !page.ranges.is_empty() {
                sent += page.ranges.len();
                if sender.send(Ok(message(&page))).await.is_err() {
                    return note_hung_up(sent);
                }
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

fn note_hung_up(sent: usize) {
    let code = code_name(Code::Cancelled);
    tracing::info!(code, sent, "stream ended: the caller hung up");
}
