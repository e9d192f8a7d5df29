//! The helper's side of the pipe.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::BufRead;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::thread::set_name;

use crate::filesystem::{ThawOutcome, ensure_thawed};
use crate::tool;

const END: u8 = 0;
const FROZEN: u8 = b'+';
const THAWED: u8 = b'-';

/// What is here is suspended and not frozen.
const MAPPED_DEVICES: &str = "/dev/mapper";

/// How often, and how soon again, a thaw is tried that the kernel refuses.
const ATTEMPTS: u32 = 60;
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    Frozen(&'a Path),
    Thawed(&'a Path),
}

impl<'a> Message<'a> {
    pub(crate) fn encoded(&self) -> Vec<u8> {
        let (sign, path) = match self {
            Self::Frozen(path) => (FROZEN, path),
            Self::Thawed(path) => (THAWED, path),
        };
        [&[sign], path.as_os_str().as_bytes(), &[END]].concat()
    }

    /// `None` for what is no whole message.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (sign, path) = bytes.strip_suffix(&[END])?.split_first()?;
        if path.is_empty() {
            return None;
        }
        let path = Path::new(OsStr::from_bytes(path));
        match *sign {
            FROZEN => Some(Self::Frozen(path)),
            THAWED => Some(Self::Thawed(path)),
            _ => None,
        }
    }
}

/// The helper's whole life: reads messages until they end, then thaws what is still frozen.
///
/// Each filesystem has a thread: to thaw may be to write, so neither one on a disk that hangs nor a
/// log line that cannot be written may hold up the others.
pub fn run(messages: impl BufRead) {
    // Started through /proc/self/exe, it would stand as "exe" in a list of processes.
    let _ = set_name(c"thaw-helper");
    let mut threads = Vec::new();
    let mut without_thread = Vec::new();
    for mount_point in still_frozen(messages) {
        let thawed_there = mount_point.clone();
        let thread = thread::Builder::new().name("thaw".to_owned());
        match thread.spawn(move || thaw(&thawed_there)) {
            Ok(thread) => threads.push(thread),
            Err(_) => without_thread.push(mount_point),
        }
    }
    without_thread.iter().for_each(|mount_point| thaw(mount_point));
    for thread in threads {
        // A panic was reported when it happened.
        let _ = thread.join();
    }
}

fn still_frozen(mut messages: impl BufRead) -> BTreeSet<PathBuf> {
    let mut frozen = BTreeSet::new();
    let mut bytes = Vec::new();
    // A pipe that cannot be read is as good as closed: no other process would thaw.
    while messages.read_until(END, &mut bytes).is_ok_and(|length| length > 0) {
        match Message::decode(&bytes) {
            Some(Message::Frozen(path)) => frozen.insert(path.to_owned()),
            Some(Message::Thawed(path)) => frozen.remove(path),
            None => false,
        };
        bytes.clear();
    }
    frozen
}

fn thaw(mount_point: &Path) {
    if mount_point.parent() == Some(Path::new(MAPPED_DEVICES)) {
        return resume(mount_point);
    }
    let mount = mount_point.display();
    for _ in 0..ATTEMPTS {
        match ensure_thawed(mount_point) {
            Ok(ThawOutcome::Thawed) => {
                tracing::warn!(
                    %mount,
                    "thawed a filesystem that its daemon had frozen before it ended"
                );
                return;
            }
            Ok(ThawOutcome::WasNotFrozen) => return,
            Err(error) if error.is_not_found() => return,
            Err(error) => {
                tracing::error!(%error, "cannot thaw a filesystem that was left frozen; retrying");
            }
        }
        thread::sleep(RETRY_INTERVAL);
    }
    tracing::error!(%mount, "cannot thaw this filesystem; run fsfreeze -u on it");
}

/// A device of device-mapper that its daemon has suspended. Does nothing to one that is not.
fn resume(device: &Path) {
    let path = device.display();
    match tool::run("dmsetup", [OsStr::new("resume"), device.as_os_str()]) {
        Ok(_) => {
            tracing::warn!(device = %path, "resumed a device that its daemon had suspended before it ended")
        }
        Err(error) => tracing::error!(
            device = %path,
            %error,
            "cannot resume a device that was left suspended; writes to it wait until `dmsetup resume` is run on it"
        ),
    }
}
