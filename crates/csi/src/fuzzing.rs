//! Fuzzes the services without a socket: requests are arbitrary bytes, and every answer is checked.

pub mod http2;
mod methods;
mod wire;

use std::sync::Arc;

use orlop_engine::Engine;
use prost::Message;
use tonic::Code;

pub use self::methods::METHODS;
use self::wire::{Answer, Wire};
use crate::executor::Executor;
use crate::features::Features;
use crate::proto::csi::v1;

/// One request to a plugin whose pools are not read yet: all of the parsing, and nothing else. The
/// first byte chooses the method.
pub fn request(features: &Features, input: &[u8]) {
    let wire = Wire::new(Arc::new(Executor::starting()), features.clone());
    let Some((method, message)) = input.split_first() else { return };
    let method = METHODS[usize::from(*method) % METHODS.len()];
    let answer = wire.call(method, message);
    check(method, &answer);
}

/// Requests one after the other, each sent twice: both answers must be the same (GEN-20). Each request is
/// encoded as a method, the length of the message, and the message.
pub fn calls(engine: Engine, features: &Features, input: &[u8]) {
    let executor = Arc::new(Executor::starting());
    executor.ready(Arc::new(engine));
    let wire = Wire::new(executor, features.clone());
    for (method, message) in Requests(input) {
        let first = wire.call(method, message);
        check(method, &first);
        let second = wire.call(method, message);
        check(method, &second);
        if !method.starts_with("/reclaimspace.") {
            assert_eq!(first, second, "{method}, once more");
        }
    }
}

struct Requests<'a>(&'a [u8]);

impl<'a> Iterator for Requests<'a> {
    type Item = (&'static str, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let ([method, high, low], rest) = self.0.split_first_chunk()?;
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (message, rest) = rest.split_at(length);
        self.0 = rest;
        Some((METHODS[usize::from(*method) % METHODS.len()], message))
    }
}

/// What a peer may rely on: a code that says whose fault it is, a text that fits into a header, and ids
/// without slashes of at most 128 bytes.
fn check(method: &str, answer: &Answer) {
    let text = &answer.message;
    match answer.code {
        Code::Ok => {}
        // Said by the decoder of messages, before any of our code runs.
        Code::Internal => assert!(text.starts_with("failed to decode"), "{method}: {text}"),
        Code::Unknown | Code::Cancelled | Code::DeadlineExceeded => {
            assert_eq!(answer.code, Code::Ok, "{method}: {text}");
        }
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Unavailable
        // A copy of a formatted volume: the pool in memory does not copy the superblock.
        | Code::DataLoss
        | Code::Unauthenticated => assert!(!text.is_empty(), "{method}: no text"),
    }
    assert!(text.len() <= 1024, "{method}: {} bytes of text", text.len());
    assert!(!text.contains(char::is_control), "{method}: {text:?}");
    if let (Code::Ok, "/csi.v1.Controller/CreateVolume", [reply]) =
        (answer.code, method, answer.replies.as_slice())
    {
        let made = v1::CreateVolumeResponse::decode(reply.as_slice()).ok();
        let id = made.and_then(|made| made.volume).unwrap_or_default().volume_id;
        assert!(id.starts_with("v-") && !id.contains('/') && id.len() <= 128, "{id:?}");
    }
}

#[cfg(test)]
mod tests;
