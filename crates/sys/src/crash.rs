//! Places where a test lets the process end as `kill -9` would: right after each effect.
//!
//! Every effect of this crate reports here, most of them where they name their object
//! ([`crate::error::Context`]). Release builds have none of it. In others, the variable
//! `ORLOP_TEST_CRASH` may name a directory:
//!
//! - a file `at` in it holds a number: so many effects still happen, and after the next one the
//!   process ends. The file is taken away when it is read, so that a successor lives.
//! - where it ended is written to `crashed`; without `at`, each effect is written to `effects` if
//!   that file exists.

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

    /// What begins so only looks.
    const LOOKS: [&str; 8] = ["look", "open", "read", "list", "find", "count", "ask", "wait for"];

    static DIRECTORY: LazyLock<Option<PathBuf>> =
        LazyLock::new(|| std::env::var_os(VARIABLE).map(PathBuf::from));

    /// Effects that still happen, once it is armed.
    static LEFT: Mutex<Option<u64>> = Mutex::new(None);

    /// An effect has just happened.
    #[track_caller]
    pub(crate) fn after(effect: &str) {
        let Some(directory) = DIRECTORY.as_deref() else { return };
        if LOOKS.iter().any(|look| effect.starts_with(look)) {
            return;
        }
        let place = Location::caller();
        let told = format!("{effect} ({}:{})\n", place.file(), place.line());
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        if left.is_none() {
            *left = arm(directory);
        }
        match *left {
            Some(0) => end(directory, &told),
            Some(more) => *left = Some(more - 1),
            None => tell(&directory.join("effects"), &told, false),
        }
    }

    fn arm(directory: &Path) -> Option<u64> {
        let path = directory.join("at");
        let number = fs::read_to_string(&path).ok()?.trim().parse().ok()?;
        fs::remove_file(&path).ok()?;
        Some(number)
    }

    /// A test that cannot write its notes notices that they are missing.
    fn tell(path: &Path, text: &str, create: bool) {
        let file = OpenOptions::new().append(true).create(create).open(path);
        let _ = file.and_then(|mut file| file.write_all(text.as_bytes()));
    }

    fn end(directory: &Path, told: &str) -> ! {
        tell(&directory.join("crashed"), told, true);
        let _ = kill_process(getpid(), Signal::KILL);
        std::process::abort()
    }
}
