//! How far a copy is: for people at a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use orlop_model::Bytes;

const REDRAW_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) struct Progress {
    doing: String,
    total: u64,
    unit: Unit,
    began: Instant,
    drawn: Option<Instant>,
    is_terminal: bool,
}

#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    Files,
}

impl Progress {
    pub(crate) fn new(doing: impl Into<String>, total: u64) -> Self {
        Self::counted(doing.into(), total, Unit::Bytes)
    }

    /// A total of 0 is one that is not known.
    pub(crate) fn of_files(doing: impl Into<String>, total: u64) -> Self {
        Self::counted(doing.into(), total, Unit::Files)
    }

    fn counted(doing: String, total: u64, unit: Unit) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { doing, total, unit, began: Instant::now(), drawn: None, is_terminal }
    }

    /// Something else is written to the same terminal.
    pub(crate) fn clear(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    pub(crate) fn at(&mut self, done: u64) {
        if !self.is_terminal || self.drawn.is_some_and(|drawn| drawn.elapsed() < REDRAW_INTERVAL) {
            return;
        }
        self.drawn = Some(Instant::now());
        let line = line(&self.doing, (done, self.total), self.unit, self.began.elapsed());
        let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn line(doing: &str, (done, total): (u64, u64), unit: Unit, elapsed: Duration) -> String {
    let of = match unit {
        Unit::Bytes => Bytes(total).to_string(),
        Unit::Files if total == 0 => return format!("{doing}: {done} files"),
        Unit::Files => format!("{total} files"),
    };
    // Files that came since are not in the total.
    let done = done.min(total);
    let percent = (u128::from(done) * 100).checked_div(u128::from(total)).unwrap_or(100);
    let left = u128::from(total.saturating_sub(done)) * elapsed.as_millis();
    let left = left.checked_div(u128::from(done)).map(|milliseconds| milliseconds / 1000);
    let estimate = left.map(|seconds| format!(", {seconds} s left")).unwrap_or_default();
    format!("{doing}: {percent} % of {of}{estimate}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_the_rate_so_far() {
        let second = Duration::from_secs(1);
        let copy = |done, total| line("copy", (done, total), Unit::Bytes, second);
        assert_eq!(copy(1 << 20, 4 << 20), "copy: 25 % of 4.0 MiB, 3 s left");
        assert_eq!(copy(0, 4 << 20), "copy: 0 % of 4.0 MiB");
        assert_eq!(copy(0, 0), "copy: 100 % of 0 bytes");
        let files = |done, total| line("compare", (done, total), Unit::Files, second);
        assert_eq!(files(50, 100), "compare: 50 % of 100 files, 1 s left");
        assert_eq!(files(120, 100), "compare: 100 % of 100 files, 0 s left");
        assert_eq!(files(7, 0), "compare: 7 files");
    }
}
