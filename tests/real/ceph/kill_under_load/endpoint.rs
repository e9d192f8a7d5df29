//! A daemon as its callers know it: now and then it does not answer.

use std::time::{Duration, Instant};

use orlop_tests::*;
use tokio::sync::watch;

/// Reached only by a call that can never succeed: the cluster takes a client that was killed for
/// alive for half a minute.
const TIMEOUT: Duration = Duration::from_secs(300);
/// An answer that was on its way when the daemon was killed has come by then.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Endpoint {
    name: &'static str,
    pub(crate) client: Client,
    kills: watch::Sender<u64>,
}

impl Endpoint {
    pub(crate) fn new(name: &'static str, client: Client) -> Self {
        Self { name, client, kills: watch::Sender::new(0) }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn was_killed(&self) {
        self.kills.send_modify(|kills| *kills += 1);
    }

    /// `None`: no answer will ever come. Once in thousands of times the library does not notice that
    /// the connection is gone.
    async fn answer<T>(&self, call: impl Future<Output = Answer<T>>) -> Option<Answer<T>> {
        let mut kills = self.kills.subscribe();
        let is_gone = async {
            kills.changed().await.unwrap();
            tokio::time::sleep(LAST_ANSWERS).await;
        };
        tokio::select! {
            answer = call => Some(answer),
            () = is_gone => {
                self.client.reconnect();
                None
            }
        }
    }
}

/// Asks until it succeeds, each time whom `choose` names; how often that was.
pub(crate) async fn ask<T, F: Future<Output = Answer<T>>>(
    what: &str,
    mut choose: impl FnMut() -> Endpoint,
    call: impl Fn(Client) -> F,
) -> (T, u64) {
    let deadline = Instant::now() + TIMEOUT;
    for times in 1.. {
        let endpoint = choose();
        let refused = match endpoint.answer(call(endpoint.client.clone())).await {
            Some(Ok(answer)) => return (answer, times),
            Some(Err(status)) => status,
            None => Status::unavailable("never answered"),
        };
        // FAILED_PRECONDITION, as for a while one that was killed counts as a user of what it had
        // open.
        let passing = [Code::Unavailable, Code::Aborted, Code::FailedPrecondition];
        let may_pass = is_connection_lost(&refused) || passing.contains(&refused.code());
        assert!(may_pass && Instant::now() < deadline, "{what} by {}: {refused}", endpoint.name);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    unreachable!("asked without end")
}
