//! A stream that something happens to.

use prost::Message;
use tonic::Status;

use super::{Answer, Trial};
use crate::check::Outcome;
use crate::journal::{render, render_status};
use crate::wire::Rpc;

impl Trial {
    /// Reads one message, takes the storage away, reads on to the end, and brings it back.
    pub async fn stream_into_outage<R: Rpc>(
        &self,
        request: R,
    ) -> Outcome<(Vec<R::Reply>, Answer<()>)> {
        let encoded = request.encode_to_vec();
        let shown = render(R::REQUEST, &encoded);
        let (messages, end) = self.read_into_outage::<R>(encoded).await?;
        let ended = end.as_ref().err().map_or_else(|| "OK".to_owned(), render_status);
        self.note(R::PATH, shown, format!("{ended}, {} messages", messages.len()));
        Ok((messages, end))
    }

    async fn read_into_outage<R: Rpc>(
        &self,
        encoded: Vec<u8>,
    ) -> Outcome<(Vec<R::Reply>, Answer<()>)> {
        let mut messages = Vec::new();
        let mut stream = match self.plugin.client_of(R::PATH).stream(R::PATH, encoded).await {
            Ok(stream) => stream,
            Err(status) => return Ok((messages, Err(status))),
        };
        let mut next = stream.message().await;
        self.break_storage()?;
        let end = loop {
            match next {
                Ok(Some(bytes)) => match R::Reply::decode(bytes) {
                    Ok(message) => messages.push(message),
                    Err(error) => break Err(Status::data_loss(error.to_string())),
                },
                Ok(None) => break Ok(()),
                Err(status) => break Err(status),
            }
            let patience = self.options().timeout;
            next = match tokio::time::timeout(patience, stream.message()).await {
                Ok(next) => next,
                Err(_) => break Err(Status::deadline_exceeded("no message for a long time")),
            };
        };
        self.mend_storage()?;
        Ok((messages, end))
    }
}
