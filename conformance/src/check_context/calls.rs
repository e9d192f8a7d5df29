//! Calls, and the simple things to expect of their answers.

use std::any::Any;
use std::time::Duration;

use prost::Message;
use prost::bytes::Bytes;
use tonic::{Code, Status};

use super::{CheckContext, code_name, code_of, held};
use crate::audit::{self, Finding};
use crate::call_log::{render, render_reply, render_status};
use crate::check::{Failure, Outcome};
use crate::undo;
use crate::wire::Rpc;

/// A reply, or a refusal.
pub type Answer<T> = Result<T, Status>;

/// An operation on the same object may still be running, for instance one whose caller went
/// away (GEN-23): as an orchestrator would, ask again.
const TIMEOUT: usize = 40;
const PAUSE: Duration = Duration::from_millis(100);

impl CheckContext {
    /// The reply that has to come.
    pub async fn ok<R: Rpc>(&self, request: R) -> Outcome<R::Reply> {
        match self.settled(request).await? {
            Ok(reply) => Ok(reply),
            Err(_) => Err(self.failed("OK")),
        }
    }

    /// The refusal that has to come, with this code.
    pub async fn refused<R: Rpc>(&self, request: R, code: Code) -> Outcome<Status> {
        self.refused_with(request, &[code]).await
    }

    /// With one of these codes, where the specification leaves a choice.
    pub async fn refused_with<R: Rpc>(&self, request: R, codes: &[Code]) -> Outcome<Status> {
        let names: Vec<_> = codes.iter().map(|code| code_name(*code)).collect();
        self.refusal(request, |code| codes.contains(&code), names.join(" or ")).await
    }

    /// With any code, where the row asks for none in particular.
    pub async fn refused_somehow<R: Rpc>(&self, request: R, why: &str) -> Outcome<Status> {
        self.refusal(request, |_| true, format!("a refusal, as {why}")).await
    }

    async fn refusal<R: Rpc>(
        &self,
        request: R,
        fits: impl Fn(Code) -> bool,
        expected: String,
    ) -> Outcome<Status> {
        let mut asked = 0;
        loop {
            let (answer, findings) = self.answered(request.clone()).await;
            match answer {
                Err(status) if fits(status.code()) => {
                    self.note_findings(findings);
                    return Ok(status);
                }
                Err(status) if status.code() == Code::Aborted && asked < TIMEOUT => {
                    asked += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                // That it was not refused is what is wrong, whatever the reply looks like.
                Ok(_) | Err(_) => return Err(self.failed(expected)),
            }
        }
    }

    /// Is there what the request asks about?
    pub async fn is_found<R: Rpc>(&self, request: R) -> Outcome<bool> {
        match self.settled(request).await? {
            Ok(_) => Ok(true),
            Err(status) if status.code() == Code::NotFound => Ok(false),
            Err(_) => Err(self.failed("OK or NOT_FOUND")),
        }
    }

    /// Any answer but ABORTED, for which it asks again for a while.
    pub async fn settled<R: Rpc>(&self, request: R) -> Outcome<Answer<R::Reply>> {
        for _ in 0..TIMEOUT {
            let answer = self.ask(request.clone()).await?;
            if code_of(&answer) != Code::Aborted {
                return Ok(answer);
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.ask(request).await
    }

    /// Any answer. Rules that hold for all answers are looked at here (GEN-01 and others).
    pub async fn ask<R: Rpc>(&self, request: R) -> Outcome<Answer<R::Reply>> {
        let (answer, findings) = self.answered(request).await;
        self.note_findings(findings);
        Ok(answer)
    }

    /// The bytes of a request that need not be a proper message, and the bytes of its reply.
    pub async fn ask_bytes<R: Rpc>(&self, encoded: Vec<u8>) -> Outcome<Answer<Bytes>> {
        let request = R::decode(encoded.as_slice());
        let answer = self.send::<R>(encoded).await;
        if let (Ok(bytes), Ok(request)) = (&answer, request)
            && let Ok(reply) = R::Reply::decode(bytes.clone())
        {
            self.remember(&request, &reply);
        }
        Ok(answer)
    }

    /// An answer, and what is wrong with it whatever was asked.
    async fn answered<R: Rpc>(&self, request: R) -> (Answer<R::Reply>, Vec<Finding>) {
        match self.send::<R>(request.encode_to_vec()).await {
            Err(status) => {
                let findings = audit::status(&status);
                (Err(status), findings)
            }
            Ok(bytes) => {
                let findings = audit::reply(R::REPLY, &bytes);
                let reply = R::Reply::decode(bytes).unwrap_or_default();
                self.remember(&request, &reply);
                (Ok(reply), findings)
            }
        }
    }

    async fn send<R: Rpc>(&self, encoded: Vec<u8>) -> Answer<Bytes> {
        let shown = render(R::REQUEST, &encoded);
        let answer = self.plugin.client_of(R::PATH).unary(R::PATH, encoded).await;
        let answer = answer.map(|(bytes, _)| bytes);
        let answer_text = match &answer {
            Ok(bytes) => render_reply(R::REPLY, bytes),
            Err(status) => render_status(status),
        };
        self.note(R::PATH, shown, answer_text);
        answer
    }

    /// They break other rules than the one that the check is about.
    pub(super) fn note_findings(&self, findings: Vec<Finding>) {
        let call = held(&self.calls).last().cloned();
        for Finding { row, expected } in findings {
            let call = call.clone();
            held(&self.findings).push(Failure { row: Some(row), expected, call });
        }
    }

    fn remember<R: Rpc>(&self, request: &R, reply: &R::Reply) {
        let mut pending = held(&self.undo);
        if let Some(unmade) = undo::unmade(request as &dyn Any) {
            pending.retain(|undo| *undo != unmade);
        }
        if let Some(made) = undo::made(request as &dyn Any, reply as &dyn Any) {
            pending.retain(|undo| *undo != made);
            held(&self.made).push(made.clone());
            pending.push(made);
        }
    }

    /// Calls and hangs up before the answer can be there (GEN-26).
    pub async fn abandoned<R: Rpc>(&self, request: R, after: Duration) -> Outcome {
        let encoded = request.encode_to_vec();
        let shown = render(R::REQUEST, &encoded);
        let call = self.plugin.client_of(R::PATH).unary(R::PATH, encoded);
        let answered = tokio::time::timeout(after, call).await;
        let answer_text = if answered.is_ok() { "answered in time" } else { "(given up)" };
        self.note(R::PATH, shown, answer_text.to_owned());
        Ok(())
    }
}
