//! A socket that passes calls on to a plugin, through an interceptor.

use std::convert::Infallible;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use csi_conformance::client::{Client, Raw};
use prost::bytes::Bytes;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tower::Service;

use crate::interceptor::{Answer, Before, Interceptor};

const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) struct Proxy {
    serving: JoinHandle<()>,
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

impl Proxy {
    pub(crate) fn start(upstream: &Path, interceptor: Interceptor) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let socket = directory.path().join("broken.sock");
        let listener = UnixListener::bind(&socket).map_err(|error| error.to_string())?;
        let client = Client::new(upstream, TIMEOUT)?;
        let passing = Passing { client, interceptor: Arc::new(interceptor) };
        let serving = tokio::spawn(async move {
            let connections = UnixListenerStream::new(listener);
            // It is served until it is dropped; an error shows as calls without an answer.
            let _ = Server::builder().serve_with_incoming(passing, connections).await;
        });
        Ok(Self { serving, socket, _directory: directory })
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

#[derive(Clone)]
struct Passing {
    client: Client,
    interceptor: Arc<Interceptor>,
}

type Answering<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Service<http::Request<Body>> for Passing {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path().to_owned();
        let streams = path.starts_with("/csi.v1.SnapshotMetadata/");
        let method = Method { path, passing: self.clone() };
        Box::pin(async move {
            let mut grpc = Grpc::new(Raw);
            let Method { path, passing } = method.clone();
            let mut response = if streams {
                grpc.server_streaming(method, request).await
            } else {
                grpc.unary(method, request).await
            };
            passing.interceptor.head(&path, response.headers_mut());
            Ok(response)
        })
    }
}

#[derive(Clone)]
struct Method {
    path: String,
    passing: Passing,
}

impl UnaryService<Bytes> for Method {
    type Response = Bytes;
    type Future = Answering<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let Self { path, passing } = self.clone();
        Box::pin(async move { passing.unary(&path, request.into_inner()).await })
    }
}

type Messages = tokio_stream::Iter<std::vec::IntoIter<Result<Bytes, Status>>>;

impl ServerStreamingService<Bytes> for Method {
    type Response = Bytes;
    type ResponseStream = Messages;
    type Future = Answering<Result<Response<Messages>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let Self { path, passing } = self.clone();
        Box::pin(async move { passing.stream(&path, request.into_inner()).await })
    }
}

impl Passing {
    async fn unary(&self, path: &str, asked: Bytes) -> Result<Response<Bytes>, Status> {
        let answer = match self.interceptor.before(path, asked.clone()) {
            Before::Answer(answer) => answer.map(Response::new),
            Before::Forward(bytes) => self.forward(path, bytes).await,
        };
        let metadata = answer.as_ref().map(|it| it.metadata().clone()).unwrap_or_default();
        let bytes = self.interceptor.after(path, &asked, answer.map(Response::into_inner))?;
        let mut response = Response::new(bytes);
        *response.metadata_mut() = metadata;
        Ok(response)
    }

    async fn forward(&self, path: &str, bytes: Bytes) -> Result<Response<Bytes>, Status> {
        let (bytes, metadata) = self.client.unary(path, bytes.to_vec()).await?;
        let mut response = Response::new(bytes);
        *response.metadata_mut() = metadata;
        Ok(response)
    }

    async fn stream(&self, path: &str, asked: Bytes) -> Result<Response<Messages>, Status> {
        let (mut messages, mut end) = match self.interceptor.before(path, asked.clone()) {
            Before::Answer(Err(status)) => (Vec::new(), Err(status)),
            Before::Answer(Ok(bytes)) => (vec![bytes], Ok(())),
            Before::Forward(bytes) => self.collect(path, bytes).await,
        };
        self.interceptor.after_stream(path, &asked, &mut messages, &mut end);
        let messages = messages.into_iter().map(Ok).chain(end.err().map(Err));
        Ok(Response::new(tokio_stream::iter(messages.collect::<Vec<_>>())))
    }

    async fn collect(&self, path: &str, bytes: Bytes) -> (Vec<Bytes>, Answer<()>) {
        let mut messages = Vec::new();
        let mut stream = match self.client.stream(path, bytes.to_vec()).await {
            Ok(stream) => stream,
            Err(status) => return (messages, Err(status)),
        };
        loop {
            match stream.message().await {
                Ok(Some(bytes)) => messages.push(bytes),
                Ok(None) => return (messages, Ok(())),
                Err(status) => return (messages, Err(status)),
            }
        }
    }
}
