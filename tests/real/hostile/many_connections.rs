//! Very many of them at once.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use orlop_tests::*;

const CROWD: u32 = 10_000;
/// A connection that says nothing costs some KiB, and most of them are not kept.
const TOLERATED: u64 = 256 * MIB;
/// Fewer than a process usually may have; those who were just sent away count for a moment.
const MAX_DESCRIPTORS: usize = 1000;

/// Reached only if no connection is closed.
const TIMEOUT: Duration = Duration::from_secs(120);

const RESET: std::io::ErrorKind = std::io::ErrorKind::ConnectionReset;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty SETTINGS frame: the handshake is done, and nothing follows.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Connections of which some say nothing, some break off in the middle of the greeting, and some
/// greet and say no more.
fn crowd(socket: &Path) -> Vec<UnixStream> {
    let greeting = [PREFACE, SETTINGS].concat();
    let connections = (0..CROWD).map(|number| {
        let mut stream = UnixStream::connect(socket).expect("the socket listens");
        let said = match number % 3 {
            0 => &[],
            1 => &PREFACE[..10],
            _ => greeting.as_slice(),
        };
        // It may have been sent away already.
        let _ = stream.write_all(said);
        stream
    });
    connections.collect()
}

/// Who was sent away is let go a moment later.
async fn settled_descriptors(daemon: u32) -> usize {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let open = descriptors(daemon);
        if open < MAX_DESCRIPTORS || Instant::now() >= deadline {
            return open;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// As a caller does that finds the queue of the socket full.
async fn until_connected(client: &Client) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match client.probe().await {
            Ok(ready) => return assert!(ready),
            Err(status) if Instant::now() < deadline => {
                assert_eq!(status.code(), Code::Unavailable, "{status}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(status) => panic!("{status}"),
        }
    }
}

/// OP-21, and a caller that comes late is answered as one that was early.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_idle_connections_do_not_block_calls() {
    needs_root!();
    allow_descriptors(u64::from(CROWD) + 2000);
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let early = daemon.client();
    let volume = early.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = early.on_node(&volume, mount("ext4"));
    let before = resident_bytes(daemon.pid());

    let socket = daemon.launch().socket();
    let mut waiting = tokio::task::spawn_blocking(move || crowd(&socket)).await.unwrap();
    let resident = resident_bytes(daemon.pid());
    let open = settled_descriptors(daemon.pid()).await;
    report(&format!(
        "{CROWD} idle connections: {open} descriptors, {} MiB before, {} MiB with them",
        before / MIB,
        resident / MIB
    ));
    assert!(resident < before + TOLERATED, "{before} bytes became {resident}");
    assert!(open < MAX_DESCRIPTORS, "{open} descriptors");

    let late = daemon.client();
    // The listener's queue may still be full of the others.
    until_connected(&late).await;
    late.create("late").size(MIB).block().done().await;
    node.up().await;
    node.down().await;

    // Those who were silent for longest have gone.
    let mut first = waiting.swap_remove(0);
    first.set_read_timeout(Some(TIMEOUT)).unwrap();
    let reading = tokio::task::spawn_blocking(move || first.read_to_end(&mut Vec::new()));
    let ended = reading.await.unwrap().map_or_else(|error| error.kind() == RESET, |_| true);
    assert!(ended, "the first one is still connected");
    drop(waiting);
    daemon.terminate();
}

/// Of a pool that this daemon does not serve.
const ELSEWHERE: &str = "v-ffffffff-00112233445566778899aabbccddeeff";

/// What a deletion there is answered with.
fn not_served(deleted: Result<(), Status>) -> Result<(), Status> {
    match deleted {
        Err(status) if status.code() == Code::FailedPrecondition => Ok(()),
        Err(status) => Err(status),
        Ok(()) => panic!("deleted on a pool that is not served"),
    }
}

/// Far more calls than run at once, on several connections: each is answered, with what was asked
/// for or with "try again", and a prober is not kept waiting by them.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_concurrent_calls_are_answered() {
    const CALLS: usize = 5_000;
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let before = resident_bytes(daemon.pid());
    let clients: Vec<_> = (0..20).map(|_| daemon.client()).collect();
    let calls: Vec<_> = (0..CALLS)
        .map(|number| {
            let client = clients[number % clients.len()].clone();
            tokio::spawn(async move {
                match number % 4 {
                    0 => {
                        let create = client.create(&format!("v{}", number % 50)).size(MIB).block();
                        create.send().await.map(drop)
                    }
                    1 => client.list_volumes().await.map(drop),
                    2 => not_served(client.delete(ELSEWHERE).await),
                    _ => client.capacity().await.map(drop),
                }
            })
        })
        .collect();
    let prober = daemon.client();
    let probed = tokio::time::timeout(TIMEOUT, prober.probe()).await;
    assert!(probed.expect("a probe waits for the flood").unwrap());
    let (mut done, mut put_off) = (0, 0);
    for call in calls {
        match call.await.unwrap() {
            Ok(()) => done += 1,
            Err(status) => {
                let code = status.code();
                // The last one, as this process may be too slow for its own messages.
                let again = [Code::Aborted, Code::Unavailable, Code::DeadlineExceeded];
                assert!(again.contains(&code) && !is_connection_lost(&status), "{status}");
                put_off += 1;
            }
        }
    }
    let after = resident_bytes(daemon.pid());
    report(&format!(
        "{CALLS} calls at once: {done} done, {put_off} put off, {} MiB before, {} MiB after",
        before / MIB,
        after / MIB
    ));
    assert!(done > 0);
    assert!(after < before + TOLERATED, "{before} bytes became {after}");
    assert_eq!(daemon.client().list_volumes().await.unwrap().len(), pool.entries("volumes").len());
}
