//! Connections of every kind at once, and more than there may be.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use orlop_tests::*;

use crate::hostile::raw_http2::{
    DATA, END_HEADERS, HEADERS, PREFACE, RST_STREAM, Raw, SETTINGS, call, frame,
};

/// Reached only by what never happens.
const TIMEOUT: Duration = Duration::from_secs(60);
const AT_ONCE: usize = 200;
const TOLERATED: u64 = 256 * MIB;
/// How often a served client does all that it does while the others are there.
const ROUNDS: usize = 3;
const GRPC: &str = "application/grpc";

#[derive(Clone, Copy)]
enum Kind {
    Silent,
    HalfPreface,
    OtherProtocol,
    HalfHeader,
    SlowBody,
    Reset,
    Gone,
}

const KINDS: [Kind; 7] = [
    Kind::Silent,
    Kind::HalfPreface,
    Kind::OtherProtocol,
    Kind::HalfHeader,
    Kind::SlowBody,
    Kind::Reset,
    Kind::Gone,
];

impl Kind {
    /// What it says at once.
    fn words(self) -> Vec<u8> {
        let greeting = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
        let headers = call("/csi.v1.Controller/CreateVolume", GRPC);
        let headers = frame(HEADERS, END_HEADERS, 1, &headers);
        // A message of 64 bytes is announced; its length and no more is there.
        let body = frame(DATA, 0, 1, &[0, 0, 0, 0, 64]);
        match self {
            Self::Silent => Vec::new(),
            Self::HalfPreface => PREFACE[..10].to_vec(),
            Self::OtherProtocol => b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
            Self::HalfHeader => [&greeting, &headers[..headers.len() / 2]].concat(),
            Self::SlowBody => [greeting, headers, body].concat(),
            Self::Reset => {
                let reset = frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes());
                [greeting, headers, reset].concat()
            }
            Self::Gone => [&greeting, &*headers, &body[..body.len() / 2]].concat(),
        }
    }

    /// Connects when all do, and stays until it is enough. The daemon may hang up before.
    fn visit(self, socket: &Path, storm: &Load) {
        storm.all.wait();
        let mut stream = UnixStream::connect(socket).expect("the socket listens");
        let _ = stream.write_all(&self.words());
        storm.arrived.fetch_add(1, Ordering::AcqRel);
        while !storm.is_over.load(Ordering::Acquire) && !matches!(self, Self::Gone) {
            if matches!(self, Self::SlowBody) {
                let _ = stream.write_all(&frame(DATA, 0, 1, b"\0"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

struct Load {
    all: Barrier,
    arrived: AtomicUsize,
    is_over: AtomicBool,
}

/// Its threads end with it.
struct Clients {
    storm: Arc<Load>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    async fn arrive(socket: &Path) -> Self {
        let storm = Arc::new(Load {
            all: Barrier::new(AT_ONCE),
            arrived: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let kinds = KINDS.iter().copied().cycle().take(AT_ONCE);
        let visits = kinds.map(|kind| {
            let (socket, storm) = (socket.to_owned(), Arc::clone(&storm));
            std::thread::spawn(move || kind.visit(&socket, &storm))
        });
        let visitors = Self { threads: visits.collect(), storm };
        let deadline = Instant::now() + TIMEOUT;
        while visitors.storm.arrived.load(Ordering::Acquire) < AT_ONCE {
            assert!(Instant::now() < deadline, "some cannot connect");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        visitors
    }

    fn leave(mut self) {
        self.storm.is_over.store(true, Ordering::Release);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.storm.is_over.store(true, Ordering::Release);
    }
}

/// On a new connection each time, and on one that it had before.
async fn is_served(early: &Client, daemon: &Daemon, volume: &v1::Volume) {
    let late = daemon.client();
    for client in [early, &late] {
        assert!(client.probe().await.unwrap());
        let made = client.create("another").size(MIB).block().done().await;
        client.delete(&made.volume_id).await.unwrap();
        let node = client.on_node(volume, block());
        node.up().await;
        node.down().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mixed_connections_do_not_delay_clients() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("v").size(MIB).block().done().await;
    let before = (descriptors(daemon.pid()), resident_bytes(daemon.pid()));
    let visitors = Clients::arrive(&daemon.launch().socket()).await;
    for _ in 0..ROUNDS {
        let served = tokio::time::timeout(TIMEOUT, is_served(&client, &daemon, &volume)).await;
        served.expect("a client is not served");
    }
    visitors.leave();
    let deadline = Instant::now() + TIMEOUT;
    while descriptors(daemon.pid()) > before.0 + 4 {
        let open = descriptors(daemon.pid());
        assert!(Instant::now() < deadline, "{} descriptors before, {open} after", before.0);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let resident = resident_bytes(daemon.pid());
    assert!(resident < before.1 + TOLERATED, "{} bytes became {resident}", before.1);
    daemon.terminate();
    assert!(!daemon.log().contains("panic"), "{}", daemon.log_end());
}

/// Has the daemon hung up?
fn is_closed(stream: &mut UnixStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.read(&mut [0; 64]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// A daemon that may open 400 files has at most 100 connections on a socket.
#[tokio::test(flavor = "multi_thread")]
async fn longest_idle_connections_are_closed_beyond_the_limit() {
    const LIMIT: usize = 100;
    const BEYOND: usize = 60;
    /// Of the daemon's start, some may still be counted.
    const OTHERS: usize = 5;
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let few = ["/bin/sh", "-c", "ulimit -n 400 && exec \"$@\"", "sh"];
    let mut daemon = Launch::on(&pool).run_by(&few).start().await;
    let socket: PathBuf = daemon.launch().socket();
    let connecting = tokio::task::spawn_blocking(move || {
        let probe = call("/csi.v1.Identity/Probe", GRPC);
        // It was there before all others, and is heard of now and then.
        let mut talking = Raw::connect(&socket);
        let mut silent = Vec::new();
        for turn in (1..).step_by(2).take(8) {
            assert!(talking.call(turn, &probe).ends_with(&[DATA, HEADERS]), "turn {turn}");
            let newcomers =
                (0..(LIMIT + BEYOND) / 8).map(|_| UnixStream::connect(&socket).unwrap());
            silent.extend(newcomers);
        }
        assert!(talking.call(17, &probe).ends_with(&[DATA, HEADERS]), "the last turn");
        silent
    });
    let mut silent = connecting.await.unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while let Some(first) = silent[..BEYOND].iter_mut().position(|stream| !is_closed(stream)) {
        assert!(Instant::now() < deadline, "{first}, one of the first, is still connected");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let closed = silent[BEYOND + OTHERS..].iter_mut().position(is_closed);
    assert_eq!(closed, None, "one of the last was sent away");
    drop(silent);
    daemon.terminate();
}

/// Each waits for its caller's next question, for as long as the caller likes.
#[tokio::test(flavor = "multi_thread")]
async fn open_reflection_streams_do_not_lock_others_out() {
    const CONNECTIONS: usize = 150;
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let few = ["/bin/sh", "-c", "ulimit -n 400 && exec \"$@\"", "sh"];
    let mut daemon = Launch::on(&pool).run_by(&few).start().await;
    let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let headers = frame(HEADERS, END_HEADERS, 1, &call(path, GRPC));
    // One message, which asks for a list of the services.
    let question = frame(DATA, 0, 1, &[0, 0, 0, 0, 2, 0x3a, 0]);
    let words = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &headers, &question].concat();
    let socket: PathBuf = daemon.launch().socket();
    let connect = || {
        let mut stream = UnixStream::connect(&socket).unwrap();
        // The daemon may have closed it already.
        let _ = stream.write_all(&words);
        stream
    };
    let streams: Vec<UnixStream> = (0..CONNECTIONS).map(|_| connect()).collect();
    let probed = tokio::time::timeout(TIMEOUT, async {
        while !daemon.client().probe().await.unwrap_or(false) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    probed.await.expect("no client can connect");
    drop(streams);
    daemon.terminate();
}
