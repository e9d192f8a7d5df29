#![allow(clippy::unwrap_used, clippy::panic)]

use http_body::Body as _;
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
    let observed = ObserveCalls::default().layer(service);
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
    let calls = Arc::new(Semaphore::new(1));
    let observed = ObserveCalls { calls: Arc::clone(&calls) }.layer(service_fn(read));
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
