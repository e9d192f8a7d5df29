//! Tables in Markdown.

use std::fmt::Write;
use std::path::Path;

use super::figure::{Figure, digits};
use super::targets::Verdict;
use crate::experiments::WAYS;
use crate::results::{Results, Row, Section, Unit};
use crate::series::Series;

const NOTHING: &str = "";

pub(crate) fn targets(verdicts: &[Verdict]) -> String {
    if verdicts.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "## Targets\n\n| figure | target | this run | floor | |\n|---|---|---|---|---|\n",
    );
    for Verdict { title, wanted, found, floor, kept } in verdicts {
        let _ = writeln!(text, "| {title} | {wanted} | {found} | {floor} | {kept} |");
    }
    text
}

pub(crate) fn sections(results: &Results, verdicts: &[Verdict]) -> String {
    let sections = results.sections.iter().filter(|section| !section.rows.is_empty());
    sections
        .map(|section| table(section, &results.peer_short, verdicts))
        .collect::<Vec<_>>()
        .join("\n")
}

fn table(section: &Section, peer: &str, verdicts: &[Verdict]) -> String {
    let mut text = format!(
        "## {}\n\n{}\n\n| operation | Orlop | {peer} | ratio | floor | of the floor | target |\n\
         |---|--:|--:|--:|--:|--:|---|\n",
        section.title, section.about
    );
    for row in &section.rows {
        let cells =
            [cell(row, &row.ours), cell(row, &row.peer), better(row), cell(row, &row.floor)];
        let multiple = multiple_of_floor(row);
        let title = match &row.note {
            Some(note) => format!("{} ({note})", row.title()),
            None => row.title(),
        };
        let target = target(&row.title(), verdicts);
        let _ = writeln!(text, "| {title} | {} | {multiple} | {target} |", cells.join(" | "));
    }
    text
}

fn target(title: &str, verdicts: &[Verdict]) -> String {
    let of_this = verdicts.iter().filter(|verdict| verdict.title == title);
    let texts: Vec<String> = of_this.map(|v| format!("{}: {}", v.wanted, v.kept)).collect();
    texts.join("; ")
}

fn cell(row: &Row, series: &Option<Series>) -> String {
    let Some(series) = series else {
        return NOTHING.to_owned();
    };
    let median = Figure(row.unit, series.median());
    match (row.unit, series.len()) {
        // What is slow in a rate, or one sample alone, has no percentile.
        (Unit::Rate | Unit::Bytes | Unit::Throughput, _) | (_, 1) => median.to_string(),
        (Unit::Time, _) => format!("{median} / {}", Figure(row.unit, series.p99())),
    }
}

fn better(row: &Row) -> String {
    let (Some(ours), Some(peer)) = (&row.ours, &row.peer) else {
        return NOTHING.to_owned();
    };
    match row.unit {
        Unit::Time | Unit::Bytes => peer.ratio_to(ours),
        Unit::Rate | Unit::Throughput => ours.ratio_to(peer),
    }
    .to_string()
}

fn multiple_of_floor(row: &Row) -> String {
    let (Some(ours), Some(floor)) = (&row.ours, &row.floor) else {
        return NOTHING.to_owned();
    };
    match row.unit {
        Unit::Time | Unit::Bytes => ours.ratio_to(floor),
        Unit::Rate | Unit::Throughput => floor.ratio_to(ours),
    }
    .to_string()
}

pub(crate) fn io(results: &Results) -> String {
    if results.io.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "## I/O\n\nBy fio with direct I/O: through a published block volume of either driver, a \
         bare loop device with direct I/O, and a bare file on the same XFS. host-path's loop \
         devices go through the page cache, so its reads may never reach the disk. The ratios are \
         geometric means of those of the rounds, in which all but host-path take their turns, \
         without the most extreme third. There are two \
         bare loop devices of the same making: Orlop is compared with both, and what they differ by \
         is what the disk alone does to such a ratio.\n\n\
         | job | Orlop | {} | bare loop | bare file | Orlop to both bare loops | second bare loop \
         to the first | Orlop to bare file |\n|---|--:|--:|--:|--:|--:|--:|--:|\n",
        results.peer_short
    );
    for row in &results.io {
        let figures = [&row.ours, &row.peer, &row.bare_loop, &row.bare_file]
            .map(|series| Figure(row.unit, series.median()).to_string());
        let to_file = row.ours.ratio_by_round(&row.bare_file);
        let ratios = [row.to_bare_loops(), row.between_bare_loops(), to_file];
        let ratios = ratios.map(|ratio| ratio.to_string());
        let _ =
            writeln!(text, "| {} | {} | {} |", row.job, figures.join(" | "), ratios.join(" | "));
    }
    text
}

pub(crate) fn queues(results: &Results) -> String {
    if results.queues.is_empty() {
        return String::new();
    }
    let ublk = match Path::new("/dev/ublk-control").exists() {
        true => "ublk, which this kernel has, hands it to a thread of a process instead",
        false => {
            "ublk would hand it to a thread of a process instead; this kernel does not have it"
        }
    };
    let mut text = format!(
        "### What stands between a bare loop device and its file\n\nNone of these figures is of an \
         Orlop volume. The same data by several ways, in brackets as a multiple of the file's \
         figure. A loop device hands each operation to a thread of the kernel. io_uring can do \
         the same with a file (`force_async`): where that is as slow as the loop device, the \
         handing over is what it costs, and no setting of the device takes that away. {ublk}.\n\n| job | {} |\n|---|{}\n",
        WAYS.join(" | "),
        "--:|".repeat(WAYS.len())
    );
    for row in &results.queues {
        let [file, ..] = &row.figures;
        let texts = row.figures.each_ref().map(|series| {
            let of_file = digits(series.median() / file.median());
            format!("{} ({of_file}x)", Figure(row.unit, series.median()))
        });
        let _ = writeln!(text, "| {} | {} |", row.job, texts.join(" | "));
    }
    text
}

pub(crate) fn bare_calls(results: &Results) -> String {
    if results.bare_calls.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "## The bare calls\n\nWhat the floors are made of: on empty images of 1 GiB, and FICLONE of 64 MiB of data.\n\n\
         | call | median | 99th percentile |\n|---|--:|--:|\n",
    );
    for (call, series) in &results.bare_calls {
        let [median, p99] = [series.median(), series.p99()].map(|time| Figure(Unit::Time, time));
        let _ = writeln!(text, "| {call} | {median} | {p99} |");
    }
    text
}
