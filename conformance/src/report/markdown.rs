//! A table for the documentation. Nothing in it changes from one run to the next unless the
//! plugin or the suite did.

use std::fmt::Write;

use crate::known_deviations::KnownDeviations;
use crate::plugin_features::PluginFeatures;
use crate::row::{Row, prefix_of};
use crate::verdict::{Verdict, Verdicts, count};

const WORDS: [&str; 6] =
    ["proven", "FAILED", "not applicable", "tested inside", "not observable", "not run"];

pub fn markdown(
    title: &str,
    about: &str,
    features: &PluginFeatures,
    verdicts: &Verdicts,
    known: Option<&KnownDeviations>,
) -> String {
    let mut text =
        format!("# {title}\n\n{about}\n\nPlugin: `{}` {}.\n", features.name, features.version);
    // Writing to a string cannot fail.
    let _ = write!(text, "\n{}", totals(verdicts));
    let mut prefix = "";
    for (row, verdict) in verdicts {
        if row.prefix() != prefix {
            prefix = prefix_of(row.id);
            let _ = write!(
                text,
                "\n## {prefix}\n\n| ID | level | verdict | how |\n|---|---|---|---|\n"
            );
        }
        let why = known.and_then(|known| known.why(row.id));
        let _ = writeln!(text, "{}", line(row, verdict, why));
    }
    text
}

fn totals(verdicts: &Verdicts) -> String {
    let all = count(verdicts, |_| true);
    let binding = count(verdicts, |row| row.level.binds());
    let mut text = "| verdict | rows | of them MUST, MUST NOT |\n|---|---|---|\n".to_owned();
    for word in WORDS.iter().filter(|word| all.contains_key(*word)) {
        let (rows, bound) = (all.get(word).unwrap_or(&0), binding.get(word).unwrap_or(&0));
        let _ = writeln!(text, "| {word} | {rows} | {bound} |");
    }
    text
}

fn line(row: &Row, verdict: &Verdict, why: Option<&str>) -> String {
    let dagger = if row.chosen { "†" } else { "" };
    let why = why.map(|why| format!(" **Why:** {}", in_a_cell(why))).unwrap_or_default();
    let (id, level, word, how) = (row.id, row.level, verdict.word(), how(verdict));
    format!("| {id} | {level}{dagger} | {word} | {how}{why} |")
}

fn how(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Proven(checks) => code_list(checks),
        Verdict::Failed(failures) => {
            let checks: Vec<_> = failures.iter().map(|(check, _)| *check).collect();
            let expected = failures.first().map_or("", |(_, failure)| failure.expected.as_str());
            format!("{}: expected {}", code_list(&checks), in_a_cell(expected))
        }
        Verdict::NotApplicable(why) => in_a_cell(why),
        Verdict::NotObservable { why, inside: Some(test) } => {
            format!("{}; `{}`", in_a_cell(why), in_a_cell(test))
        }
        Verdict::NotObservable { why, inside: None } => in_a_cell(why),
        Verdict::NotRun => String::new(),
    }
}

fn code_list(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

fn in_a_cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
