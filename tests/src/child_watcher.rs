//! Looks for secrets in command lines and files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Looks at the command lines of the daemon's children for as long as it lives, as often as it can.
/// A short one may escape it.
pub struct ChildWatcher {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<String>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ChildWatcher {
    pub fn on(daemon: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (end, noted) = (Arc::clone(&stop), Arc::clone(&seen));
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Acquire) {
                for line in command_lines_of_children(daemon) {
                    let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
                    if !noted.contains(&line) {
                        noted.push(line);
                    }
                }
            }
        });
        Self { stop, seen, thread: Some(thread) }
    }

    /// Has a command come into sight? It is brought about `again`, with a number, until it has.
    pub async fn until_seen(&self, text: &str, again: impl AsyncFn(usize)) {
        for round in 0..100 {
            if self.so_far().iter().any(|line| line.contains(text)) {
                return;
            }
            again(round).await;
        }
        panic!("{text} is never started, only {:?}", self.so_far());
    }

    fn so_far(&self) -> Vec<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn seen(mut self) -> Vec<String> {
        self.stop.store(true, Ordering::Release);
        self.thread.take().expect("asked once").join().expect("it only looks");
        self.so_far()
    }
}

impl Drop for ChildWatcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

fn command_lines_of_children(daemon: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{daemon}/task")).into_iter().flatten();
    let children = tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    children
        .filter_map(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok())
        .map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "))
        .collect()
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("list a directory") {
        let path = entry.expect("list a directory").path();
        let kind = path.symlink_metadata().expect("look at a file").file_type();
        if kind.is_dir() {
            found.extend(files_below(&path));
        } else if kind.is_file() {
            found.push(path);
        }
    }
    found
}

/// The daemon may remove files during the search.
fn nothing_if_gone(error: io::Error) -> io::Result<Vec<u8>> {
    if error.kind() == io::ErrorKind::NotFound { Ok(Vec::new()) } else { Err(error) }
}

/// The volumes' own data is the workload's, and large.
pub fn files_that_hold(directories: &[&Path], text: &str) -> Vec<PathBuf> {
    let files = directories.iter().flat_map(|directory| files_below(directory));
    files
        .filter(|path| path.file_name().is_some_and(|name| name != "data"))
        .filter(|path| {
            let bytes = std::fs::read(path).or_else(nothing_if_gone).expect("read a file");
            bytes.windows(text.len()).any(|window| window == text.as_bytes())
        })
        .collect()
}
