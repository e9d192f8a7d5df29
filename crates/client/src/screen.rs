//! The output of `orlop top` and of `--watch`: redrawn on a terminal, otherwise one table after another.

use std::io::IsTerminal;

use rustix::termios::tcgetwinsize;

use crate::failure::Result;
use crate::output::{Answer, Format, Output};
use crate::terminal::note;

/// Switches to the alternate screen, which keeps the terminal's contents, and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Moves the cursor to the first line. What is left of the previous table is cleared at the end.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K\r\n";
const CLEAR_BELOW: &str = "\x1b[J";
const RESET: &str = "\x1b[0m";

pub(crate) struct Screen {
    output: Output,
    is_redrawn: bool,
}

impl Screen {
    pub(crate) fn open(output: &Output, is_endless: bool) -> Self {
        let is_table = output.format == Format::Table;
        let is_redrawn = is_endless && is_table && std::io::stdout().is_terminal();
        let screen = Self { output: *output, is_redrawn };
        if is_redrawn {
            // If the terminal cannot be written to, the first table reports it.
            let _ = output.write(ENTER);
        }
        screen
    }

    pub(crate) fn show(&self, answer: &Answer) -> Result<()> {
        match self.is_redrawn {
            true => self.output.write(&drawn(&answer.rendered(self.output.format), size())),
            false => self.output.show(answer),
        }
    }

    /// On a redrawn screen, the line stays until the next table.
    pub(crate) fn say(&self, text: &str) {
        match self.is_redrawn {
            true => {
                let _ = self.output.write(&drawn(text, size()));
            }
            false => note(&text),
        }
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

/// Cuts the text to the terminal: a line that wraps, or one too many, would move the others.
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
