//! Which process holds a lock, for a message that says more than "another".

use std::fmt::{self, Display, Formatter};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::lock::{Lock, try_lock};
use crate::error::Result;
use crate::mounts::filesystem_number;

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// After this many polls without an owner in /proc/locks, the owner is reported as one that this process cannot see.
const MAX_UNSEEN_POLLS: u32 = 10;
/// Commands of this program that release their locks after a short time: they examine a pool, and then exit.
const BRIEF_COMMANDS: [&str; 2] = ["doctor", "pool"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockOwner {
    pub pid: u32,
    /// The words of its command line; empty while it ends, or if that cannot be read.
    words: Vec<String>,
}

impl LockOwner {
    fn of_process(pid: u32) -> Self {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = command.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        Self { pid, words: words.map(|word| String::from_utf8_lossy(word).into_owned()).collect() }
    }

    /// Is it a doctor or a similar command, or a process that is exiting? A process without a command line is exiting: its
    /// threads end one after the other, and the one that holds the lock may be the last.
    fn will_end_soon(&self) -> bool {
        self.words.is_empty()
            || self.words.get(1).is_some_and(|word| BRIEF_COMMANDS.contains(&word.as_str()))
    }
}

/// `process 7 (orlop doctor)`
impl Display for LockOwner {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        let Some(program) = self.words.first() else { return Ok(()) };
        let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
        write!(f, " ({name}")?;
        // Further words may be long, and the first two say what it is.
        self.words.get(1).map_or(Ok(()), |word| write!(f, " {word}"))?;
        f.write_str(")")
    }
}

pub enum LockAttempt {
    Taken(Lock),
    /// `None`: by a process that cannot be seen from here, such as one of another container.
    HeldBy(Option<LockOwner>),
}

/// As [`try_lock`], but waits up to `timeout` for an owner that releases the lock soon: a doctor, or a process that is
/// exiting.
pub fn lock_after_brief_owners(path: &Path, timeout: Duration) -> Result<LockAttempt> {
    let begun = Instant::now();
    let (mut has_waited, mut unseen_polls) = (false, 0);
    loop {
        if let Some(lock) = try_lock(path)? {
            return Ok(LockAttempt::Taken(lock));
        }
        match lock_owner(path) {
            Some(owner) if owner.will_end_soon() && begun.elapsed() < timeout => {
                if !has_waited {
                    tracing::info!(lock = %path.display(), %owner, "waiting for a lock");
                }
                (has_waited, unseen_polls) = (true, 0);
            }
            // It may have been released since, and /proc/locks misses a lock now and then while others change.
            None if unseen_polls < MAX_UNSEEN_POLLS => unseen_polls += 1,
            owner => return Ok(LockAttempt::HeldBy(owner)),
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// `None` also if that is not known.
pub fn lock_owner(path: &Path) -> Option<LockOwner> {
    let file = path.symlink_metadata().ok()?;
    let filesystem = filesystem_number(path).ok()??;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    owner_in(&locks, filesystem, file.ino()).map(LockOwner::of_process)
}

/// In lines such as `3: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF`. Files of other filesystems may
/// have the same inode number: the first ones of every pool have.
fn owner_in(locks: &str, filesystem: (u32, u32), inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // A line with an arrow is of a process that waits.
        let [_, "FLOCK", _, "WRITE", pid, file, ..] = words.as_slice() else { return None };
        let mut numbers = file.split(':');
        let mut hexadecimal = || u32::from_str_radix(numbers.next()?, 16).ok();
        let is_there = (hexadecimal()?, hexadecimal()?) == filesystem;
        let is_it = is_there && numbers.next()?.parse() == Ok(inode);
        is_it.then(|| pid.parse().ok())?
    })
}

#[cfg(test)]
mod tests;
