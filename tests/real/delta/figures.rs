//! What a run has seen.

use std::fmt;
use std::ops::AddAssign;

#[derive(Default)]
pub(crate) struct Figures {
    /// Comparisons of two snapshots; some seeds make two.
    pub(crate) deltas: u64,
    pub(crate) ranges: u64,
    /// Said to have changed.
    pub(crate) reported_bytes: u64,
    /// Of these, in blocks of 4 KiB that are the same in both.
    pub(crate) unchanged_bytes: u64,
    pub(crate) unchanged_ranges: u64,
    /// Of all that could have been reported.
    pub(crate) volume_bytes: u64,
    pub(crate) empty: u64,
    pub(crate) grown: u64,
    pub(crate) resumed: u64,
    pub(crate) base_deleted: u64,
    pub(crate) source_deleted: u64,
}

impl Figures {
    /// That it passed means little if it never came to what it is about.
    pub(crate) fn assert_varied(&self) {
        let Self { deltas, ranges, empty, grown, resumed, base_deleted, source_deleted, .. } = self;
        for count in [deltas, ranges, empty, grown, resumed, base_deleted, source_deleted] {
            assert!(*count > 0, "too few seeds: {self}");
        }
    }
}

impl AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.deltas += other.deltas;
        self.ranges += other.ranges;
        self.reported_bytes += other.reported_bytes;
        self.unchanged_bytes += other.unchanged_bytes;
        self.unchanged_ranges += other.unchanged_ranges;
        self.volume_bytes += other.volume_bytes;
        self.empty += other.empty;
        self.grown += other.grown;
        self.resumed += other.resumed;
        self.base_deleted += other.base_deleted;
        self.source_deleted += other.source_deleted;
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |part: u64, whole: u64| {
            let tenths = part * 1000 / whole.max(1);
            format!("{}.{}%", tenths / 10, tenths % 10)
        };
        write!(
            f,
            "{} deltas ({} empty, {} of grown volumes, {} resumed, {} whose base was deleted \
             during the call, {} whose source was deleted before), {} ranges with {} MiB ({} of the \
             volumes), of which {} KiB ({}) and {} whole ranges had not changed",
            self.deltas,
            self.empty,
            self.grown,
            self.resumed,
            self.base_deleted,
            self.source_deleted,
            self.ranges,
            self.reported_bytes >> 20,
            share(self.reported_bytes, self.volume_bytes),
            self.unchanged_bytes >> 10,
            share(self.unchanged_bytes, self.reported_bytes),
            self.unchanged_ranges,
        )
    }
}
