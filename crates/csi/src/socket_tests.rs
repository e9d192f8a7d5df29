#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use super::*;

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn only_the_owner_can_connect_and_the_directory_is_made() {
    let directory = temporary();
    let path = directory.path().join("a/b/csi.sock");
    let socket = bind(&path).unwrap();
    let mode = |path: &Path| symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()) & !0o750, 0);
    UnixStream::connect(socket.path()).unwrap();
}

#[test]
fn socket_is_alone_in_its_directory_and_removed_at_exit() {
    let directory = temporary();
    let path = directory.path().join("csi.sock");
    let socket = bind(&path).unwrap();
    let names: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["csi.sock"]);
    drop(socket);
    assert!(!path.exists());
}

#[test]
fn a_live_socket_is_not_taken() {
    let directory = temporary();
    let path = directory.path().join("csi.sock");
    let first = bind(&path).unwrap();
    assert!(matches!(bind(&path), Err(BindError::Live(_))));
    UnixStream::connect(first.path()).unwrap();
}

#[test]
fn live_socket_that_accepts_nothing_is_not_taken() {
    let directory = temporary();
    let path = directory.path().join("csi.sock");
    let socket = new_socket().unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&socket, 0).unwrap();
    let _fills_the_backlog = UnixStream::connect(&path).unwrap();
    assert!(matches!(bind(&path), Err(BindError::Live(_))));
}

#[test]
fn a_dead_socket_is_replaced() {
    let directory = temporary();
    let path = directory.path().join("csi.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let _socket = bind(&path).unwrap();
    UnixStream::connect(&path).unwrap();
}

#[test]
fn file_that_is_no_socket_is_left_alone() {
    let directory = temporary();
    let file = directory.path().join("file.sock");
    std::fs::write(&file, "precious").unwrap();
    let link = directory.path().join("link.sock");
    std::os::unix::fs::symlink("elsewhere.sock", &link).unwrap();
    for path in [&file, &link] {
        assert!(matches!(bind(path), Err(BindError::NotASocket(_))));
        assert!(symlink_metadata(path).is_ok());
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

#[test]
fn invalid_socket_paths_are_refused() {
    let long = format!("/tmp/{}.sock", "x".repeat(120));
    for path in ["relative.sock", &long] {
        assert!(matches!(bind(Path::new(path)), Err(BindError::BadPath(_))), "{path}");
    }
}

#[test]
fn old_daemon_leaves_the_socket_of_its_successor() {
    let directory = temporary();
    let path = directory.path().join("csi.sock");
    let mut old = bind(&path).unwrap();
    drop(old.take_listener());
    let new = bind(&path).unwrap();
    drop(old);
    UnixStream::connect(new.path()).unwrap();
}

#[test]
fn waiting_for_a_foreign_lock_is_bounded() {
    let directory = temporary();
    let path = directory.path().join("csi.sock");
    let lock = lock_directory(directory.path(), LOCK_TIMEOUT).unwrap().unwrap();
    let refused = bind_within(&path, Duration::from_millis(50)).unwrap_err();
    let named = format!("a lock on its directory {};", directory.path().display());
    assert!(refused.to_string().contains(&named), "{refused}");
    assert!(!path.exists());
    drop(lock);
    let socket = bind(&path).unwrap();
    let _lock = lock_directory(directory.path(), LOCK_TIMEOUT).unwrap().unwrap();
    drop(socket);
    assert!(!path.exists());
}
