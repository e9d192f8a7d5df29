//! Large messages that begin to arrive and never end.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::Frame;
use orlop_tests::*;
use tonic::Status;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::http::Request;
use tonic::transport::{Channel, Endpoint};

/// As many as one connection may have.
const CALLS: usize = 256;
/// The most that a message may have.
const MESSAGE: u32 = 4 << 20;
/// The piece of it that is missing in the end.
const MISSING: usize = 100;
const PIECE: usize = 16 << 10;
/// The largest part of the 256 MiB that docs/deploy/requirements.md recommends.
const TOLERATED: u64 = 64 * MIB;

type Data = <Body as http_body::Body>::Data;

struct Unfinished {
    head: Option<Data>,
    left: usize,
}

impl Unfinished {
    fn new() -> Self {
        let head = [&[0], MESSAGE.to_be_bytes().as_slice()].concat();
        let left = usize::try_from(MESSAGE).unwrap() - MISSING;
        Self { head: Some(Data::from(head)), left }
    }
}

impl http_body::Body for Unfinished {
    type Data = Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Data>, Status>>> {
        if let Some(head) = self.head.take() {
            return Poll::Ready(Some(Ok(Frame::data(head))));
        }
        if self.left == 0 {
            // Without a waker: it never comes.
            return Poll::Pending;
        }
        let length = self.left.min(PIECE);
        self.left -= length;
        Poll::Ready(Some(Ok(Frame::data(Data::from(vec![0; length])))))
    }
}

async fn call(mut channel: Channel, method: &'static str) {
    let uri = format!("http://localhost{method}");
    let request = Request::post(uri)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(Unfinished::new()))
        .unwrap();
    poll_fn(|context| GrpcService::<Body>::poll_ready(&mut channel, context)).await.unwrap();
    // Refused or given up: either will do.
    let _ = GrpcService::<Body>::call(&mut channel, request).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_do_not_end_take_bounded_memory() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let before = peak_resident_bytes(daemon.pid());
    for method in ["/csi.v1.Identity/Probe", "/csi.v1.Controller/CreateVolume"] {
        let endpoint = format!("unix://{}", daemon.launch().socket().display());
        let channel = Endpoint::from_shared(endpoint).unwrap().connect().await.unwrap();
        let calls: Vec<_> =
            (0..CALLS).map(|_| tokio::spawn(call(channel.clone(), method))).collect();
        // Shorter than a message may take to arrive, so none of them has ended for that.
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(client.probe().await.unwrap(), "{method}: other calls are not answered");
        let volume = client.create("v").size(MIB).block().done().await;
        client.delete(&volume.volume_id).await.unwrap();
        calls.iter().for_each(tokio::task::JoinHandle::abort);
        let peak = peak_resident_bytes(daemon.pid());
        report(&format!("{method}: peak before {} MiB, then {} MiB", before / MIB, peak / MIB));
        assert!(peak < before + TOLERATED, "{method}: {before} bytes became {peak}");
    }
}
