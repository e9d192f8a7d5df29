//! Calls, and the simple things to expect of their answers.

use std::any::Any;
use std::time::Duration;

use prost::Message;
use prost::bytes::Bytes;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::{Trial, code_name, code_of, held};
use crate::audit::{self, Finding};
use crate::check::{Failure, Outcome};
use crate::journal::{render, render_reply, render_status};
use crate::undo;
use crate::wire::Rpc;

/// A reply, or a refusal.
pub type Answer<T> = Result<T, Status>;

/// An operation on the same object may still be running, for instance one whose caller went
/// away (GEN-23): as an orchestrator would, ask again.
const PATIENCE: usize = 40;
const PAUSE: Duration = Duration::from_millis(100);

impl Trial {
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
        let mut asked = 0;
        loop {
            let (answer, findings) = self.answered(request.clone()).await;
            let code = code_of(&answer);
            match answer {
                Err(status) if codes.contains(&code) => {
                    self.note_findings(findings);
                    return Ok(status);
                }
                Err(_) if code == Code::Aborted && asked < PATIENCE => {
                    asked += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                // That it was not refused is what is wrong, whatever the reply looks like.
                Ok(_) | Err(_) => {
                    let names: Vec<_> = codes.iter().map(|code| code_name(*code)).collect();
                    return Err(self.failed(names.join(" or ")));
                }
            }
        }
    }

    /// Any answer but ABORTED, for which it asks again for a while.
    pub async fn settled<R: Rpc>(&self, request: R) -> Outcome<Answer<R::Reply>> {
        for _ in 0..PATIENCE {
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
        let answer = self.ask_fully(request).await?;
        Ok(answer.map(|(reply, _)| reply))
    }

    /// As [`Trial::ask`], with the metadata of the reply.
    pub async fn ask_fully<R: Rpc>(&self, request: R) -> Outcome<Answer<(R::Reply, MetadataMap)>> {
        let (answer, findings) = self.answered(request).await;
        self.note_findings(findings);
        Ok(answer)
    }

    /// The bytes of a request that need not be a proper message, and the bytes of its reply.
    pub async fn ask_bytes<R: Rpc>(&self, encoded: Vec<u8>) -> Outcome<Answer<Bytes>> {
        let request = R::decode(encoded.as_slice());
        let answer = self.send::<R>(encoded).await;
        if let (Ok((bytes, _)), Ok(request)) = (&answer, request)
            && let Ok(reply) = R::Reply::decode(bytes.clone())
        {
            self.remember(&request, &reply);
        }
        Ok(answer.map(|(bytes, _)| bytes))
    }

    /// An answer, and what is wrong with it whatever was asked.
    async fn answered<R: Rpc>(
        &self,
        request: R,
    ) -> (Answer<(R::Reply, MetadataMap)>, Vec<Finding>) {
        match self.send::<R>(request.encode_to_vec()).await {
            Err(status) => {
                let findings = audit::status(&status);
                (Err(status), findings)
            }
            Ok((bytes, metadata)) => {
                let findings = audit::reply(R::REPLY, &bytes);
                let reply = R::Reply::decode(bytes).unwrap_or_default();
                self.remember(&request, &reply);
                (Ok((reply, metadata)), findings)
            }
        }
    }

    async fn send<R: Rpc>(&self, encoded: Vec<u8>) -> Answer<(Bytes, MetadataMap)> {
        let shown = render(R::REQUEST, &encoded);
        let answer = self.plugin.client_of(R::PATH).unary(R::PATH, encoded).await;
        let told = match &answer {
            Ok((bytes, _)) => render_reply(R::REPLY, bytes),
            Err(status) => render_status(status),
        };
        self.note(R::PATH, shown, told);
        answer
    }

    /// They break rules of their own; what the check is about is another matter.
    fn note_findings(&self, findings: Vec<Finding>) {
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

    /// All messages of a stream, and how it ended.
    pub async fn stream<R: Rpc>(&self, request: R) -> Outcome<(Vec<R::Reply>, Answer<()>)> {
        self.stream_of(request, usize::MAX).await
    }

    /// The first messages of a stream, which is then given up.
    pub async fn stream_of<R: Rpc>(
        &self,
        request: R,
        most: usize,
    ) -> Outcome<(Vec<R::Reply>, Answer<()>)> {
        let encoded = request.encode_to_vec();
        let shown = render(R::REQUEST, &encoded);
        let (messages, end) = self.read_stream::<R>(encoded, most).await;
        let told = match &end {
            Ok(()) => format!("OK, {} messages", messages.len()),
            Err(status) => format!("{}, {} messages", render_status(status), messages.len()),
        };
        self.note(R::PATH, shown, told);
        let mut findings: Vec<_> =
            messages.iter().flat_map(|bytes| audit::reply(R::REPLY, bytes)).collect();
        findings.extend(end.as_ref().err().into_iter().flat_map(audit::status));
        self.note_findings(findings);
        let decoded: Result<Vec<_>, _> = messages.into_iter().map(R::Reply::decode).collect();
        Ok((decoded.map_err(|_| self.failed_row(Some("PR-01"), R::REPLY))?, end))
    }

    async fn read_stream<R: Rpc>(&self, encoded: Vec<u8>, most: usize) -> (Vec<Bytes>, Answer<()>) {
        let mut messages = Vec::new();
        let mut stream = match self.plugin.client_of(R::PATH).stream(R::PATH, encoded).await {
            Ok(stream) => stream,
            Err(status) => return (messages, Err(status)),
        };
        while messages.len() < most {
            match tokio::time::timeout(self.options().timeout, stream.message()).await {
                Ok(Ok(Some(bytes))) => messages.push(bytes),
                Ok(Ok(None)) => return (messages, Ok(())),
                Ok(Err(status)) => return (messages, Err(status)),
                Err(_) => {
                    let late = Status::deadline_exceeded("no message for a long time");
                    return (messages, Err(late));
                }
            }
        }
        (messages, Ok(()))
    }

    /// A stream that has to be refused with this code before or instead of any message.
    pub async fn stream_refused<R: Rpc>(&self, request: R, code: Code) -> Outcome<Status> {
        match self.stream(request).await? {
            (messages, Err(status)) if messages.is_empty() && status.code() == code => Ok(status),
            (_, _) => Err(self.failed(code_name(code))),
        }
    }

    /// Calls and hangs up before the answer can be there (GEN-26).
    pub async fn abandoned<R: Rpc>(&self, request: R, after: Duration) -> Outcome {
        let encoded = request.encode_to_vec();
        let shown = render(R::REQUEST, &encoded);
        let call = self.plugin.client_of(R::PATH).unary(R::PATH, encoded);
        let answered = tokio::time::timeout(after, call).await;
        let told = if answered.is_ok() { "answered in time" } else { "(given up)" };
        self.note(R::PATH, shown, told.to_owned());
        Ok(())
    }
}
