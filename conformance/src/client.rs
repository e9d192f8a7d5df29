//! Bytes to a method and back, so that what is on the wire can be looked at, and so that
//! messages can be sent which no library would make.

use std::path::Path;
use std::time::Duration;

use prost::bytes::{Buf, BufMut, Bytes};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
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

    async fn ready(&self) -> Result<Grpc<Channel>, Status> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(grpc)
    }
}
