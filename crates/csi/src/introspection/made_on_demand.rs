//! A service that is made for its first call.

use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tower::Service;

use crate::routes::Answering;

type Make<S> = dyn Fn() -> Result<S, Status> + Send + Sync;

/// For a service that takes long to make, or much memory, and that few callers ask for.
pub(crate) struct MadeOnDemand<S> {
    made: Arc<OnceLock<S>>,
    make: Arc<Make<S>>,
}

impl<S> Clone for MadeOnDemand<S> {
    fn clone(&self) -> Self {
        Self { made: Arc::clone(&self.made), make: Arc::clone(&self.make) }
    }
}

impl<S: Clone> MadeOnDemand<S> {
    pub(super) fn by(make: impl Fn() -> Result<S, Status> + Send + Sync + 'static) -> Self {
        Self { made: Arc::default(), make: Arc::new(make) }
    }

    fn service(&self) -> Result<S, Status> {
        if let Some(made) = self.made.get() {
            return Ok(made.clone());
        }
        let made = (self.make)()?;
        Ok(self.made.get_or_init(|| made).clone())
    }
}

impl<S: NamedService> NamedService for MadeOnDemand<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for MadeOnDemand<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Generated services are always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        match self.service() {
            Ok(mut service) => Box::pin(service.call(request)),
            Err(status) => Box::pin(ready(Ok(status.into_http()))),
        }
    }
}
