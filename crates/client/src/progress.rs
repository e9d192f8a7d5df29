//! How far a copy is: for people at a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use orlop_model::Bytes;

const REDRAW_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) struct Progress {
    doing: String,
    total: u64,
    began: Instant,
    drawn: Option<Instant>,
    is_terminal: bool,
}

impl Progress {
    pub(crate) fn new(doing: impl Into<String>, total: u64) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { doing: doing.into(), total, began: Instant::now(), drawn: None, is_terminal }
    }

    pub(crate) fn at(&mut self, done: u64) {
        if !self.is_terminal || self.drawn.is_some_and(|drawn| drawn.elapsed() < REDRAW_INTERVAL) {
            return;
        }
        self.drawn = Some(Instant::now());
        let line = line(&self.doing, done, self.total, self.began.elapsed());
        let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(doing: &str, done: u64, total: u64, elapsed: Duration) -> String {
    let percent = (u128::from(done) * 100).checked_div(u128::from(total)).unwrap_or(100);
    let left = u128::from(total.saturating_sub(done)) * elapsed.as_millis();
    let left = left.checked_div(u128::from(done)).map(|milliseconds| milliseconds / 1000);
    let estimate = left.map(|seconds| format!(", {seconds} s left")).unwrap_or_default();
    format!("{doing}: {percent} % of {}{estimate}", Bytes(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_the_rate_so_far() {
        let second = Duration::from_secs(1);
        assert_eq!(line("copy", 1 << 20, 4 << 20, second), "copy: 25 % of 4.0 MiB, 3 s left");
        assert_eq!(line("copy", 0, 4 << 20, second), "copy: 0 % of 4.0 MiB");
        assert_eq!(line("copy", 0, 0, second), "copy: 100 % of 0 bytes");
    }
}
