//! Bytes to a method and back, so that what is on the wire can be looked at, and so that
//! messages can be sent which no library would make.

use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use prost::bytes::{Buf, BufMut, Bytes};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{Body as _, Service as _, http};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

/// Messages as they are on the wire.
#[derive(Debug, Clone, Copy, Default)]
pub struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// How a call ended, in the words of HTTP/2: a library turns what it does not know into UNKNOWN.
#[derive(Debug, Clone)]
pub struct Ending {
    pub http_status: u16,
    pub content_type: String,
    /// `grpc-status`, wherever it stood.
    pub grpc_status: Option<String>,
}

/// An empty message: not compressed, no bytes.
const EMPTY_MESSAGE: &str = "\0\0\0\0\0";

fn text(headers: &http::HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// A reply's bytes and the metadata that came with it.
pub type RawReply = (Bytes, MetadataMap);

#[derive(Debug, Clone)]
pub struct Client {
    channel: Channel,
    timeout: Duration,
}

fn method(path: &str) -> Result<PathAndQuery, Status> {
    path.parse().map_err(|_| Status::internal(format!("{path} is no path of a method")))
}

impl Client {
    /// Connects when first used, and again whenever the connection is lost.
    pub fn new(socket: &Path, timeout: Duration) -> Result<Self, String> {
        let address = format!("unix://{}", socket.display());
        let endpoint = Endpoint::from_shared(address).map_err(|error| error.to_string())?;
        Ok(Self { channel: endpoint.connect_lazy(), timeout })
    }

    pub async fn unary(&self, path: &str, message: Vec<u8>) -> Result<RawReply, Status> {
        let mut grpc = self.ready().await?;
        let mut request = Request::new(Bytes::from(message));
        request.set_timeout(self.timeout);
        let call = grpc.unary(request, method(path)?, Raw);
        let answered = tokio::time::timeout(self.timeout, call).await;
        let reply = answered.map_err(|_| {
            Status::deadline_exceeded(format!("no answer within {:?}", self.timeout))
        })??;
        let (metadata, message, _) = reply.into_parts();
        Ok((message, metadata))
    }

    pub async fn stream(&self, path: &str, message: Vec<u8>) -> Result<Streaming<Bytes>, Status> {
        let mut grpc = self.ready().await?;
        let request = Request::new(Bytes::from(message));
        let call = grpc.server_streaming(request, method(path)?, Raw);
        Ok(call.await?.into_inner())
    }

    /// Sends an empty message and reads how the call ends.
    pub async fn ending(&self, path: &str) -> Result<Ending, String> {
        let ending = tokio::time::timeout(self.timeout, self.read_ending(path)).await;
        ending.map_err(|_| format!("no end within {:?}", self.timeout))?
    }

    async fn read_ending(&self, path: &str) -> Result<Ending, String> {
        let request = http::Request::post(path)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(tonic::body::Body::new(EMPTY_MESSAGE.to_owned()))
            .map_err(|error| error.to_string())?;
        let mut channel = self.channel.clone();
        std::future::poll_fn(|context| channel.poll_ready(context))
            .await
            .map_err(|error| error.to_string())?;
        let response = channel.call(request).await.map_err(|error| error.to_string())?;
        let (head, mut body) = response.into_parts();
        let mut grpc_status = text(&head.headers, "grpc-status");
        let next = |body: &mut tonic::body::Body, context: &mut std::task::Context<'_>| {
            Pin::new(body).poll_frame(context)
        };
        while let Some(frame) = std::future::poll_fn(|context| next(&mut body, context)).await {
            let frame = frame.map_err(|status| status.to_string())?;
            if let Ok(trailers) = frame.into_trailers() {
                grpc_status = grpc_status.or(text(&trailers, "grpc-status"));
            }
        }
        let content_type = text(&head.headers, "content-type").unwrap_or_default();
        Ok(Ending { http_status: head.status.as_u16(), content_type, grpc_status })
    }

    async fn ready(&self) -> Result<Grpc<Channel>, Status> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(grpc)
    }
}
