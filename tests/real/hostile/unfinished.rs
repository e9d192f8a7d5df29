//! Large messages that begin to arrive and never end.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use orlop_tests::*;

use crate::hostile::raw_http2::{
    DATA, END_HEADERS, HEADERS, PREFACE, SETTINGS, WINDOW_UPDATE, call, frame,
};

/// As many as one connection may have.
const CALLS: u32 = 256;
/// The most that a message may have.
const MESSAGE: u32 = 4 << 20;
/// What is sent of it: less than a call may send without being asked for more.
const SENT: usize = 960 << 10;
const PIECE: i64 = 16 << 10;
/// What a connection may send without being asked for more.
const FIRST_WINDOW: i64 = 65_535;
/// The largest part of the 256 MiB that docs/deploy/requirements.md recommends.
const TOLERATED: u64 = 64 * MIB;

struct Flood {
    stream: UnixStream,
    /// What the connection may still send.
    window: Arc<AtomicI64>,
}

impl Flood {
    fn connect(socket: &Path) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).unwrap();
        let window = Arc::new(AtomicI64::new(FIRST_WINDOW));
        let (mut answers, more) = (stream.try_clone().unwrap(), Arc::clone(&window));
        std::thread::spawn(move || read_windows(&mut answers, &more));
        Self { stream, window }
    }

    /// Each call announces its message and sends a part of it. `None`: the daemon has hung up.
    fn send(&mut self, method: &str) -> Option<()> {
        for number in 0..CALLS {
            let stream = 2 * number + 1;
            let head = [&[0], MESSAGE.to_be_bytes().as_slice()].concat();
            let headers = call(method, "application/grpc");
            let begin = frame(HEADERS, END_HEADERS, stream, &headers);
            self.stream.write_all(&[begin, frame(DATA, 0, stream, &head)].concat()).ok()?;
        }
        for _ in 0..SENT / usize::try_from(PIECE).unwrap() {
            for number in 0..CALLS {
                self.wait_for_window()?;
                let piece = vec![0; usize::try_from(PIECE).unwrap()];
                self.stream.write_all(&frame(DATA, 0, 2 * number + 1, &piece)).ok()?;
            }
        }
        Some(())
    }

    /// `None`: the daemon takes no more.
    fn wait_for_window(&self) -> Option<()> {
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.window.load(Ordering::SeqCst) < PIECE {
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.window.fetch_sub(PIECE, Ordering::SeqCst);
        Some(())
    }
}

/// Until the connection ends.
fn read_windows(stream: &mut UnixStream, window: &AtomicI64) {
    let mut head = [0; 9];
    while stream.read_exact(&mut head).is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        if stream.read_exact(&mut payload).is_err() {
            return;
        }
        if head[3] == WINDOW_UPDATE && head[5..] == [0; 4] {
            let more = u32::from_be_bytes(payload.try_into().unwrap());
            window.fetch_add(i64::from(more), Ordering::SeqCst);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_do_not_end_take_bounded_memory() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let before = peak_resident_bytes(daemon.pid());
    for method in ["/csi.v1.Identity/Probe", "/csi.v1.Controller/CreateVolume"] {
        let socket = daemon.launch().socket();
        let flooding = tokio::task::spawn_blocking(move || {
            let mut flood = Flood::connect(&socket);
            // However far it gets: what counts is what the daemon keeps of it.
            let _ = flood.send(method);
            flood
        });
        let flood = flooding.await.unwrap();
        assert!(client.probe().await.unwrap(), "{method}: other calls are not answered");
        let volume = client.create("v").size(MIB).block().done().await;
        client.delete(&volume.volume_id).await.unwrap();
        drop(flood);
        let peak = peak_resident_bytes(daemon.pid());
        report(&format!("{method}: peak before {} MiB, then {} MiB", before / MIB, peak / MIB));
        assert!(peak < before + TOLERATED, "{method}: {before} bytes became {peak}");
    }
}
