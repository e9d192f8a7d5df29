//! For people at a terminal: colours, questions, progress.

use std::fmt::Display;
use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};

/// A shorter wait is not shown.
const SHOW_AFTER: Duration = Duration::from_secs(1);
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    colours: bool,
}

impl Style {
    /// <https://no-color.org>: any value but an empty one turns colours off.
    pub(crate) fn of_stdout() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self { colours: std::io::stdout().is_terminal() && !unwanted && !is_dumb }
    }

    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self { colours: false }
    }

    pub(crate) fn heading(self, text: &str) -> String {
        self.painted("1", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.painted("31", text)
    }

    fn painted(self, code: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Names and messages come from other programs. They must not move the cursor, begin a line, or change the direction of
/// the text after them.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if misleads(c) { '?' } else { c }).collect()
}

fn misleads(c: char) -> bool {
    let is_separator = matches!(c, '\u{2028}' | '\u{2029}');
    let is_direction =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_separator || is_direction
}

/// A line on standard error, for people; standard output is for results.
pub(crate) fn note(text: &dyn Display) {
    // A closed stderr is no reason to stop.
    let _ = writeln!(std::io::stderr(), "{}", printable(&text.to_string()));
}

/// Asks before something is destroyed. Without a terminal, `--yes` is required.
pub(crate) fn confirm(consequence: &str, yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::usage(format!(
            "{consequence}; nothing was done: there is no terminal to ask at; to do it, pass --yes"
        )));
    }
    let mut err = std::io::stderr();
    let _ = write!(err, "{}. Go on? [y/N] ", printable(consequence));
    let _ = err.flush();
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    match read.map(|_| answer.trim().to_ascii_lowercase()) {
        Ok(answer) if answer == "y" || answer == "yes" => Ok(()),
        Ok(_) | Err(_) => Err(Failure::usage("nothing was done")),
    }
}

/// Shows on a terminal which call the command is waiting for, and for how long.
pub(crate) struct Waiting(Option<(Arc<AtomicBool>, thread::JoinHandle<()>)>);

impl Waiting {
    pub(crate) fn start(doing: &dyn Display) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let (text, ended) = (printable(&doing.to_string()), Arc::new(AtomicBool::new(false)));
        let seen = Arc::clone(&ended);
        let show = move || {
            let began = Instant::now();
            let mut is_visible = false;
            while !seen.load(Ordering::Relaxed) {
                thread::park_timeout(CHECK_INTERVAL);
                if began.elapsed() >= SHOW_AFTER && !seen.load(Ordering::Relaxed) {
                    let _ = write!(
                        std::io::stderr(),
                        "\r\x1b[K{text}: {} s",
                        began.elapsed().as_secs()
                    );
                    is_visible = true;
                }
            }
            if is_visible {
                let _ = write!(std::io::stderr(), "\r\x1b[K");
            }
        };
        // Without the thread, only this display is missing.
        let thread = thread::Builder::new().name("waiting".to_owned()).spawn(show);
        Self(thread.ok().map(|thread| (ended, thread)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((ended, thread)) = self.0.take() {
            ended.store(true, Ordering::Relaxed);
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
