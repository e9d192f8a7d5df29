//! A client in the same process, which neither knows nor cares what its messages mean.

use std::sync::{Arc, LazyLock};

use prost::bytes::{Buf, BufMut};
use tokio::runtime::{Builder, Runtime};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status};
use tower::Layer;

use crate::executor::Executor;
use crate::features::Features;
use crate::layers::{ObserveCalls, Observed};
use crate::routes::Routes;

/// Kept from input to input: the threads of a new one would cost more than all the rest.
static RUNTIME: LazyLock<std::io::Result<Runtime>> =
    LazyLock::new(|| Builder::new_current_thread().build());

pub(super) struct Wire {
    services: Observed<Routes>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) code: Code,
    pub(super) message: String,
    pub(super) replies: Vec<Vec<u8>>,
}

impl Wire {
    pub(super) fn new(executor: Arc<Executor>, features: Features) -> Self {
        let routes = Routes::csi(&executor, &Arc::new(features));
        Self { services: ObserveCalls::counted_by(&Arc::default()).layer(routes) }
    }

    pub(super) fn call(&self, method: &'static str, message: &[u8]) -> Answer {
        let mut answer = Answer { code: Code::Ok, message: String::new(), replies: Vec::new() };
        let (services, message) = (self.services.clone(), message.to_vec());
        let outcome = match RUNTIME.as_ref() {
            Ok(runtime) => runtime.block_on(ask(services, method, message, &mut answer.replies)),
            Err(error) => Err(Status::unknown(error.to_string())),
        };
        if let Err(status) = outcome {
            answer.code = status.code();
            status.message().clone_into(&mut answer.message);
        }
        answer
    }
}

/// As if every method answered with a stream, which on the wire it does.
async fn ask(
    services: Observed<Routes>,
    method: &'static str,
    message: Vec<u8>,
    replies: &mut Vec<Vec<u8>>,
) -> Result<(), Status> {
    let mut client = Grpc::new(services);
    client.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
    let path = PathAndQuery::from_static(method);
    let answered = client.server_streaming(Request::new(message), path, Unread).await?;
    let mut stream = answered.into_inner();
    while let Some(reply) = stream.message().await? {
        replies.push(reply);
    }
    Ok(())
}

/// Messages as bytes.
#[derive(Clone, Copy)]
struct Unread;

impl Codec for Unread {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Unread {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Unread {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut message = vec![0; from.remaining()];
        from.copy_to_slice(&mut message);
        Ok(Some(message))
    }
}
