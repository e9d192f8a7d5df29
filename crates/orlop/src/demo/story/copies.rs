//! Snapshots, a restore and a clone: copies that share what is not changed.

use std::ops::Range;
use std::time::Instant;

use orlop_model::Bytes;

use super::{Counter, FIRST_SEED, Scene, file_in};
use crate::demo::MIB;
use crate::demo::calls::Source;
use crate::demo::contents::{Contents, Progress};
use crate::demo::failure::{Failure, check};

const SNAPSHOTS: u64 = 100;

impl Scene<'_> {
    /// The id of the first.
    pub(super) fn take_snapshots(&mut self) -> Result<String, Failure> {
        self.screen.begin("snapshot");
        let (before, began) = (self.story.free_space()?, Instant::now());
        let mut ids = Vec::new();
        for number in 1..=SNAPSHOTS {
            ids.push(self.calls.snapshot(&format!("snapshot-{number}"), &self.data)?);
            self.screen.progress(|| format!("{number} of {SNAPSHOTS}"));
        }
        let each = began.elapsed() / u32::try_from(SNAPSHOTS).unwrap_or(u32::MAX);
        let mut listed = self.calls.list_snapshots()?;
        ids.sort_unstable();
        listed.sort_unstable();
        check(ids == listed, || format!("{} snapshots are listed", listed.len()))?;
        let taken = before.saturating_sub(self.story.free_space()?);
        check(taken < SNAPSHOTS * MIB, || format!("they take {}", Bytes(taken)))?;
        self.screen.done(&format!(
            "{SNAPSHOTS} of the mounted volume, {:.1} ms each; all together take {}",
            each.as_secs_f64() * 1000.0,
            Bytes(taken)
        ))?;
        // By its name: ids are digests, and were sorted.
        self.calls.snapshot("snapshot-1", &self.data)
    }

    /// Two stretches of the file, of a quarter together.
    pub(super) fn overwrite(&mut self) -> Result<Vec<Range<u64>>, Failure> {
        self.screen.begin("overwrite");
        let eighth = self.story.bytes / MIB / 8;
        let blocks = vec![eighth..2 * eighth, 5 * eighth..6 * eighth];
        let path = self.path();
        let mut progress = Counter::new(self.screen, 2 * eighth);
        let progress: Progress<'_> = &mut |done| progress.add(done);
        let with = (self.story.interrupt, progress);
        self.contents.overwrite(&path, &blocks, FIRST_SEED + 1, with)?;
        let text = format!(
            "{} in two places; the checksum is {} now",
            Bytes(2 * eighth * MIB),
            self.contents.checksum()
        );
        self.screen.done(&text)?;
        Ok(blocks.into_iter().map(|range| range.start * MIB..range.end * MIB).collect())
    }

    /// `before` is what was there when the snapshot was taken.
    pub(super) fn restore(&mut self, snapshot: &str, before: &Contents) -> Result<(), Failure> {
        self.screen.begin("restore");
        let restored =
            self.calls.create("restored", self.data.bytes, &Source::Snapshot(snapshot))?;
        self.mount(&restored)?;
        self.compare(before, &file_in(&restored), "the restored volume")?;
        let (contents, path) = (self.contents.clone(), self.path());
        self.compare(&contents, &path, "the original")?;
        let text = format!(
            "the first snapshot as a volume: checksum {} again; the original still has {}",
            before.checksum(),
            contents.checksum()
        );
        self.screen.done(&text)
    }

    pub(super) fn write_to_clone(&mut self) -> Result<(), Failure> {
        self.screen.begin("clone");
        let (before, began) = (self.story.free_space()?, Instant::now());
        let clone = self.calls.create("clone", self.data.bytes, &Source::Volume(&self.data.id))?;
        let took = began.elapsed();
        let taken = before.saturating_sub(self.story.free_space()?);
        self.mount(&clone)?;
        let half = self.story.bytes / MIB / 2;
        let mut cloned = self.contents.clone();
        let (path, interrupt) = (file_in(&clone), self.story.interrupt.clone());
        let writing = std::thread::spawn(move || {
            let blocks = 0..half;
            cloned.overwrite(&path, &[blocks], FIRST_SEED + 2, (&interrupt, &mut |_| ()))?;
            Ok::<_, Failure>(cloned)
        });
        let (contents, path) = (self.contents.clone(), self.path());
        let compared = self.compare(&contents, &path, "the original");
        let written =
            writing.join().map_err(|_| Failure::broken("the writer of the clone panicked"));
        let cloned = written?;
        compared?;
        let cloned = cloned?;
        self.compare(&cloned, &file_in(&clone), "the clone")?;
        self.compare(&contents, &self.path(), "the original")?;
        let text = format!(
            "in {:.0} ms, with {} of new space; {} written to it while the original is read:\n\
             both hold their own data",
            took.as_secs_f64() * 1000.0,
            Bytes(taken),
            Bytes(half * MIB)
        );
        self.screen.done(&text)
    }
}
