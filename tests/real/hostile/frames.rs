//! Peers that keep to no rule of HTTP/2, or to all of them more often than anyone needs to.

use std::iter;
use std::path::PathBuf;

use orlop_tests::*;

use crate::hostile::raw_http2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PING, RST_STREAM,
    Raw, SETTINGS, WINDOW_UPDATE, call, frame,
};

/// Nothing that is refused may leave this much behind.
const TOLERATED: u64 = 256 * MIB;
const PROBE: &str = "/csi.v1.Identity/Probe";
const GRPC: &str = "application/grpc";

struct Fixture {
    daemon: Daemon,
    node: OnNode,
    before: u64,
    _pool: TestPool,
}

impl Fixture {
    async fn new() -> Self {
        let pool = TestPool::new(PoolFs::Directory, 0);
        let daemon = Daemon::start(&pool).await;
        let client = daemon.client();
        let volume = client.create("v").size(MIB).block().done().await;
        let node = client.on_node(&volume, block());
        let before = resident_bytes(daemon.pid());
        Self { daemon, node, before, _pool: pool }
    }

    /// On a separate connection and thread.
    async fn send<I>(&self, pieces: I) -> Vec<Frame>
    where
        I: Iterator<Item = Vec<u8>> + Send + 'static,
    {
        let socket: PathBuf = self.daemon.launch().socket();
        let sending = move || Raw::connect(&socket).send_all(pieces);
        tokio::task::spawn_blocking(sending).await.unwrap()
    }

    /// It is still the same process, no larger than it should be, and of use to others.
    async fn assert_well(&self, after: &str) {
        assert!(self.daemon.client().probe().await.unwrap(), "{after}");
        self.node.up().await;
        self.node.down().await;
        let now = resident_bytes(self.daemon.pid());
        assert!(now < self.before + TOLERATED, "{after}: {} bytes became {now}", self.before);
    }
}

fn open(stream: u32, headers: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, headers)
}

fn count(frames: &[Frame], kind: u8) -> usize {
    frames.iter().filter(|found| found.kind == kind).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_methods_are_answered_one_by_one() {
    needs_root!();
    let fixture = Fixture::new().await;
    let calls = [
        ("/csi.v1.Identity/NoSuchMethod", GRPC),
        ("/csi.v9.Identity/Probe", GRPC),
        ("/", GRPC),
        ("//..//etc/passwd", GRPC),
        (PROBE, "text/plain"),
        (PROBE, "application/json"),
        (PROBE, ""),
    ];
    let socket = fixture.daemon.launch().socket();
    let answers = tokio::task::spawn_blocking(move || {
        let mut raw = Raw::connect(&socket);
        let streams = (1..).step_by(2);
        // The last one shows that the connection has outlived the others.
        let calls = calls.into_iter().chain([(PROBE, GRPC)]).zip(streams);
        calls.map(|((path, kind), stream)| raw.call(stream, &call(path, kind))).collect::<Vec<_>>()
    });
    let mut answers = answers.await.unwrap();
    assert_eq!(answers.pop().unwrap(), [HEADERS, DATA, HEADERS]);
    for answer in answers {
        assert_eq!(answer.first(), Some(&HEADERS), "{answer:?}");
        assert!(!answer.contains(&GOAWAY), "{answer:?}");
    }
    fixture.assert_well("calls of no service").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_headers_are_not_buffered() {
    const FRAMES: u32 = 8192;
    needs_root!();
    let fixture = Fixture::new().await;
    // 16 KiB each, a literal that is not remembered: 128 MiB of one call's headers.
    let filler = || [&b"\x00\x01x\x7f\xf8\x7e"[..], &[b'y'; 16_247]].concat();
    let more = move |_| frame(CONTINUATION, 0, 1, &filler());
    let begin = frame(HEADERS, 0, 1, &call(PROBE, GRPC));
    let found = fixture.send(iter::once(begin).chain((0..FRAMES).map(more))).await;
    assert_eq!(count(&found, GOAWAY), 1, "{found:?}");
    fixture.assert_well("endless headers").await;

    // With an end, and still more than anyone needs.
    let begin = frame(HEADERS, 0, 1, &call(PROBE, GRPC));
    let filler = [&b"\x00\x01x\x7f\xf8\x7e"[..], &[b'y'; 16_247]].concat();
    let large = (0..64).map(move |number| {
        let flags = if number == 63 { END_HEADERS } else { 0 };
        frame(CONTINUATION, flags, 1, &filler)
    });
    let end = frame(DATA, END_STREAM, 1, &[0; 5]);
    let found = fixture.send(iter::once(begin).chain(large).chain([end])).await;
    assert_eq!(count(&found, DATA), 0, "a call with 1 MiB of headers was served: {found:?}");
    fixture.assert_well("large headers").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_longer_than_allowed_is_not_awaited() {
    needs_root!();
    let fixture = Fixture::new().await;
    for announced in [5 << 20, u32::MAX] {
        let head = [&[0][..], &announced.to_be_bytes()].concat();
        let socket = fixture.daemon.launch().socket();
        let answer = tokio::task::spawn_blocking(move || {
            let headers = call("/csi.v1.Controller/CreateVolume", GRPC);
            Raw::connect(&socket).call_with(1, &headers, &frame(DATA, 0, 1, &head))
        });
        assert_eq!(answer.await.unwrap().first(), Some(&HEADERS), "{announced}");
        fixture.assert_well("a long message").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frame_floods_do_not_affect_other_connections() {
    const FLOOD: u32 = 10_000;
    needs_root!();
    let fixture = Fixture::new().await;

    let pings = (0..1000).map(|number: u64| frame(PING, 0, 0, &number.to_be_bytes()));
    let found = fixture.send(pings).await;
    let answered = found.iter().filter(|it| it.kind == PING && it.flags & ACK != 0).count();
    assert_eq!(answered, 1000, "pings");
    fixture.assert_well("pings").await;

    let headers = call(PROBE, GRPC);
    let resets = (0..FLOOD).map(move |number| {
        let stream = 2 * number + 1;
        [open(stream, &headers), frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
    });
    fixture.send(resets).await;
    fixture.assert_well("resets").await;

    let unread = call("/csi.v1.Controller/ListVolumes", GRPC);
    let half_open = (0..FLOOD).map(move |number| open(2 * number + 1, &unread));
    fixture.send(half_open).await;
    fixture.assert_well("half-open calls").await;

    fixture.send((0..FLOOD).map(|_| frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 1]))).await;
    fixture.assert_well("settings").await;
    fixture.send((0..FLOOD).map(|_| frame(DATA, 0, 1, &[]))).await;
    fixture.assert_well("empty data of no call").await;
    let largest = i32::MAX.to_be_bytes();
    let found = fixture.send((0..2).map(move |_| frame(WINDOW_UPDATE, 0, 0, &largest))).await;
    assert_eq!(count(&found, GOAWAY), 1, "a window without end");
    fixture.assert_well("a window without end").await;
}
