//! A writer that visits all members in order, and writes the number of the current round to each.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use crate::pattern::{Pattern, write_direct};

const BLOCK: usize = 4096;

/// A number is on stable storage before the next member gets it, so at any instant the numbers of
/// the members, in their order, never rise, and fall by one at most.
pub struct SequenceWriter {
    finished: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl SequenceWriter {
    pub fn start(paths: Vec<PathBuf>) -> Self {
        for path in &paths {
            // Files are made beforehand, with their blocks.
            Pattern::new(0).write(path, 4096);
            write_round(path, 0).expect("the first stamp");
        }
        let finished = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (done, end) = (Arc::clone(&finished), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            for round in 1.. {
                if end.load(Ordering::Acquire) {
                    break;
                }
                for path in &paths {
                    write_round(path, round)?;
                }
                done.store(round, Ordering::Release);
            }
            Ok(())
        });
        Self { finished, stop, thread: Some(thread) }
    }

    /// The last round that reached all members.
    pub fn finished(&self) -> u64 {
        self.finished.load(Ordering::Acquire)
    }

    /// Until it has gone on from here by some rounds.
    pub async fn goes_on(&self) {
        let wanted = self.finished() + 3;
        while self.finished() < wanted {
            let thread = self.thread.as_ref().expect("a running writer");
            assert!(!thread.is_finished(), "the writer met an error");
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    pub fn finish(mut self) {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.take().expect("a running writer");
        thread.join().expect("the writer panicked").expect("the writer met an error");
    }
}

impl Drop for SequenceWriter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.take().map(JoinHandle::join);
    }
}

fn write_round(path: &Path, round: u64) -> io::Result<()> {
    write_direct(path, 0, &round.to_le_bytes().repeat(BLOCK / 8))
}

pub fn read_sequence(path: &Path) -> u64 {
    let mut block = [0; BLOCK];
    let mut file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.read_exact(&mut block).expect("read the stamp");
    let (first, _) = block.split_first_chunk::<8>().expect("a block is longer");
    assert_eq!(block.as_slice(), first.repeat(BLOCK / 8), "half a stamp at {}", path.display());
    u64::from_le_bytes(*first)
}

/// What was there at one instant, while rounds from `finished` on were written and `begun` was
/// the latest possible.
pub fn assert_one_instant(rounds: &[u64], finished: u64, begun: u64) {
    let (first, last) = (rounds[0], rounds[rounds.len() - 1]);
    assert!(rounds.is_sorted_by(|before, after| before >= after), "a stamp came late: {rounds:?}");
    assert!(first - last <= 1, "of several instants: {rounds:?}");
    assert!(finished <= last && first <= begun, "{rounds:?}, not from {finished} to {begun}");
}
