#![allow(clippy::unwrap_used)]

use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc;
use std::thread;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Beyond the backlog.
const CONNECTIONS: usize = 50;

/// In a thread, as it may hang.
fn connect_to(path: &Path) -> Option<UnixStream> {
    let (sender, connected) = mpsc::channel();
    let path = path.to_owned();
    thread::spawn(move || sender.send(UnixStream::connect(path)));
    connected.recv_timeout(Duration::from_millis(500)).ok().map(|it| it.unwrap())
}

#[test]
fn a_daemon_that_takes_no_connection_is_there_all_the_same() {
    let path = std::env::temp_dir().join(format!("orlop-answers-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let held: Vec<_> = (0..CONNECTIONS).map_while(|_| connect_to(&path)).collect();
    assert!(held.len() < CONNECTIONS, "the backlog is never full");
    let (sender, answered) = mpsc::channel();
    let socket = path.clone();
    thread::spawn(move || sender.send(answers(&socket)));
    assert_eq!(answered.recv_timeout(TIMEOUT), Ok(true));
    drop(listener);
    assert!(!answers(&path), "the socket of one that has ended");
    std::fs::remove_file(&path).unwrap();
    assert!(!answers(&path));
}
