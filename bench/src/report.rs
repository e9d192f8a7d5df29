//! The figures as a page with tables and plots.

mod figure;
mod machine;
mod panels;
mod plot;
mod tables;
mod targets;

use std::path::Path;

use crate::results::{IoRow, QueueRow, Results, Row};
use figure::Figure;

/// One row, while the run goes on.
pub(crate) fn line(row: &Row) -> String {
    let figures = [("", &row.ours), ("peer ", &row.peer), ("floor ", &row.floor)];
    let texts: Vec<String> = figures
        .into_iter()
        .filter_map(|(who, series)| {
            let series = series.as_ref()?;
            Some(format!("{who}{}", Figure(row.unit, series.median())))
        })
        .collect();
    format!("    {:<48} {}", row.title(), texts.join(", "))
}

pub(crate) fn io_line(row: &IoRow) -> String {
    let texts = [&row.ours, &row.peer, &row.bare_loop, &row.bare_file]
        .map(|series| Figure(row.unit, series.median()).to_string());
    format!("    {:<48} {}", row.job, texts.join(", "))
}

pub(crate) fn queue_line(row: &QueueRow) -> String {
    let texts = row.figures.each_ref().map(|series| Figure(row.unit, series.median()).to_string());
    format!("    {:<48} {}", row.job, texts.join(", "))
}

/// Writes the page, and its plots beside it.
pub(crate) fn write(results: &Results, page: &Path) {
    let directory = page.parent().expect("a report has a directory");
    std::fs::create_dir_all(directory).expect("make the report's directory");
    let stem = page.file_stem().and_then(|stem| stem.to_str()).expect("a report has a name");
    let mut plots = Vec::new();
    for panels in panels::all(results) {
        let name = format!("{stem}-{}.svg", panels.name);
        std::fs::write(directory.join(&name), plot::svg(&panels)).expect("write a plot");
        plots.push(format!("![{}]({name})\n", panels.title));
    }
    let verdicts = targets::verdicts(results);
    let parts = [
        machine::introduction(results),
        tables::targets(&verdicts),
        plots.join("\n"),
        tables::sections(results, &verdicts),
        tables::io(results),
        tables::queues(results),
        tables::bare_calls(results),
    ];
    let parts = parts.into_iter().chain(kept(page));
    let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
    std::fs::write(page, parts.join("\n")).expect("write the report");
    println!("{}", page.display());
}

/// The section that another run writes.
fn kept(page: &Path) -> Option<String> {
    let text = std::fs::read_to_string(page).ok()?;
    text.find(crate::lvm::TITLE).map(|begin| text[begin..].to_owned())
}
