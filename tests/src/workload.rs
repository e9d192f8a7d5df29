//! A workload that uses a published volume all the time and reports every error.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::pattern::Pattern;

const BLOCK: usize = 4096;
const SLOTS: u64 = 32;
/// How many rounds prove that it is alive.
const SOME_ROUNDS: u64 = 8;

/// In each round it opens the path again, writes one slot to stable storage, and reads another
/// one back. It ends at the first error, which [`Self::goes_on`] and [`Self::finish`] report.
pub struct Workload {
    path: PathBuf,
    rounds: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Workload {
    /// On a device, or on a file that is made for it.
    pub fn writing(path: &Path) -> Self {
        Self::start(path, |path, round| {
            write_slot(path, round)?;
            // Of the rounds that wrote the slots as they are now, each in its turn.
            let oldest = (round + 1).saturating_sub(SLOTS);
            read_slot(path, oldest + round % (round + 1 - oldest))
        })
    }

    /// What a writing one left there.
    pub fn reading(path: &Path) -> Self {
        Self::start(path, |path, round| read_slot(path, round % SLOTS))
    }

    /// Fills all slots, as the first rounds of a writing one do.
    pub fn prepare(path: &Path) {
        for round in 0..SLOTS {
            write_slot(path, round).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }

    fn start(path: &Path, step: fn(&Path, u64) -> io::Result<()>) -> Self {
        let rounds = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (done, end, target) = (Arc::clone(&rounds), Arc::clone(&stop), path.to_owned());
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Acquire) {
                step(&target, done.load(Ordering::Acquire))?;
                done.fetch_add(1, Ordering::AcqRel);
                // A busy loop for each of many volumes would leave no time to the daemon.
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        });
        Self { path: path.to_owned(), rounds, stop, thread: Some(thread) }
    }

    /// Returns once it has gone on from here, that is, was neither stopped nor disturbed.
    pub async fn goes_on(&self) {
        let wanted = self.rounds.load(Ordering::Acquire) + SOME_ROUNDS;
        while self.rounds.load(Ordering::Acquire) < wanted {
            let thread = self.thread.as_ref().expect("a running workload");
            assert!(!thread.is_finished(), "the workload at {} met an error", self.path.display());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Ends it; it must never have met an error.
    pub fn finish(mut self) {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.take().expect("a running workload");
        if let Err(error) = thread.join().expect("the workload panicked") {
            panic!("the workload at {} met an error: {error}", self.path.display());
        }
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.take().map(JoinHandle::join);
    }
}

fn offset_of(round: u64) -> u64 {
    round % SLOTS * u64::try_from(BLOCK).expect("a small number")
}

fn contents(round: u64) -> Vec<u8> {
    Pattern::new(round).bytes(offset_of(round), BLOCK)
}

fn write_slot(path: &Path, round: u64) -> io::Result<()> {
    let file = File::options().write(true).create(true).truncate(false).open(path)?;
    file.write_all_at(&contents(round), offset_of(round))?;
    file.sync_data()
}

fn read_slot(path: &Path, round: u64) -> io::Result<()> {
    let mut found = vec![0; BLOCK];
    File::open(path)?.read_exact_at(&mut found, offset_of(round))?;
    if found == contents(round) {
        return Ok(());
    }
    Err(io::Error::other(format!("what round {round} wrote is not there")))
}
