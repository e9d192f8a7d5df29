//! Calls while the storage is away, and how to judge their answers.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tonic::{Code, Status};

use super::CheckContext;
use super::calls::Answer;
use crate::check::Outcome;
use crate::wire::Rpc;

/// How long a plugin may take to notice that its storage is away.
const NOTICED_WITHIN: Duration = Duration::from_secs(5);
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// They would blame the caller, or what the caller named, for what is the storage's fault.
const BLAMES_THE_CALLER: [Code; 5] = [
    Code::InvalidArgument,
    Code::NotFound,
    Code::AlreadyExists,
    Code::OutOfRange,
    Code::Unimplemented,
];

impl CheckContext {
    /// Lets the calls happen while the storage is away; it is back when this returns.
    pub async fn during_outage<T>(&self, calls: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        self.break_storage()?;
        let answers = calls.await;
        self.mend_storage()?;
        answers
    }

    /// Asks again for as long as all is said to be well: a plugin may look after its storage every few seconds, and not with
    /// each Probe.
    pub async fn ask_until_refused<R: Rpc>(&self, request: R) -> Outcome<Answer<R::Reply>> {
        let deadline = Instant::now() + NOTICED_WITHIN;
        loop {
            let answer = self.ask(request.clone()).await?;
            if answer.is_err() || Instant::now() >= deadline {
                return Ok(answer);
            }
            tokio::time::sleep(ASKED_EVERY).await;
        }
    }

    fn break_storage(&self) -> Outcome {
        match &self.options().hooks.breaks {
            Some(breaks) => self.hook("break", breaks())?,
            None => return self.not_applicable("needs --break-command"),
        }
        self.broken.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Brings the storage back if it is away, as after a check that was given up during an outage.
    pub(crate) fn mend_storage(&self) -> Outcome {
        if !self.broken.load(Ordering::Relaxed) {
            return Ok(());
        }
        match &self.options().hooks.mends {
            Some(mends) => self.hook("mend", mends())?,
            None => return self.not_applicable("needs --mend-command"),
        }
        self.broken.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// A refusal that came because the storage was away.
    pub fn expect_fitting(&self, status: &Status) -> Outcome {
        self.expect(
            !BLAMES_THE_CALLER.contains(&status.code()),
            "a code that does not blame the caller while the storage is away",
        )
    }
}
