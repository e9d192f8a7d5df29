//! Crash points: a test lets the process end as `kill -9` would, right after an effect.
//!
//! Every effect of this crate on the machine reports here, most of them where they name their object
//! (`effect_on` of [`crate::error::Context`]); what is done on a Ceph cluster does not. Release builds have none of
//! it. In others, the variable `ORLOP_TEST_CRASH` may name a directory:
//!
//! - a file `at` in it holds a number: that many effects still happen, and after the next one the process ends. The
//!   file is renamed to `armed` when it is read, so that the next daemon does not end; once `armed` is removed, this
//!   process does not end either.
//! - where it ended is written to `crashed`; each effect is written to `effects` if that file
//!   exists.

#[cfg(debug_assertions)]
pub(crate) use armed::after;

/// An effect has just happened.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn after(_effect: &str) {}

#[cfg(debug_assertions)]
mod armed {
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    use std::panic::Location;
    use std::path::{Path, PathBuf};
    use std::sync::{LazyLock, Mutex, PoisonError};

    use rustix::process::{Signal, getpid, kill_process};

    const VARIABLE: &str = "ORLOP_TEST_CRASH";

    static DIRECTORY: LazyLock<Option<PathBuf>> =
        LazyLock::new(|| std::env::var_os(VARIABLE).map(PathBuf::from));

    /// Effects that still happen, once it is armed.
    static LEFT: Mutex<Option<u64>> = Mutex::new(None);

    /// An effect has just happened.
    #[track_caller]
    pub(crate) fn after(effect: &str) {
        let Some(directory) = DIRECTORY.as_deref() else { return };
        let location = Location::caller();
        let line = format!("{effect} ({}:{})\n", location.file(), location.line());
        tell(&directory.join("effects"), &line, false);
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        *left = match *left {
            Some(more) if directory.join("armed").exists() => Some(more),
            Some(_) | None => arm(directory),
        };
        match *left {
            Some(0) => end(directory, &line),
            Some(more) => *left = Some(more - 1),
            None => {}
        }
    }

    fn arm(directory: &Path) -> Option<u64> {
        let (order, taken) = (directory.join("at"), directory.join("armed"));
        fs::rename(&order, &taken).ok()?;
        fs::read_to_string(&taken).ok()?.trim().parse().ok()
    }

    /// A test that cannot write its notes notices that they are missing.
    fn tell(path: &Path, text: &str, create: bool) {
        let file = OpenOptions::new().append(true).create(create).open(path);
        let _ = file.and_then(|mut file| file.write_all(text.as_bytes()));
    }

    fn end(directory: &Path, line: &str) -> ! {
        tell(&directory.join("crashed"), line, true);
        let _ = kill_process(getpid(), Signal::KILL);
        std::process::abort()
    }
}
