#![allow(clippy::unwrap_used)]

use std::cell::Cell;

use super::*;

/// Nothing connects: the calls of these tests are answered by themselves.
fn plugin(timeout: Duration) -> Plugin {
    let nowhere =
        tower::service_fn(|_| async { UnixStream::connect("/nowhere").await.map(TokioIo::new) });
    Plugin {
        driver: String::new(),
        version: String::new(),
        socket: PathBuf::from("/nowhere"),
        secrets: BTreeMap::new(),
        channel: Endpoint::from_static("http://localhost").connect_with_connector_lazy(nowhere),
        timeout,
        offers: BTreeSet::new(),
    }
}

/// How often a call is made that is answered with this twice, then with success, and whether it succeeds.
async fn calls(timeout: Duration, refusal: &Status) -> (u32, Result<()>) {
    let made = Cell::new(0);
    let answer = plugin(timeout)
        .ask(&"test", (), |_, _| {
            made.set(made.get() + 1);
            let answer = if made.get() < 3 { Err(refusal.clone()) } else { Ok(Response::new(())) };
            async { answer }
        })
        .await;
    (made.get(), answer.map(Response::into_inner))
}

#[tokio::test]
async fn a_daemon_that_is_starting_is_waited_for() {
    let starting = Status::unavailable(orlop_model::Error::Starting.to_string());
    let (made, answer) = calls(Duration::from_secs(60), &starting).await;
    assert!(made == 3 && answer.is_ok(), "{made} calls: {answer:?}");
    // Only within the timeout, and only for this answer: of others it is not known what was done.
    let (made, answer) = calls(Duration::ZERO, &starting).await;
    let why = answer.unwrap_err();
    assert!(made == 1 && why.to_string().contains("still being read"), "{made} calls: {why}");
    let stopping = Status::unavailable(orlop_model::Error::Stopping.to_string());
    let (made, answer) = calls(Duration::from_secs(60), &stopping).await;
    assert!(made == 1 && answer.is_err(), "{made} calls: {answer:?}");
}

#[tokio::test]
async fn a_lost_connection_leaves_no_doubt_about_a_list() {
    let lost = Status::from_error("the other end is gone".into());
    let said = |doing: &str| plugin(Duration::ZERO).failure(&doing, &lost).to_string();
    let (list, delete) = (said("list volumes"), said("delete volume v-1"));
    assert!(list.contains("was lost; run the same command again"), "{list}");
    assert!(delete.contains("whether it was done is not known"), "{delete}");
}
