//! A daemon that answers calls: this one, or a peer.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Frame, SizeHint};
use orlop_csi::Routes;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Response};
use tonic::transport::Channel;
use tower::{Service, ServiceExt};

/// The header with the sender's node id, which is compared with its certificate.
pub(crate) const NODE: &str = "orlop-node";

#[derive(Clone)]
pub(crate) enum Target {
    Here(Routes),
    Peer(PeerTarget),
    /// A daemon that only others have seen.
    Nowhere {
        node: String,
    },
}

#[derive(Clone)]
pub(crate) struct PeerTarget {
    pub(crate) node: String,
    pub(crate) channel: Channel,
    /// The node id of this daemon.
    pub(crate) caller: HeaderValue,
}

impl Target {
    /// A failure of the way to a peer is UNAVAILABLE: whether the call was carried out is not known, and
    /// every call may be repeated.
    pub(crate) async fn forward(
        self,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        match self {
            Self::Here(mut routes) => match routes.call(request).await {
                Ok(response) => Ok(response),
                Err(never) => match never {},
            },
            Self::Nowhere { node } => Err(Status::unavailable(format!(
                "cannot reach node {node}, which the call is for; try again when it is back"
            ))),
            Self::Peer(PeerTarget { node, channel, caller }) => {
                request.headers_mut().insert(NODE, caller);
                let answer = channel.oneshot(request).await;
                let answer = answer.map(|answer| answer.map(|body| ForwardedBody::of(body, &node)));
                answer.map_err(|error| {
                    let why = causes(&error);
                    Status::unavailable(format!(
                        "cannot reach node {node}, which the call is for: {why}; try again when it \
                         is back"
                    ))
                })
            }
        }
    }
}

/// For clients of the generated kind.
impl Service<Request<Body>> for Target {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().forward(request))
    }
}

/// An error of the transport says only that it is one; what it was is in its source.
pub(crate) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// The answer of a peer. If the peer dies in the middle of it, that is UNAVAILABLE, and not a defect here.
struct ForwardedBody {
    body: Body,
    node: String,
    is_over: bool,
}

impl ForwardedBody {
    fn of(body: Body, node: &str) -> Body {
        Body::new(Self { body, node: node.to_owned(), is_over: false })
    }

    fn lost(&mut self) -> Frame<<Body as http_body::Body>::Data> {
        self.is_over = true;
        let status = Status::unavailable(format!(
            "lost node {} while it was answering; try again when it is back",
            self.node
        ));
        let mut trailers = HeaderMap::new();
        // Fails only for a message that no header can hold, and this is plain text.
        let _ = status.add_header(&mut trailers);
        Frame::trailers(trailers)
    }
}

impl http_body::Body for ForwardedBody {
    type Data = <Body as http_body::Body>::Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Status>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Err(_)) => Poll::Ready(Some(Ok(self.lost()))),
            frame => Poll::Ready(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
