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

use crate::dispatch::Core;
use crate::status::{self, code_name};

/// Pages that are read before the caller asks for them.
const READ_AHEAD: usize = 1;

/// What one message tells.
pub(super) struct Page {
    pub(super) capacity_bytes: u64,
    pub(super) ranges: Vec<ByteRange>,
    /// There may be more after it.
    is_full: bool,
}

pub(super) struct Pages {
    core: Arc<Core>,
    pool: PoolId,
    /// Given back when the stream ends, however it ends.
    _place: OwnedSemaphorePermit,
    capacity_bytes: u64,
    ranges: Ranges,
    most: usize,
}

impl Pages {
    pub(super) fn new(
        core: Arc<Core>,
        pool: PoolId,
        place: OwnedSemaphorePermit,
        blocks: BlockRanges,
        most: usize,
    ) -> Self {
        let BlockRanges { capacity_bytes, ranges } = blocks;
        Self { core, pool, _place: place, capacity_bytes, ranges, most }
    }

    pub(super) fn into_messages<Message: Send + 'static>(
        self,
        message: fn(&Page) -> Message,
    ) -> ReceiverStream<std::result::Result<Message, Status>> {
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        tokio::spawn(self.feed(sender, message).in_current_span());
        ReceiverStream::new(receiver)
    }

    /// SM-19 to SM-21: to the end, to the first error, or until the caller is gone.
    async fn feed<Message: Send + 'static>(
        mut self,
        sender: mpsc::Sender<std::result::Result<Message, Status>>,
        message: fn(&Page) -> Message,
    ) {
        let (mut is_first, mut told) = (true, 0);
        loop {
            let page = match self.next_page().await {
                Ok((pages, page)) => {
                    self = pages;
                    page
                }
                Err(error) => {
                    let status = status::from_error(&error);
                    tracing::info!(code = code_name(status.code()), told, "stream ended: {error}");
                    // To a caller that is gone there is nothing to say.
                    let _ = sender.send(Err(status)).await;
                    return;
                }
            };
            let is_last = !page.is_full;
            // Open point 9: type and capacity are told even if there is nothing else to tell.
            if is_first || !page.ranges.is_empty() {
                told += page.ranges.len();
                if sender.send(Ok(message(&page))).await.is_err() {
                    let code = code_name(Code::Cancelled);
                    tracing::info!(code, told, "stream ended: the caller hung up");
                    return;
                }
            }
            if is_last {
                tracing::info!(code = code_name(Code::Ok), told, "stream ended");
                return;
            }
            is_first = false;
        }
    }

    /// The stream itself goes to the blocking thread and comes back, unless reading failed.
    async fn next_page(mut self) -> Result<(Self, Page)> {
        let core = Arc::clone(&self.core);
        let pool = self.pool.clone();
        core.step(&pool, move |_| {
            let ranges = self.ranges.by_ref().take(self.most).collect::<Result<Vec<_>>>()?;
            let is_full = ranges.len() == self.most;
            let page = Page { capacity_bytes: self.capacity_bytes, ranges, is_full };
            Ok((self, page))
        })
        .await
    }
}
