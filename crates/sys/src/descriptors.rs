//! How many files this process may have open.

use rustix::io::Result;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as its supervisor allows; `None`: any number. The lower limit that a process starts with is
/// for programs that use select(2).
pub fn allow_most() -> Result<Option<u64>> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    }
    Ok(limit.maximum)
}
