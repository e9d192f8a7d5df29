//! Clients that take something else for the authority of a UNIX socket than the HTTP library does,
//! in frames as they send them.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use orlop_tests::*;

use crate::hostile::raw_http2::{
    AUTHORITY, CALL, CONTENT_TYPE, DATA, GOAWAY, HEADERS, PATH, RST_STREAM, Raw, remembered,
};

/// Twice on one connection, as the second call refers to the headers of the first.
#[track_caller]
fn expect_answers(socket: &Path, authority: &str, method: &str) {
    let mut raw = Raw::connect(socket);
    let first = [
        &CALL[..],
        &remembered(AUTHORITY, authority),
        &remembered(PATH, method),
        &remembered(CONTENT_TYPE, "application/grpc"),
        b"\x40\x02te\x08trailers",
    ];
    let answered = [HEADERS, DATA, HEADERS];
    assert_eq!(raw.call(1, &first.concat()), answered, "{authority:?}");
    let second = [&CALL[..], &[0xc1, 0xc0, 0xbf, 0xbe]].concat();
    assert_eq!(raw.call(3, &second), answered, "{authority:?} again");
}

fn warnings(log: &str) -> Vec<&str> {
    let of_http2 = |line: &&str| line.contains(" WARN ") && line.contains("orlop_csi::http2");
    log.lines().filter(of_http2).collect()
}

/// CSI has no use for it, and the C core, grpc-go and grpc-java send what they like.
#[tokio::test(flavor = "multi_thread")]
async fn any_authority_is_accepted_on_every_socket() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let addons = pool.scratch().join("addons.sock");
    let endpoint = format!("unix://{}", addons.display());
    let registry = pool.scratch().ensure_dir("plugins_registry");
    let launch = Launch::on(&pool).env("ORLOP_ADDONS_ENDPOINT", endpoint);
    let mut daemon = launch.env("ORLOP_REGISTER", &registry).start().await;
    let registration = registry.join("csi.orlop.io-reg.sock");
    while !registration.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let csi = daemon.launch().socket();
    let asked = tokio::task::spawn_blocking(move || {
        for (socket, method) in [
            (&csi, "/csi.v1.Identity/Probe"),
            (&csi, "/csi.v0.Identity/GetPluginInfo"),
            (&addons, "/identity.Identity/Probe"),
            (&registration, "/pluginregistration.Registration/GetInfo"),
        ] {
            let path = "/var/lib/kubelet/plugins/csi.orlop.io/csi.sock";
            for authority in ["localhost", path, "%2Frun%2Fcsi.sock", "", "/", "a b", "\u{1}é"] {
                expect_answers(socket, authority, method);
            }
        }
    });
    asked.await.unwrap();
    daemon.terminate();
    assert_eq!(warnings(&daemon.log()), [""; 0]);
}

/// The HTTP library says it to the peer alone, which may not be able to.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_http_library_refuses_is_logged() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let socket = daemon.launch().socket();
    let refused = tokio::task::spawn_blocking(move || {
        let headers = [&CALL[..], &remembered(PATH, "/csi.v1.Identity/Probe")].concat();
        let keep_alive = [&headers, &b"\x40\x0aconnection\x05close"[..]].concat();
        assert_eq!(Raw::connect(&socket).call(1, &keep_alive), [RST_STREAM]);
        let unknown = [&headers[..], &[0xff, 0x20]].concat();
        assert_eq!(Raw::connect(&socket).call(1, &unknown), [GOAWAY]);
        let mut other = UnixStream::connect(&socket).unwrap();
        other.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let _ = other.read_to_end(&mut Vec::new());
    });
    refused.await.unwrap();
    daemon.terminate();
    let log = daemon.log();
    let pid = format!("pid={}", std::process::id());
    let lines = warnings(&log);
    for what in ["PROTOCOL_ERROR", "not in the table", "something other than HTTP/2"] {
        let said = lines.iter().any(|line| line.contains(what) && line.contains(&pid));
        assert!(said, "{what}: {lines:?}");
    }
}
