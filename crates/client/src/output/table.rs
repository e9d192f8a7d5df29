//! Columns for people.

use crate::terminal::{Style, printable};

pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Row>,
}

struct Row {
    cells: Vec<String>,
    /// It needs attention.
    is_bad: bool,
}

impl Table {
    pub(crate) fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.judged_row(cells, false);
    }

    pub(crate) fn judged_row<const N: usize>(&mut self, cells: [String; N], is_bad: bool) {
        let text = |cell: String| if cell.is_empty() { "-".to_owned() } else { printable(&cell) };
        self.rows.push(Row { cells: cells.into_iter().map(text).collect(), is_bad });
    }

    /// `empty` is said in place of a table without rows.
    pub(crate) fn rendered(&self, style: Style, empty: &str) -> String {
        if self.rows.is_empty() {
            return empty.to_owned();
        }
        let width = |column: usize| {
            let cells = self
                .rows
                .iter()
                .filter_map(|row| row.cells.get(column))
                .map(|cell| cell.chars().count());
            cells.chain(self.head.get(column).map(|head| head.len())).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let line = |cells: Vec<&str>| {
            let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let mut text = style.heading(&line(self.head.clone()));
        for row in &self.rows {
            text.push('\n');
            let line = line(row.cells.iter().map(String::as_str).collect());
            text.push_str(&if row.is_bad { style.bad(&line) } else { line });
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["ID", "SIZE"]);
        table.row(["a".to_owned(), "1".to_owned()]);
        table.row(["längér".to_owned(), String::new()]);
        assert_eq!(table.rendered(Style::plain(), "none"), "ID      SIZE\na       1\nlängér  -");
        assert_eq!(Table::new(&["ID"]).rendered(Style::plain(), "none"), "none");
    }

    /// A name with an escape sequence could otherwise hide a line.
    #[test]
    fn control_characters_are_not_printed() {
        let mut table = Table::new(&["ID"]);
        table.row(["a\x1b[2Kb\n".to_owned()]);
        assert_eq!(table.rendered(Style::plain(), ""), "ID\na?[2Kb?");
    }
}
