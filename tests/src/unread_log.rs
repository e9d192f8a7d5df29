//! A pipe for the daemon's stderr that is not read, as when a log collector hangs.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, mkfifoat};

use crate::launch::Launch;
use crate::scratch::Scratch;

pub struct UnreadLog {
    path: PathBuf,
    pipe: File,
}

impl UnreadLog {
    pub fn new(scratch: &Scratch) -> Self {
        let path = scratch.join("log.pipe");
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).expect("make a pipe");
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of open(2)");
        // Also for writing, or it would wait for the daemon.
        let open = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path);
        Self { pipe: open.expect("open the pipe"), path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The daemon's stderr is this pipe.
    pub fn of(&self, launch: Launch) -> Launch {
        let redirect = format!("exec \"$@\" 2>{}", self.path.display());
        launch.run_by(&["/bin/sh", "-c", &redirect, "sh"])
    }

    /// Until the guard is dropped, no byte more fits into it.
    pub fn fill(&self) -> FullPipe<'_> {
        for size in [4096, 1] {
            let filler = vec![b'.'; size];
            while (&self.pipe).write(&filler).is_ok_and(|written| written > 0) {}
        }
        FullPipe(self)
    }

    /// All that is in the pipe now, without what filled it.
    pub fn read(&self) -> String {
        let mut found = Vec::new();
        match (&self.pipe).read_to_end(&mut found) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            ended => panic!("the pipe ended: {ended:?}"),
        }
        String::from_utf8_lossy(&found).trim_start_matches('.').to_owned()
    }
}

/// Emptied when it is dropped, so that a daemon of a test that failed can end.
pub struct FullPipe<'a>(&'a UnreadLog);

impl Drop for FullPipe<'_> {
    fn drop(&mut self) {
        self.0.read();
    }
}
