//! The UNIX socket: made without a moment of wider permissions, never taken from a live
//! daemon, and removed by the process that made it.

use std::fs::{DirBuilder, File, symlink_metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock, fstat, lstat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, listen, socket_with,
};

/// Connections that the kernel holds until they are accepted, without descriptors of this process; one more
/// gets EAGAIN.
const BACKLOG: i32 = 1024;

/// Daemons hold the lock on the directory for a moment only. Longer, another program has it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// The same during a stop, which must not take long.
const STOP_LOCK_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("{0} is in use: another daemon answers there; stop it, or choose another endpoint")]
    Live(PathBuf),

    #[error("{0} exists and is not a socket; remove it, or choose another endpoint")]
    NotASocket(PathBuf),

    #[error(
        "{0} is not a path that a socket can have; it takes an absolute one of at most 107 bytes"
    )]
    BadPath(PathBuf),

    #[error(
        "cannot make the socket {path}: another program holds a lock on its directory {directory}; \
         end that program, or choose another endpoint"
    )]
    Locked { path: PathBuf, directory: PathBuf },

    #[error("cannot make the socket {path}: {source}")]
    Failed { path: PathBuf, source: io::Error },
}

/// A socket that listens. Dropped, it takes its file with it, unless the file is no longer its.
#[derive(Debug)]
pub struct Socket {
    listener: Option<UnixListener>,
    path: PathBuf,
    /// The file that was made. Held, because the inode number of a removed file is soon that of
    /// the next one.
    file: Arc<OwnedFd>,
}

impl Socket {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Is the file that was made still the one by which callers find the socket? May block.
    pub(crate) fn presence(&self) -> impl FnOnce() -> bool + Send + use<> {
        let (file, path) = (Arc::clone(&self.file), self.path.clone());
        move || is_same_file(&file, &path)
    }

    /// Takes the listener out; the file stays until the rest is dropped.
    pub fn take_listener(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Under the lock, so that a successor cannot put its own socket there between the check and the
        // removal. If the lock is not available, a successor cannot take it either.
        let directory = self.path.parent();
        let _lock = directory.map(|directory| lock_directory(directory, STOP_LOCK_TIMEOUT));
        if is_same_file(&self.file, &self.path)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

/// Makes the socket, and the directory for it if that is missing. A socket that no process answers
/// on is replaced.
pub fn bind(path: &Path) -> Result<Socket, BindError> {
    bind_within(path, LOCK_TIMEOUT)
}

fn bind_within(path: &Path, timeout: Duration) -> Result<Socket, BindError> {
    let failed = |source: io::Error| BindError::Failed { path: path.to_owned(), source };
    let bad_path = || BindError::BadPath(path.to_owned());
    let address = SocketAddrUnix::new(path).map_err(|_| bad_path())?;
    let directory = path.parent().filter(|_| path.is_absolute()).ok_or_else(bad_path)?;
    ensure_directory(directory).map_err(failed)?;

    // Held while we look and bind, so that of two daemons that find a dead socket, one does not
    // remove what the other has just made.
    let lock = lock_directory(directory, timeout).map_err(failed)?;
    let _lock = lock.ok_or_else(|| BindError::Locked {
        path: path.to_owned(),
        directory: directory.to_owned(),
    })?;

    ensure_no_dead_socket(path, &address)?;
    let listener = listen_at(&address).map_err(|errno| failed(errno.into()))?;
    let file = open_itself(path).map_err(|errno| failed(errno.into()))?;
    Ok(Socket { listener: Some(listener), path: path.to_owned(), file: Arc::new(file) })
}

/// Would [`bind`] refuse this path whatever else runs? Changes nothing. A daemon that answers there may
/// be the one that is to be replaced.
pub fn check(path: &Path) -> Result<(), BindError> {
    SocketAddrUnix::new(path).map_err(|_| BindError::BadPath(path.to_owned()))?;
    match symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => Err(BindError::NotASocket(path.to_owned())),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// A descriptor of the socket's file, not a connection to the process that listens there.
fn open_itself(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

fn is_same_file(file: &OwnedFd, path: &Path) -> bool {
    match (fstat(file), lstat(path)) {
        (Ok(held), Ok(found)) => (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino),
        (Ok(_) | Err(_), _) => false,
    }
}

fn ensure_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o750).create(directory)
}

/// Locks the directory itself, since nothing but the socket may be put there (OP-06).
/// `None`: another program has held the lock all the time.
fn lock_directory(directory: &Path, timeout: Duration) -> io::Result<Option<File>> {
    const POLL_INTERVAL: Duration = Duration::from_millis(5);
    let directory = File::open(directory)?;
    let begun = Instant::now();
    loop {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(directory)),
            Err(Errno::WOULDBLOCK) if begun.elapsed() >= timeout => return Ok(None),
            Err(Errno::WOULDBLOCK) => thread::sleep(POLL_INTERVAL),
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn ensure_no_dead_socket(path: &Path, address: &SocketAddrUnix) -> Result<(), BindError> {
    let failed = |source: io::Error| BindError::Failed { path: path.to_owned(), source };
    let found = match symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !found.file_type().is_socket() {
        return Err(BindError::NotASocket(path.to_owned()));
    }
    if is_live(address).map_err(|errno| failed(errno.into()))? {
        return Err(BindError::Live(path.to_owned()));
    }
    std::fs::remove_file(path).map_err(failed)
}

fn is_live(address: &SocketAddrUnix) -> rustix::io::Result<bool> {
    let socket = new_socket()?;
    match connect(&socket, address) {
        Ok(()) => Ok(!has_ended(socket)),
        // A daemon too busy to accept is alive. A socket of another kind belongs to someone, too.
        Err(Errno::AGAIN | Errno::PROTOTYPE) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// A process that was killed listens on while one of its threads waits in the kernel, and accepts
/// nothing any more (decision 0041). It keeps its number until then, so no other process has it.
fn has_ended(connected: OwnedFd) -> bool {
    let Some(listener) = listener_of(connected) else { return false };
    // A process of another container, which cannot be seen here, counts as alive.
    let stat = std::fs::read_to_string(format!("/proc/{listener}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('Z' | 'X'))
}

/// Only tokio asks for it in a way that is right for a process of another namespace, whose number is 0.
fn listener_of(connected: OwnedFd) -> Option<i32> {
    tokio::runtime::Handle::try_current().ok()?;
    let connected = tokio::net::UnixStream::from_std(connected.into()).ok()?;
    connected.peer_cred().ok()?.pid()
}

fn new_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

fn listen_at(address: &SocketAddrUnix) -> rustix::io::Result<UnixListener> {
    let socket = new_socket()?;
    // Before bind: Linux gives the file the mode of the socket, so that at no instant anyone
    // else can connect.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, address)?;
    listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
