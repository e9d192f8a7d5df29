#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use super::*;

#[tokio::test]
async fn calls_report_starting_before_the_engine_is_ready() {
    let executor = Executor::starting();
    assert_eq!(executor.run(Subject::Any, |_| Ok(())).await, Err(Error::Starting));
    assert_eq!(executor.check_health().await, Err(Error::Starting));
    executor.drained().await;
}

#[tokio::test]
async fn panic_is_an_error_and_frees_its_permit() {
    let limit = RequestLimit::new(1);
    for _ in 0..3 {
        let outcome: Result<()> = limit.run(|| panic!("a bug")).await;
        assert!(matches!(outcome, Err(Error::Failed { .. })));
    }
    assert_eq!(limit.run(|| Ok(7)).await, Ok(7));
}

/// Work that stands still until it is let go, and says so when it is done.
struct Held {
    limit: Arc<RequestLimit>,
    caller: tokio::task::JoinHandle<Result<()>>,
    release: mpsc::Sender<()>,
    done: Arc<AtomicBool>,
}

async fn hold(limit: &Arc<RequestLimit>) -> Held {
    let limit = Arc::clone(limit);
    let (release, wait) = mpsc::channel();
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let done = Arc::new(AtomicBool::new(false));
    let (its_limit, its_done) = (Arc::clone(&limit), Arc::clone(&done));
    let caller = tokio::spawn(async move {
        let work = move || {
            begun.send(()).unwrap();
            wait.recv().unwrap();
            its_done.store(true, Ordering::SeqCst);
            Ok(())
        };
        its_limit.run(work).await
    });
    has_begun.await.unwrap();
    Held { limit, caller, release, done }
}

#[tokio::test]
async fn work_continues_after_hangup_and_is_awaited() {
    let held = hold(&Arc::new(RequestLimit::new(1))).await;
    held.caller.abort();
    assert!(held.caller.await.unwrap_err().is_cancelled());

    let limit = Arc::clone(&held.limit);
    let draining = tokio::spawn(async move { limit.drained().await });
    tokio::task::yield_now().await;
    assert!(!draining.is_finished());
    assert!(!held.done.load(Ordering::SeqCst));

    held.release.send(()).unwrap();
    draining.await.unwrap();
    assert!(held.done.load(Ordering::SeqCst));
}

#[tokio::test]
async fn abandoned_work_holds_its_permit_until_done() {
    let held = hold(&Arc::new(RequestLimit::new(1))).await;
    held.caller.abort();
    assert_eq!(held.limit.free.available_permits(), 0);
    held.release.send(()).unwrap();
    assert_eq!(held.limit.run(|| Ok(())).await, Ok(()));
    assert!(held.done.load(Ordering::SeqCst));
}

#[tokio::test]
async fn no_call_starts_after_draining() {
    let limit = RequestLimit::new(2);
    limit.drained().await;
    limit.drained().await;
    assert_eq!(limit.run(|| Ok(())).await, Err(Error::Stopping));
}

#[tokio::test]
async fn streams_are_limited_and_end_before_operations() {
    let executor = Executor::starting();
    let mut open = Vec::new();
    for _ in 0..OPEN_STREAMS {
        open.push(executor.try_open_stream().unwrap());
    }
    assert!(matches!(executor.try_open_stream(), Err(Error::Exhausted(_))));
    open.pop();
    assert!(executor.try_open_stream().is_ok());
    executor.end_streams();
    assert_eq!(executor.try_open_stream().err(), Some(Error::Stopping));
    executor.idle().await;
    let limit = executor.limit(LimitKey { kind: CallKind::Controller, pool: None }).unwrap();
    assert_eq!(limit.run(|| Ok(7)).await, Ok(7));
}

#[tokio::test]
async fn waiting_ends_with_the_error_of_the_check() {
    let held = hold(&Arc::new(RequestLimit::new(1))).await;
    let asked = AtomicBool::new(false);
    let check = || if asked.swap(true, Ordering::SeqCst) { Err(Error::Stopping) } else { Ok(()) };
    assert_eq!(held.limit.permit(check).await.err(), Some(Error::Stopping));
    held.release.send(()).unwrap();
    assert!(held.limit.permit(|| Ok(())).await.is_ok());
}

#[tokio::test]
async fn pools_and_nodes_have_separate_limits() {
    let executor = Executor::starting();
    let pool = |text: &str| Some(text.parse::<PoolId>().unwrap());
    let names = [None, pool("01234567"), pool("fedcba98")].into_iter().flat_map(|pool| {
        [CallKind::Controller, CallKind::Node, CallKind::Stream]
            .map(|kind| LimitKey { kind, pool: pool.clone() })
    });
    for name in names {
        let limit = executor.limit(name.clone()).unwrap();
        limit.free.try_acquire_many(limit.width).unwrap().forget();
        assert!(Arc::ptr_eq(&limit, &executor.limit(name).unwrap()));
    }
}

/// Who stops the daemon waits for all places, and has those that are free.
#[tokio::test]
async fn running_calls_are_counted_while_draining() {
    let held = hold(&Arc::new(RequestLimit::new(4))).await;
    let limit = Arc::clone(&held.limit);
    let draining = tokio::spawn(async move { limit.drained().await });
    while held.limit.free.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(held.limit.running(), 1);
    held.release.send(()).unwrap();
    draining.await.unwrap();
    assert_eq!(held.limit.running(), 0);
}

/// The filesystem with the target paths may hang while all pools answer.
#[tokio::test]
async fn stop_waits_for_node_calls_with_a_limit() {
    let executor = Executor { node_calls_stop_timeout: Duration::ZERO, ..Executor::starting() };
    let limit = executor.limit(LimitKey { kind: CallKind::Node, pool: None }).unwrap();
    let held = hold(&limit).await;
    tokio::time::timeout(Duration::from_secs(60), executor.drained()).await.unwrap();
    assert!(!held.done.load(Ordering::SeqCst));
    assert_eq!(limit.run(|| Ok(())).await, Err(Error::Stopping));
    held.release.send(()).unwrap();
    assert_eq!(held.caller.await.unwrap(), Ok(()));
}

#[tokio::test]
async fn stop_waits_for_controller_calls() {
    let executor =
        Arc::new(Executor { node_calls_stop_timeout: Duration::ZERO, ..Executor::starting() });
    let held =
        hold(&executor.limit(LimitKey { kind: CallKind::Controller, pool: None }).unwrap()).await;
    let stopping = Arc::clone(&executor);
    let draining = tokio::spawn(async move { stopping.drained().await });
    tokio::time::sleep(2 * CHECK_INTERVAL).await;
    assert!(!draining.is_finished());
    held.release.send(()).unwrap();
    draining.await.unwrap();
    assert!(held.done.load(Ordering::SeqCst));
}
