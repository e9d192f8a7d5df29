//! Calls that are answered by a stream.

use prost::Message;
use prost::bytes::Bytes;
use tonic::{Code, Status, Streaming};

use super::{Answer, CheckContext, code_name};
use crate::audit;
use crate::call_log::{render, render_status};
use crate::check::{Outcome, blamed};
use crate::wire::Rpc;

/// The messages of a stream, and how it ended.
type Streamed<R> = (Vec<<R as Rpc>::Reply>, Answer<()>);

impl CheckContext {
    /// All messages of a stream.
    pub async fn stream<R: Rpc>(&self, request: R) -> Outcome<Streamed<R>> {
        self.stream_of(request, usize::MAX).await
    }

    /// The first messages of a stream, which is then given up.
    pub async fn stream_of<R: Rpc>(&self, request: R, most: usize) -> Outcome<Streamed<R>> {
        let mut messages = Vec::new();
        let end = match self.opened(&request).await {
            Ok(mut stream) => self.read_on(&mut stream, &mut messages, most).await,
            Err(status) => Err(status),
        };
        self.streamed(&request, messages, end)
    }

    /// Reads one message, takes the storage away, reads on to the end, and brings it back.
    pub async fn stream_into_outage<R: Rpc>(&self, request: R) -> Outcome<Streamed<R>> {
        let mut messages = Vec::new();
        let mut stream = match self.opened(&request).await {
            Ok(stream) => stream,
            Err(status) => return self.streamed(&request, messages, Err(status)),
        };
        let mut end = self.read_on(&mut stream, &mut messages, 1).await;
        if end.is_ok() {
            let rest = async { Ok(self.read_on(&mut stream, &mut messages, usize::MAX).await) };
            end = self.during_outage(rest).await?;
        }
        self.streamed(&request, messages, end)
    }

    /// A stream that has to be refused with this code before or instead of any message.
    pub async fn stream_refused<R: Rpc>(&self, request: R, code: Code) -> Outcome<Status> {
        match self.stream(request).await? {
            (messages, Err(status)) if messages.is_empty() && status.code() == code => Ok(status),
            (_, _) => Err(self.failed(code_name(code))),
        }
    }

    async fn opened<R: Rpc>(&self, request: &R) -> Answer<Streaming<Bytes>> {
        self.plugin.client_of(R::PATH).stream(R::PATH, request.encode_to_vec()).await
    }

    /// Until there are so many messages, or no more.
    async fn read_on(
        &self,
        stream: &mut Streaming<Bytes>,
        messages: &mut Vec<Bytes>,
        most: usize,
    ) -> Answer<()> {
        while messages.len() < most {
            match tokio::time::timeout(self.options().timeout, stream.message()).await {
                Ok(Ok(Some(bytes))) => messages.push(bytes),
                Ok(Ok(None)) => break,
                Ok(Err(status)) => return Err(status),
                Err(_) => return Err(Status::deadline_exceeded("no message for a long time")),
            }
        }
        Ok(())
    }

    /// Notes the call and what is wrong with any of its messages, whatever was asked.
    fn streamed<R: Rpc>(
        &self,
        request: &R,
        messages: Vec<Bytes>,
        end: Answer<()>,
    ) -> Outcome<Streamed<R>> {
        let ended = end.as_ref().err().map_or_else(|| "OK".to_owned(), render_status);
        let shown = render(R::REQUEST, &request.encode_to_vec());
        self.note(R::PATH, shown, format!("{ended}, {} messages", messages.len()));
        let mut findings: Vec<_> =
            messages.iter().flat_map(|bytes| audit::reply(R::REPLY, bytes)).collect();
        findings.extend(end.as_ref().err().into_iter().flat_map(audit::status));
        self.note_findings(findings);
        let decoded: Result<Vec<_>, _> = messages.into_iter().map(R::Reply::decode).collect();
        let decoded = decoded.map_err(|_| self.failed(format!("a stream of {}", R::REPLY)));
        Ok((blamed("PR-01", decoded)?, end))
    }
}
