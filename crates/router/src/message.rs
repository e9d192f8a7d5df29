//! The one message of a call, read as a whole so that it can be sent on, and the reply to it.

use http_body::Frame;
use http_body_util::{BodyExt, LengthLimitError, Limited, StreamBody};
use orlop_csi::{TRACE_PARENT, TRACE_STATE};
use prost::Message;
use prost::bytes::{BufMut, Bytes, BytesMut};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::request::Parts;
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Response, header};

/// As much as a daemon reads of a message.
const LARGEST: usize = 4 << 20;
/// A byte that says whether the message is compressed, and its length.
const HEAD: usize = 5;
const TIMEOUT: &str = "grpc-timeout";

/// A call whose message has arrived.
#[derive(Clone)]
pub(crate) struct Call {
    parts: Parts,
    framed: Bytes,
}

impl Call {
    pub(crate) async fn read(request: Request<Body>) -> Result<Self, Status> {
        let (parts, body) = request.into_parts();
        let body = Limited::new(body, HEAD + LARGEST).collect().await.map_err(refusal)?;
        let framed = body.to_bytes();
        if let Some((head, message)) = framed.split_at_checked(HEAD) {
            let announced = head.get(1..).and_then(|length| length.try_into().ok());
            let announced = announced.map_or(0, u32::from_be_bytes);
            if usize::try_from(announced) != Ok(message.len()) {
                // The daemon that answers would read the first message, and this router another one.
                return Err(Status::invalid_argument("the call does not have exactly one message"));
            }
        }
        Ok(Self { parts, framed })
    }

    pub(crate) fn path(&self) -> &str {
        self.parts.uri.path()
    }

    /// Empty if it is not the one uncompressed message that a unary call has: what answers the call
    /// refuses it then.
    pub(crate) fn message(&self) -> &[u8] {
        let message = self.framed.get(HEAD..).unwrap_or_default();
        let is_plain = self.framed.first() == Some(&0);
        if is_plain { message } else { &[] }
    }

    /// The same call once more.
    pub(crate) fn request(&self) -> Request<Body> {
        let framed = http_body_util::Full::new(self.framed.clone());
        Request::from_parts(self.parts.clone(), Body::new(framed))
    }

    /// Another call on behalf of this one, within its deadline and its trace.
    pub(crate) fn beside<M>(&self, message: M) -> tonic::Request<M> {
        self.with_headers(message, &[TIMEOUT, TRACE_PARENT, TRACE_STATE])
    }

    /// As [`Self::beside`], for one that must not end half-way when the deadline has passed.
    pub(crate) fn in_trace<M>(&self, message: M) -> tonic::Request<M> {
        self.with_headers(message, &[TRACE_PARENT, TRACE_STATE])
    }

    fn with_headers<M>(&self, message: M, names: &[&'static str]) -> tonic::Request<M> {
        let mut request = tonic::Request::new(message);
        for name in names {
            let given = self.parts.headers.get(*name).and_then(|value| value.to_str().ok());
            if let Some(value) = given.and_then(|value| value.parse().ok()) {
                request.metadata_mut().insert(*name, value);
            }
        }
        request
    }
}

/// What reads messages reports what is wrong with their arrival as a status.
fn refusal(error: Box<dyn std::error::Error + Send + Sync>) -> Status {
    if error.is::<LengthLimitError>() {
        return Status::out_of_range(format!("the call's message is larger than {LARGEST} bytes"));
    }
    Status::from_error(error)
}

/// A reply that was put together here.
pub(crate) fn reply<M: Message>(message: &M) -> Response<Body> {
    let mut framed = BytesMut::with_capacity(HEAD + message.encoded_len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.encoded_len()).unwrap_or(u32::MAX));
    // It fails only where there is no room, and a buffer grows.
    let _ = message.encode(&mut framed);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = [Frame::data(framed.freeze()), Frame::trailers(trailers)];
    let body = StreamBody::new(tokio_stream::iter(frames.map(Ok::<_, Status>)));
    let mut response = Response::new(Body::new(body));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    response
}
