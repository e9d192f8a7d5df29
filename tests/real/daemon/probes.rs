//! Liveness and readiness for what speaks no gRPC: HTTP, and `orlop probe`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use orlop_tests::*;
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use crate::daemon::hung::{Frozen, on_pool, until};
use crate::daemon::misconfigured::refused;

/// Far more than an answer takes; reached only by a daemon that hangs.
const TIMEOUT: Duration = Duration::from_secs(120);

/// An address of this test alone.
fn address() -> SocketAddr {
    let mut random = Rng::new();
    SocketAddr::from((Ipv4Addr::new(127, random.u8(1..255), random.u8(1..255), 3), 7421))
}

/// The code and the text of an answer.
async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> (u16, String) {
    let talking = async {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The daemon closes the connection after each answer; it may leave a body unread.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    };
    let answer = tokio::time::timeout(TIMEOUT, talking).await.expect("no answer");
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    (code.unwrap_or_else(|| panic!("{answer:?}")), body.trim_end().to_owned())
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let stream = TcpStream::connect(address).await.unwrap();
    converse(stream, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await
}

fn ok() -> (u16, String) {
    (200, "ok".to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_daemon_says_so_over_http() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let address = address();
    let launch = Launch::on(&pool).env("ORLOP_HEALTH_LISTEN", address.to_string());
    let mut daemon = launch.start().await;
    for path in ["/healthz", "/readyz", "/readyz?verbose"] {
        assert_eq!(get(address, path).await, ok(), "{path}");
    }
    assert_eq!(get(address, "/").await.0, 404);
    for (request, code) in [
        ("HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), 200),
        ("GET /healthz HTTP/1.0\r\n\r\n".to_owned(), 200),
        ("POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".to_owned(), 405),
        ("GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n".to_owned(), 413),
        (format!("GET /healthz HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 16)), 431),
    ] {
        let stream = TcpStream::connect(address).await.unwrap();
        assert_eq!(converse(stream, &request).await.0, code, "{request:.60}");
    }
    daemon.terminate();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_serves_the_same() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let socket = pool.scratch().join("health.sock");
    let flag = format!("unix://{}", socket.display());
    let mut daemon = Launch::on(&pool).arg("--health-listen").arg(flag).start().await;
    let stream = UnixStream::connect(&socket).await.unwrap();
    assert_eq!(converse(stream, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n").await, ok());
    daemon.terminate();
    assert!(!socket.exists());
}

/// A restart brings no pool back, so the daemon is alive; and says why it is not ready.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_pool_the_daemon_lives_and_is_not_ready() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let address = address();
    let mut daemon = Launch::on(&pool)
        .env("ORLOP_POOL", pool.path.join("missing"))
        .env("ORLOP_POOL_CREATE", "false")
        .env("ORLOP_HEALTH_LISTEN", address.to_string())
        .idle();
    daemon.start_again();
    until("it answers", || async { daemon.client().probe().await.is_ok() }).await;
    until("the reason is known", || async {
        let (code, why) = get(address, "/readyz").await;
        assert_eq!(code, 503, "{why}");
        why.starts_with("not ready: ") && why.contains("pool default")
    })
    .await;
    assert_eq!(get(address, "/healthz").await, ok());
    let launch = daemon.launch();
    assert_eq!(launch.run(&["probe"]).status.code(), Some(0));
    let ran = launch.run(&["probe", "--ready"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(ran.stderr.contains("not ready: ") && ran.stderr.contains("pool default"), "{ran:?}");
}

/// Its only pool is frozen, with calls that wait in the kernel.
#[tokio::test(flavor = "multi_thread")]
async fn a_hung_pool_does_not_make_the_daemon_look_dead() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let address = address();
    let launch = Launch::on(&pool).env("ORLOP_HEALTH_LISTEN", address.to_string());
    let daemon = launch.start().await;
    let client = daemon.client();
    let frozen = Frozen::new(&pool);
    let hung = tokio::spawn(on_pool(&client, "hung", "default").send());
    let mut codes = Vec::new();
    until("it is not ready", || async {
        assert_eq!(get(address, "/healthz").await, ok());
        get(address, "/readyz").await.0 == 503
    })
    .await;
    codes.push(get(address, "/healthz").await);
    drop(frozen);
    until("it is ready", || async { get(address, "/readyz").await == ok() }).await;
    assert_eq!(codes, [ok()]);
    let volume = hung.await.unwrap();
    if let Ok(volume) = volume {
        client.delete(&volume.volume_id).await.unwrap();
    }
}

/// Connections that say nothing are closed for those that do.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_keep_no_probe_out() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let address = address();
    let launch = Launch::on(&pool).env("ORLOP_HEALTH_LISTEN", address.to_string());
    let daemon = launch.start().await;
    let before = descriptors(daemon.pid());
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    assert_eq!(get(address, "/healthz").await, ok());
    let more = descriptors(daemon.pid()).saturating_sub(before);
    assert!(more < 100, "{more} more descriptors");
    // The last of them is not waited for without an end either.
    let mut last = silent.pop().unwrap();
    last.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    let ended = tokio::time::timeout(TIMEOUT, last.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok(), "a connection without a request stays open");
}

#[tokio::test(flavor = "multi_thread")]
async fn orlop_probe_fails_unless_a_daemon_answers() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let launch = daemon.launch().clone();
    for words in [&["probe"][..], &["probe", "--ready"], &["probe", "--timeout", "60"]] {
        let ran = launch.run(words);
        assert_eq!(ran.status.code(), Some(0), "{words:?}: {}", ran.stderr);
    }
    let failed = |words: &[&str], code: i32, why: &str| {
        let ran = launch.run(words);
        assert_eq!(ran.status.code(), Some(code), "{words:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(why), "{words:?}: {}", ran.stderr);
    };
    daemon.signal(Signal::STOP);
    failed(&["probe", "--timeout", "1"], 1, "has not answered within 1s");
    daemon.signal(Signal::CONT);
    daemon.terminate();
    failed(&["probe"], 1, "is it running?");
    failed(&["probe", "--ready", "--endpoint", "unix:///nowhere/csi.sock"], 1, "/nowhere/csi.sock");
    failed(&["probe", "--endpoint", "tcp://127.0.0.1:1"], 2, "CSI_ENDPOINT");
    let ran = launch.without_env("CSI_ENDPOINT").run(&["probe"]);
    assert_eq!(ran.status.code(), Some(2), "{}", ran.stderr);
}

/// A router has no pool, and is ready when a peer is.
#[tokio::test(flavor = "multi_thread")]
async fn a_router_without_peers_lives_and_is_not_ready() {
    needs_root!();
    let address = address();
    let launch = Launch::without_pool().env("ORLOP_NODE_ID", "router").env("ORLOP_MODE", "router");
    let files = Authority::new().issue("router", &launch.scratch().ensure_dir("tls"));
    let launch = files.into_iter().fold(launch, |launch, (name, file)| launch.env(name, file));
    let mut daemon = launch
        .env("ORLOP_PEERS", "127.0.0.1:1")
        .env("ORLOP_HEALTH_LISTEN", address.to_string())
        .idle();
    daemon.start_again();
    until("it answers", || async { daemon.client().probe().await.is_ok() }).await;
    until("it has looked for its peers", || async {
        let (code, why) = get(address, "/readyz").await;
        code == 503 && why.contains("no peer")
    })
    .await;
    assert_eq!(get(address, "/healthz").await, ok());
    assert_eq!(daemon.launch().run(&["probe"]).status.code(), Some(0));
    assert_eq!(daemon.launch().run(&["probe", "--ready"]).status.code(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_cannot_work_is_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let with = |value: &str| Launch::on(&pool).env("ORLOP_HEALTH_LISTEN", value);
    refused(&with("7421"), "ORLOP_HEALTH_LISTEN");
    let inside = format!("unix://{}/health.sock", pool.path.display());
    refused(&with(&inside), "ORLOP_HEALTH_LISTEN");
    let csi = format!("unix://{}", Launch::on(&pool).socket().display());
    refused(&with(&csi), "ORLOP_HEALTH_LISTEN");
    let address = address();
    let _other = TcpListener::bind(address).await.unwrap();
    let ended = with(&address.to_string()).run_to_end();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.output);
    assert!(ended.output.contains("ORLOP_HEALTH_LISTEN: cannot listen at"), "{}", ended.output);
    assert!(!Path::new(&Launch::on(&pool).socket()).exists());
}
