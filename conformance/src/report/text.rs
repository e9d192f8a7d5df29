//! On the terminal.

use std::fmt::Write;

use crate::check::{Failure, Stop};
use crate::row::{Row, row};
use crate::runner::Ran;
use crate::verdict::{Verdict, Verdicts, count};

/// One line as a check ends; a failure with all that a person needs.
pub fn progress(ran: &Ran) -> String {
    let rows = ran.check.proves.join(" ");
    let mut text = match &ran.outcome {
        Ok(()) => format!("ok    {}  [{rows}]", ran.check.name),
        Err(Stop::NotApplicable(why)) => format!("n/a   {}  [{rows}]  {why}", ran.check.name),
        Err(Stop::Failed(failure)) => broken(ran, failure),
    };
    for finding in &ran.findings {
        text.push('\n');
        text.push_str(&broken(ran, finding));
    }
    text
}

fn broken(ran: &Ran, failure: &Failure) -> String {
    let rows = failure.row.map_or_else(|| ran.check.proves.join(" "), str::to_owned);
    let mut text = format!("FAIL  {}  [{rows}]\n", ran.check.name);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "      the check {}", ran.check.does);
    for row in rows.split(' ').filter_map(row) {
        let Row { id, level, when, then, .. } = row;
        let _ = writeln!(text, "      {id} ({level}): when {when}: {then}");
    }
    for line in failure.to_string().lines() {
        let _ = writeln!(text, "      {line}");
    }
    text.trim_end().to_owned()
}

/// The last lines: how many rows, and which were broken.
pub fn summary(verdicts: &Verdicts, ran: &[Ran]) -> String {
    let mut text = String::new();
    let counts = |binding: bool| {
        let counts = count(verdicts, |row| !binding || row.level.binds());
        let parts: Vec<_> =
            counts.iter().map(|(word, number)| format!("{number} {word}")).collect();
        parts.join(", ")
    };
    let _ = writeln!(text, "rows: {}", counts(false));
    let _ = writeln!(text, "of them MUST and MUST NOT: {}", counts(true));
    for (row, verdict) in verdicts {
        if let Verdict::Failed(failures) = verdict {
            let checks: Vec<_> = failures.iter().map(|(check, _)| *check).collect();
            let _ = writeln!(text, "broken: {} ({}), by {}", row.id, row.level, checks.join(", "));
        }
    }
    let failed = ran.iter().filter(|ran| ran.broke()).count();
    let skipped = ran.iter().filter(|ran| !ran.broke() && ran.outcome.is_err()).count();
    let passed = ran.len() - failed - skipped;
    let _ = write!(text, "checks: {passed} passed, {failed} failed, {skipped} not applicable");
    text
}
