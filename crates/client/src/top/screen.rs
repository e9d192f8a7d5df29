//! Where tables appear: drawn over each other on a terminal, one after another elsewhere.

use std::io::IsTerminal;

use rustix::termios::tcgetwinsize;

use crate::failure::Result;
use crate::output::{Answer, Format, Output};

/// The alternate screen, which leaves what was on the terminal before as it was; without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// To the first line; and, at the end, what is left of the table before is cleared.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K\r\n";
const CLEAR_BELOW: &str = "\x1b[J";
const RESET: &str = "\x1b[0m";

pub(super) struct Screen {
    output: Output,
    is_redrawn: bool,
}

impl Screen {
    pub(super) fn open(output: &Output, is_endless: bool) -> Self {
        let is_table = output.format == Format::Table;
        let is_redrawn = is_endless && is_table && std::io::stdout().is_terminal();
        let screen = Self { output: *output, is_redrawn };
        if is_redrawn {
            // One that cannot be written to fails at the first table.
            let _ = output.write(ENTER);
        }
        screen
    }

    pub(super) fn is_redrawn(&self) -> bool {
        self.is_redrawn
    }

    pub(super) fn show(&self, answer: &Answer) -> Result<()> {
        match self.is_redrawn {
            true => self.output.write(&drawn(&answer.rendered(self.output.format), size())),
            false => self.output.show(answer),
        }
    }

    pub(super) fn draw(&self, text: &str) {
        let _ = self.output.write(&drawn(text, size()));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.is_redrawn {
            let _ = self.output.write(LEAVE);
        }
    }
}

/// Rows and columns, as they are now.
fn size() -> (usize, usize) {
    let known = tcgetwinsize(std::io::stdout()).ok();
    let known = known.map(|size| (usize::from(size.ws_row), usize::from(size.ws_col)));
    known.filter(|(rows, columns)| *rows > 0 && *columns > 0).unwrap_or((24, 80))
}

/// A line that wraps, or a line too many, would move all others.
fn drawn(text: &str, (rows, columns): (usize, usize)) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let fitting = if lines.len() > rows { rows.saturating_sub(1) } else { lines.len() };
    let mut fitted: Vec<String> =
        lines.iter().take(fitting).map(|line| shortened(line, columns)).collect();
    if fitting < lines.len() {
        fitted.push(shortened(&format!("... and {} more lines", lines.len() - fitting), columns));
    }
    format!("{HOME}{}\x1b[K{CLEAR_BELOW}", fitted.join(CLEAR_LINE))
}

/// Colours take no columns.
fn shortened(line: &str, columns: usize) -> String {
    let (mut text, mut width, mut is_colour) = (String::new(), 0, false);
    for c in line.chars() {
        if c == '\x1b' {
            is_colour = true;
        } else if is_colour {
            is_colour = c != 'm';
        } else if width == columns {
            return text + RESET;
        } else {
            width += 1;
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_cut_to_the_terminal() {
        let text = "one\n\x1b[1mtwo and more\x1b[0m\nthree\nfour";
        assert_eq!(shortened("\x1b[1mtwo and more\x1b[0m", 3), "\x1b[1mtwo\x1b[0m");
        assert_eq!(shortened("exact", 5), "exact");
        let drawn = drawn(text, (3, 30));
        assert!(drawn.starts_with(HOME) && drawn.contains("two and more"), "{drawn:?}");
        assert!(drawn.contains("... and 2 more lines") && !drawn.contains("three"), "{drawn:?}");
    }
}
