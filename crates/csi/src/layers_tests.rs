#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::task::Waker;

use http_body::{Body as _, Frame};
use tonic::codegen::http::HeaderMap;
use tower::{ServiceExt, service_fn};

use super::*;

fn request(path: &str) -> Request<Body> {
    Request::builder().uri(path).body(Body::default()).unwrap()
}

async fn status_of<S>(service: S) -> Option<Status>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    let observed = ObserveCalls::counted_by(&Arc::default()).layer(service);
    let response = observed.oneshot(request("/csi.v1.Node/NodeGetInfo")).await.unwrap();
    Status::from_header_map(response.headers())
}

#[tokio::test]
async fn handler_panic_is_answered() {
    let panics = service_fn(|_: Request<Body>| async {
        tokio::task::yield_now().await;
        panic!("a bug")
    });
    let status = status_of(panics).await.unwrap();
    assert_eq!(status.code(), Code::Internal);
    assert!(!status.message().is_empty());
}

#[tokio::test]
async fn refusal_without_message_gets_one() {
    let mute =
        service_fn(|_: Request<Body>| async { Ok(Status::unimplemented("").into_http::<Body>()) });
    let status = status_of(mute).await.unwrap();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(!status.message().is_empty());
}

#[tokio::test]
async fn other_answers_pass_unchanged() {
    let refuses =
        service_fn(|_: Request<Body>| async { Ok(Status::aborted("busy").into_http::<Body>()) });
    assert_eq!(status_of(refuses).await.unwrap().message(), "busy");
    let answers = service_fn(|_: Request<Body>| async { Ok(Response::new(Body::default())) });
    assert!(status_of(answers).await.is_none());
}

#[test]
fn only_nonzero_grpc_status_is_a_refusal() {
    let mut response = Response::new(Body::default());
    assert!(refusal(&response).is_none());
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert("grpc-status", "0".parse().unwrap());
    assert!(refusal(&response).is_none());
    response.headers_mut().insert("grpc-status", "5".parse().unwrap());
    assert_eq!(refusal(&response).unwrap().code(), Code::NotFound);
}

#[test]
fn importance_depends_on_code_and_call() {
    let of_change = |code| importance(code, false);
    let of_question = |code| importance(code, true);
    assert_eq!(of_change(Code::Ok), Importance::Event);
    assert_eq!(of_question(Code::Ok), Importance::Detail);
    assert_eq!(of_change(Code::NotFound), Importance::Refusal);
    assert_eq!(of_question(Code::NotFound), Importance::Event);
    assert_eq!(of_change(Code::Cancelled), Importance::Event);
    assert_eq!(of_change(Code::DeadlineExceeded), Importance::Event);
    for importance in [of_change, of_question] as [fn(Code) -> Importance; 2] {
        for code in [Code::InvalidArgument, Code::Aborted, Code::Unavailable] {
            assert_eq!(importance(code), Importance::Refusal, "{code:?}");
        }
        for code in [Code::Internal, Code::Unknown, Code::DataLoss] {
            assert_eq!(importance(code), Importance::Defect, "{code:?}");
        }
    }
}

/// Reads its message, as a handler does; what it cannot read is its answer.
async fn read(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let mut body = request.into_body();
    let piece = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
    Ok(match piece {
        Some(Err(status)) => status.into_http(),
        Some(Ok(_)) | None => Response::default(),
    })
}

#[tokio::test]
async fn call_above_the_limit_is_refused() {
    let limits = CallLimits::new(1);
    let calls = Arc::clone(&limits.calls);
    let observed = ObserveCalls { limits, stats: Arc::default() }.layer(service_fn(read));
    let call = async |method: &str| {
        let uri = format!("/csi.v1.Controller/{method}");
        let request = Request::builder().uri(uri).body(Body::new("message".to_owned())).unwrap();
        let response = observed.clone().oneshot(request).await.unwrap();
        Status::from_header_map(response.headers()).map(|status| status.code())
    };
    let running = Arc::clone(&calls).try_acquire_owned().unwrap();
    assert_eq!(call("CreateVolume").await, Some(Code::Unavailable));
    assert_eq!(call("CreateVolume").await, Some(Code::Unavailable));
    assert_eq!(call("Probe").await, None, "routine calls are not counted");
    drop(running);
    assert_eq!(call("CreateVolume").await, None);
    assert_eq!(calls.available_permits(), 1, "a call that has ended is not counted");
}

const LARGE: usize = 4 << 20;
type Data = <Body as http_body::Body>::Data;

/// A message that says how long it is, and never comes.
struct Announced(Option<Data>);

impl http_body::Body for Announced {
    type Data = Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Data>, Status>>> {
        match self.0.take() {
            Some(head) => Poll::Ready(Some(Ok(Frame::data(head)))),
            None => Poll::Pending,
        }
    }
}

fn announced(method: &str, lengths: &[usize]) -> Request<Body> {
    let mut pieces = Vec::new();
    for (number, length) in lengths.iter().enumerate() {
        pieces.push(0);
        pieces.extend(u32::try_from(*length).unwrap().to_be_bytes());
        if number + 1 < lengths.len() {
            pieces.extend(vec![0; *length]);
        }
    }
    let uri = format!("/csi.v1.Any/{method}");
    let body = Body::new(Announced(Some(Data::from(pieces))));
    Request::builder().uri(uri).body(body).unwrap()
}

/// Reads all of its message, as a handler does.
async fn read_all(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let mut body = request.into_body();
    loop {
        match poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            Some(Err(status)) => return Ok(status.into_http()),
            Some(Ok(_)) => {}
            None => return Ok(Response::default()),
        }
    }
}

/// The calls that are refused at once; the others are waited for, and go with what is returned.
fn begun(calls: Vec<Request<Body>>) -> (Vec<Code>, Vec<Answering>) {
    let mut observed = ObserveCalls::counted_by(&Arc::default()).layer(service_fn(read_all));
    let (mut refused, mut waiting) = (Vec::new(), Vec::new());
    for call in calls {
        let mut answering = observed.call(call);
        match answering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => {
                let answer = Status::from_header_map(answer.unwrap().headers());
                refused.push(answer.unwrap().code());
            }
            Poll::Pending => waiting.push(answering),
        }
    }
    (refused, waiting)
}

#[tokio::test]
async fn large_messages_are_waited_for_only_so_many_at_once() {
    let large = || announced("CreateVolume", &[LARGE]);
    let small = || announced("CreateVolume", &[4096]);
    let mut calls: Vec<_> = (0..256).map(|_| large()).collect();
    calls.extend((0..256).map(|_| small()));
    let (refused, waiting) = begun(calls);
    assert!((1..=16).contains(&(waiting.len() - 256)), "{} large ones", waiting.len() - 256);
    assert_eq!(refused, vec![Code::Unavailable; 512 - waiting.len()]);
}

#[tokio::test]
async fn what_an_ended_call_had_of_the_bytes_goes_to_the_next() {
    let mut observed = ObserveCalls::counted_by(&Arc::default()).layer(service_fn(read_all));
    for _ in 0..64 {
        let mut answering = observed.call(announced("CreateVolume", &[LARGE]));
        let polled = answering.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
}

#[tokio::test]
async fn a_second_message_of_a_call_counts_as_well() {
    let calls = (0..64).map(|_| announced("CreateVolume", &[0, LARGE])).collect();
    let (refused, waiting) = begun(calls);
    assert!(waiting.len() <= 16, "{} are waited for", waiting.len());
    assert_eq!(refused, vec![Code::Unavailable; 64 - waiting.len()]);
}

#[tokio::test]
async fn a_message_that_needs_little_may_not_be_large() {
    for method in ["Probe", "NodeGetCapabilities", "NodeUnpublishVolume", "GetCapacity"] {
        let calls = vec![announced(method, &[LARGE]), announced(method, &[16 << 10])];
        let (refused, waiting) = begun(calls);
        assert_eq!((refused, waiting.len()), (vec![Code::OutOfRange], 1), "{method}");
    }
}

#[tokio::test]
async fn a_deadline_that_has_passed_is_exceeded() {
    let never = service_fn(|_: Request<Body>| std::future::pending());
    for deadline in ["0n", "20m"] {
        let observed = ObserveCalls::counted_by(&Arc::default()).layer(never);
        let mut request = request("/csi.v1.Node/NodeGetInfo");
        request.headers_mut().insert("grpc-timeout", deadline.parse().unwrap());
        let long = std::time::Duration::from_secs(10);
        let response = tokio::time::timeout(long, observed.oneshot(request)).await;
        let response = response.expect("the deadline ends the call").unwrap();
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{deadline}");
        assert!(!status.message().is_empty());
    }
}
