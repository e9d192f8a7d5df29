//! What a run says about each row.

use std::collections::BTreeMap;

use crate::check::{Failure, Stop};
use crate::checks::sections;
use crate::internal_tests::InternalTests;
use crate::row::{Row, rows};
use crate::runner::Ran;

#[derive(Debug, Clone)]
pub enum Verdict {
    /// By these checks.
    Proven(Vec<&'static str>),
    Failed(Vec<(&'static str, Failure)>),
    NotApplicable(String),
    /// Not to be seen from outside, and why; then perhaps a test of the plugin's own.
    NotObservable {
        why: &'static str,
        inside: Option<String>,
    },
    /// Nothing was said about it, because the options left it out.
    NotRun,
}

impl Verdict {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Proven(_) => "proven",
            Self::Failed(_) => "FAILED",
            Self::NotApplicable(_) => "not applicable",
            Self::NotObservable { inside: Some(_), .. } => "tested inside",
            Self::NotObservable { inside: None, .. } => "not observable",
            Self::NotRun => "not run",
        }
    }
}

pub type Verdicts = Vec<(&'static Row, Verdict)>;

#[derive(Debug, Default)]
struct Said {
    proven: Vec<&'static str>,
    failed: Vec<(&'static str, Failure)>,
    not_applicable: Vec<String>,
}

/// One verdict for each row of the sheet, in its order.
pub fn verdicts(ran: &[Ran], inside: &InternalTests) -> Verdicts {
    let mut said: BTreeMap<&str, Said> = BTreeMap::new();
    for ran in ran {
        note(&mut said, ran);
    }
    rows().iter().map(|row| (row, verdict(row, said.remove(row.id), inside))).collect()
}

fn note(said: &mut BTreeMap<&'static str, Said>, ran: &Ran) {
    let name = ran.check.name;
    for finding in &ran.findings {
        if let Some(row) = finding.row {
            said.entry(row).or_default().failed.push((name, finding.clone()));
        }
    }
    if let Err(Stop::Failed(failure)) = &ran.outcome
        && let Some(row) = failure.row
    {
        // The check went no further, so it says nothing of its other rows.
        said.entry(row).or_default().failed.push((name, (**failure).clone()));
        return;
    }
    for row in ran.check.proves {
        let said = said.entry(row).or_default();
        match &ran.outcome {
            Ok(()) => said.proven.push(name),
            Err(Stop::Failed(failure)) => said.failed.push((name, (**failure).clone())),
            Err(Stop::NotApplicable(why)) => said.not_applicable.push(why.clone()),
        }
    }
}

fn verdict(row: &Row, said: Option<Said>, inside: &InternalTests) -> Verdict {
    match said {
        Some(said) if !said.failed.is_empty() => Verdict::Failed(said.failed),
        Some(said) if !said.proven.is_empty() => Verdict::Proven(said.proven),
        Some(said) => match said.not_applicable.into_iter().next() {
            Some(why) => Verdict::NotApplicable(why),
            None => Verdict::NotRun,
        },
        None => match unseen(row.id) {
            Some(why) => Verdict::NotObservable { why, inside: inside.of(row.id) },
            None => Verdict::NotRun,
        },
    }
}

/// How many rows have each verdict, of those that a filter keeps.
pub fn count(verdicts: &Verdicts, keep: impl Fn(&Row) -> bool) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for (_, verdict) in verdicts.iter().filter(|(row, _)| keep(row)) {
        *counts.entry(verdict.word()).or_insert(0) += 1;
    }
    counts
}

/// Why no call can show the row.
fn unseen(id: &str) -> Option<&'static str> {
    let all = sections().iter().flat_map(|section| section.unseen);
    all.into_iter().find(|(row, _)| *row == id).map(|(_, why)| *why)
}
