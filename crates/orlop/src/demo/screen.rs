//! One line for each step; on a terminal also how far a step has come.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use super::failure::Failure;

const CLEAR_LINE: &str = "\r\x1b[K";
const REDRAW: Duration = Duration::from_millis(100);
/// Of the name of a step.
const COLUMN: usize = 10;

pub(super) struct Screen {
    is_terminal: bool,
    step: &'static str,
    began: Instant,
    drawn: Option<Instant>,
}

impl Screen {
    pub(super) fn of_stdout() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        Self { is_terminal, step: "", began: Instant::now(), drawn: None }
    }

    pub(super) fn begin(&mut self, step: &'static str) {
        self.step = step;
        self.began = Instant::now();
        self.drawn = None;
        self.progress(|| "...".to_owned());
    }

    /// Shown on a terminal, and only now and then.
    pub(super) fn progress(&mut self, how_far: impl FnOnce() -> String) {
        if !self.is_terminal || self.drawn.is_some_and(|drawn| drawn.elapsed() < REDRAW) {
            return;
        }
        self.drawn = Some(Instant::now());
        let mut out = std::io::stdout().lock();
        // What is only for the eye may be lost.
        let _ = write!(out, "{CLEAR_LINE}{:>7}   {:<COLUMN$}{}", "", self.step, how_far());
        let _ = out.flush();
    }

    pub(super) fn end_progress(&mut self) {
        if self.is_terminal {
            let _ = write!(std::io::stdout(), "{CLEAR_LINE}");
        }
    }

    /// The step is over, and this came of it.
    pub(super) fn done(&mut self, what: &str) -> Result<(), Failure> {
        let took = self.began.elapsed().as_secs_f64();
        let (step, indent) = (self.step, " ".repeat(10 + COLUMN));
        let what = what.replace('\n', &format!("\n{indent}"));
        self.line(&format!("{took:>6.2} s  {step:<COLUMN$}{what}"))
    }

    /// The step cannot be shown on this machine.
    pub(super) fn left_out(&mut self, why: &str) -> Result<(), Failure> {
        self.line(&format!("{:>8}  {:<COLUMN$}left out: {why}", "-", self.step))
    }

    pub(super) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.end_progress();
        let mut out = std::io::stdout().lock();
        let written = writeln!(out, "{text}").and_then(|()| out.flush());
        written.map_err(Failure::cannot("print what the demo shows"))
    }
}
