#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use orlop_engine::{Engine, EngineSettings};
use orlop_host::MemoryHost;
use orlop_model::{Pool, Topology};
use orlop_pools::{MemoryPool, MemoryPoolConfig};
use tokio_stream::StreamExt;

use super::*;

/// Reached only if the stream never ends.
const LONG: Duration = Duration::from_secs(60);

fn executor(timeout: Duration) -> (Arc<Executor>, PoolId) {
    let pool = Arc::new(MemoryPool::new(MemoryPoolConfig::default()));
    let id = pool.id().clone();
    let settings = EngineSettings {
        node_id: "n1".parse().unwrap(),
        topology: Topology::default(),
        attach: false,
        max_volumes: 1,
        default_capacity: 1,
        lock_timeout: Duration::ZERO,
    };
    let engine = Engine::new(vec![pool], Arc::new(MemoryHost::default()), settings).unwrap();
    let executor = Executor::with_stream_timeout(timeout);
    executor.ready(Arc::new(engine));
    (Arc::new(executor), id)
}

fn stream(executor: &Arc<Executor>, pool: &PoolId, ranges: usize) -> PageStream<usize> {
    let range = |start| Ok(Some(ByteRange { start: 2 * start, length: 1 }));
    let ranges: Ranges = Box::new((0u64..).take(ranges).map(range));
    let blocks = BlockRanges { capacity_bytes: 1, ranges };
    let open =
        StreamPermits { _of_daemon: executor.try_open_stream().unwrap(), _of_connection: None };
    let pages = Pages::new(Arc::clone(executor), pool.clone(), open, blocks, 1);
    pages.into_messages(|page| page.ranges.len(), None)
}

/// How many can be opened beside those that are open.
fn free_streams(executor: &Executor) -> usize {
    std::iter::from_fn(|| executor.try_open_stream().ok()).collect::<Vec<_>>().len()
}

#[tokio::test]
async fn a_stream_that_is_not_read_ends_and_does_not_look_complete() {
    let (executor, pool) = executor(Duration::from_millis(100));
    let all = free_streams(&executor);
    let mut unread = stream(&executor, &pool, 1000);
    assert_eq!(free_streams(&executor), all - 1);
    let released = async {
        while free_streams(&executor) < all {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, released).await.expect("a stream that is not read stays open");
    let mut read = 0;
    let status = loop {
        match unread.next().await {
            Some(Ok(ranges)) => read += ranges,
            Some(Err(status)) => break status,
            None => panic!("{read} of 1000 ranges look like all of them"),
        }
    };
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(unread.next().await.is_none());
}

#[tokio::test]
async fn a_stream_that_is_read_slowly_is_whole() {
    let (executor, pool) = executor(Duration::from_secs(20));
    let mut slow = stream(&executor, &pool, 20);
    let mut read = 0;
    while let Some(ranges) = slow.next().await {
        read += ranges.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(read, 20);
}
