//! Tests of the plugin's own, for what cannot be seen from outside: a file with a line for each
//! row, `ID path/of/source.rs test_name`. A line counts only if that source has that test.

use std::collections::BTreeMap;
use std::path::Path;

use crate::row::row;

#[derive(Debug, Clone, Default)]
pub struct InternalTests(BTreeMap<String, String>);

impl InternalTests {
    /// The test that shows it, as `path/of/source.rs: test_name`.
    pub fn of(&self, id: &str) -> Option<String> {
        self.0.get(id).cloned()
    }

    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Paths in the file are relative to `root`.
    pub fn read(file: &Path, root: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let mut found = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (id, shown) = parse(line, root)?;
            if found.insert(id.clone(), shown).is_some() {
                return Err(format!("{id} has two lines"));
            }
        }
        Ok(Self(found))
    }
}

fn parse(line: &str, root: &Path) -> Result<(String, String), String> {
    let words: Vec<_> = line.split_whitespace().collect();
    let [id, path, test] = words.as_slice() else {
        return Err(format!("not of the form ID PATH TEST: {line}"));
    };
    if row(id).is_none() {
        return Err(format!("there is no row {id}"));
    }
    let source = std::fs::read_to_string(root.join(path))
        .map_err(|error| format!("{id}: cannot read {path}: {error}"))?;
    if !source.contains(&format!("fn {test}(")) {
        return Err(format!("{id}: {path} has no test {test}"));
    }
    Ok(((*id).to_owned(), format!("{path}: {test}")))
}

#[cfg(test)]
#[path = "internal_tests_tests.rs"]
mod tests;
