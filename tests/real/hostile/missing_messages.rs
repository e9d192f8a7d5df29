//! Calls whose headers come and whose messages never do.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use orlop_tests::*;

/// Reached only by what never happens.
const TIMEOUT: Duration = Duration::from_secs(120);
/// As many as one connection may have.
const CALLS: u32 = 256;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const END_OF_HEADERS: u8 = 4;
const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// A client that says no more than it is asked to.
struct RawClient {
    stream: UnixStream,
    next_call: u32,
}

impl RawClient {
    fn connect(socket: &Path) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(PREFACE).unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
        Self { stream, next_call: 1 }
    }

    fn begin_call(&mut self) -> u32 {
        let call = self.next_call;
        self.next_call += 2;
        self.stream.write_all(&frame(HEADERS, END_OF_HEADERS, call, &headers())).unwrap();
        call
    }

    fn cancel(&mut self, call: u32) {
        self.stream.write_all(&frame(RESET, 0, call, &CANCEL)).unwrap();
    }

    /// Until all that was sent has been read.
    fn settle(&mut self) {
        self.stream.write_all(&frame(PING, 0, 0, &[0; 8])).unwrap();
        self.wait_for(PING, 0);
    }

    /// Until such a frame has come.
    fn wait_for(&mut self, kind: u8, call: u32) {
        let mut head = [0; 9];
        loop {
            self.stream.read_exact(&mut head).expect("no answer");
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut rest = vec![0; usize::try_from(length).unwrap()];
            self.stream.read_exact(&mut rest).unwrap();
            if head[3] == kind && head[5..] == call.to_be_bytes() {
                return;
            }
        }
    }
}

fn frame(kind: u8, flags: u8, call: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head, call.to_be_bytes().as_slice(), payload].concat()
}

/// As HPACK writes them without a dynamic table.
fn headers() -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let mut all = vec![0x83, 0x86];
    all.extend([vec![0x04], text("/csi.v1.Controller/CreateVolume")].concat());
    all.extend([vec![0x01], text("localhost")].concat());
    all.extend([vec![0x00], text("content-type"), text("application/grpc")].concat());
    all.extend([vec![0x00], text("te"), text("trailers")].concat());
    all
}

fn crowd(socket: &Path, connections: u32, calls: u32) -> Vec<RawClient> {
    let mut crowd: Vec<_> = (0..connections).map(|_| RawClient::connect(socket)).collect();
    for client in &mut crowd {
        for _ in 0..calls {
            client.begin_call();
        }
    }
    crowd
}

async fn until_logged(daemon: &Daemon, line: &str, times: usize) {
    let deadline = Instant::now() + TIMEOUT;
    while daemon.log().matches(line).count() < times {
        assert!(Instant::now() < deadline, "not {times} times: {line:?} in {}", daemon.log_end());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// It is the callers' affair, and an administrator need not look.
fn assert_nothing_worried(daemon: &Daemon) {
    let log = daemon.log();
    let of_calls = || log.lines().filter(|line| line.contains("CreateVolume"));
    assert!(of_calls().any(|line| line.contains(" INFO ")), "{log}");
    let is_worried = |line: &&str| line.contains(" ERROR ") || line.contains(" WARN ");
    assert_eq!(of_calls().find(is_worried), None);
}

/// Far more than are taken on at once, and their places are for those who send messages.
#[tokio::test(flavor = "multi_thread")]
async fn calls_without_messages_hold_no_permits() {
    const CONNECTIONS: u32 = 6;
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let mut silent = crowd(&daemon.launch().socket(), CONNECTIONS, CALLS);
    silent.iter_mut().for_each(RawClient::settle);
    // So that most likely all of them have begun. If they have not, the test says less, and passes.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let served = ["a", "b", "c", "d", "e", "f"].map(|name| {
        let create = client.create(name).size(MIB).block();
        tokio::spawn(async move { create.done().await })
    });
    for call in served {
        client.delete(&call.await.unwrap().volume_id).await.unwrap();
    }
    // None of them lasts for longer than a message may take.
    for client in &mut silent {
        client.wait_for(HEADERS, 1);
    }
    let all = usize::try_from(CONNECTIONS * CALLS).unwrap();
    until_logged(&daemon, "DEADLINE_EXCEEDED", all).await;
    assert_nothing_worried(&daemon);
    client.create("last").size(MIB).block().done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_messages_hold_no_connections() {
    /// More than there may be.
    const CONNECTIONS: u32 = 600;
    needs_root!();
    allow_descriptors(u64::from(CONNECTIONS) + 1000);
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let _silent = crowd(&daemon.launch().socket(), CONNECTIONS, 1);
    let late = daemon.client();
    late.create("late").size(MIB).block().done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_may_disconnect_before_its_message() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let socket = daemon.launch().socket();
    let mut called_off = RawClient::connect(&socket);
    for times in 1..=3 {
        let call = called_off.begin_call();
        called_off.cancel(call);
        until_logged(&daemon, "CANCELLED", times).await;
    }
    for times in 4..=6 {
        let mut gone = RawClient::connect(&socket);
        gone.begin_call();
        gone.settle();
        drop(gone);
        until_logged(&daemon, "CANCELLED", times).await;
    }
    assert_nothing_worried(&daemon);
}
