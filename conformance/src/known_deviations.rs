//! Deviations that are known of a plugin: a file with a line for each row, `ID why`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::row::row;
use crate::verdict::{Verdict, Verdicts};

#[derive(Debug, Clone, Default)]
pub struct KnownDeviations(BTreeMap<String, String>);

impl KnownDeviations {
    pub fn read(file: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let mut known = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (id, why) =
                line.split_once(' ').ok_or(format!("not of the form ID WHY: {line}"))?;
            row(id).ok_or(format!("there is no row {id}"))?;
            if known.insert(id.to_owned(), why.trim().to_owned()).is_some() {
                return Err(format!("{id} has two lines"));
            }
        }
        Ok(Self(known))
    }

    pub fn why(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(String::as_str)
    }

    /// Where the run and the file disagree, each in a sentence.
    pub fn disagreements(&self, verdicts: &Verdicts) -> Vec<String> {
        let mut found = Vec::new();
        for (row, verdict) in verdicts {
            match (matches!(verdict, Verdict::Failed(_)), self.0.contains_key(row.id)) {
                (true, false) => found.push(format!("{} is broken, which is not known", row.id)),
                (false, true) => {
                    found.push(format!(
                        "{} is known to be broken, but is {}",
                        row.id,
                        verdict.word()
                    ));
                }
                (true, true) | (false, false) => {}
            }
        }
        found
    }
}

#[cfg(test)]
#[path = "known_deviations_tests.rs"]
mod tests;
