//! Programs that go on writing while something happens to their volumes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::demo::failure::Failure;
use crate::demo::interrupt::Interrupt;

const RECORD: usize = 4096;
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const TIMEOUT: Duration = Duration::from_secs(60);

/// Writes the numbers 1, 2, 3 and so on, each to all files before the next, and waits until it is on the disk.
///
/// At every instant the files, in their order, hold numbers that never rise and fall by one at most.
pub(super) struct NumberWriter {
    done: Arc<AtomicU64>,
    /// Microseconds: the longest time that one number took.
    longest: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

/// Where a number goes.
#[derive(Clone, Copy)]
pub(super) enum Layout {
    /// Over the number before.
    Replace,
    /// After the number before, so that all can be counted.
    Append,
}

impl NumberWriter {
    pub(super) fn start(paths: Vec<PathBuf>, layout: Layout) -> Result<Self, Failure> {
        let make = |path: &PathBuf| File::options().write(true).create_new(true).open(path);
        let files: std::io::Result<Vec<File>> = paths.iter().map(make).collect();
        let files = files.map_err(Failure::cannot("make a file in a volume"))?;
        let (done, longest, stop) = Default::default();
        let mut writer = Self { done, longest, stop, thread: None };
        let (done, longest, stop) =
            (Arc::clone(&writer.done), Arc::clone(&writer.longest), Arc::clone(&writer.stop));
        let write = move || {
            for number in 1_u64.. {
                if stop.load(Ordering::Acquire) {
                    break;
                }
                let began = Instant::now();
                for file in &files {
                    let place = match layout {
                        Layout::Replace => 0,
                        Layout::Append => (number - 1) * RECORD as u64,
                    };
                    file.write_all_at(&record(number), place)?;
                    file.sync_data()?;
                }
                let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
                longest.fetch_max(took, Ordering::AcqRel);
                done.store(number, Ordering::Release);
            }
            Ok(())
        };
        let thread = std::thread::Builder::new().name("writer".to_owned()).spawn(write);
        writer.thread = Some(thread.map_err(Failure::cannot("start a writer"))?);
        Ok(writer)
    }

    /// The last number that is in all files.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// Waits until this many more are written.
    pub(super) fn goes_on(&self, by: u64, interrupt: &Interrupt) -> Result<(), Failure> {
        let (wanted, deadline) = (self.done() + by, Instant::now() + TIMEOUT);
        while self.done() < wanted {
            interrupt.check()?;
            let has_ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            if has_ended || Instant::now() > deadline {
                return Err(Failure::Untrue("the writer cannot go on".to_owned()));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Forgets how long numbers took before, and says it.
    pub(super) fn take_longest(&self) -> Duration {
        Duration::from_micros(self.longest.swap(0, Ordering::AcqRel))
    }

    /// The last number.
    pub(super) fn finish(mut self) -> Result<u64, Failure> {
        self.stop.store(true, Ordering::Release);
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(Ok(()))) => Ok(self.done()),
            Some(Ok(Err(error))) => {
                Err(Failure::Untrue(format!("the writer got an error: {error}")))
            }
            Some(Err(_)) | None => Err(Failure::broken("the writer panicked")),
        }
    }
}

impl Drop for NumberWriter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It is dropped early if something else has failed, which is what counts.
            let _ = thread.join();
        }
    }
}

fn record(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(RECORD / 8)
}

/// The number at this place, if all of its record is there.
pub(super) fn number_at(path: &Path, place: u64) -> Result<Option<u64>, Failure> {
    let file = File::open(path).map_err(Failure::cannot(format!("open {}", path.display())))?;
    let mut found = vec![0; RECORD];
    match file.read_exact_at(&mut found, place * RECORD as u64) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => {
            return Err(Failure::broken(format!("cannot read {}: {error}", path.display())));
        }
    }
    let number = found.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    Ok(number.filter(|number| found == record(*number)))
}
