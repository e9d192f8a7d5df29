//! The list of files that differ. Differences are kept until the end, up to a limit, because a removed file may turn out
//! to be renamed; beyond the limit they are written as they are found.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;

use serde_json::{Value, json};

use crate::failure::Result;
use crate::output::{Format, Output, yaml};
use crate::progress::Progress;
use crate::terminal::note;
use crate::tree_diff::{ChangeKind, Difference, FileKind, Visitor, escaped};

/// With more differences than this, renamed files are listed as removed and added.
const MAX_KEPT: usize = 100_000;

pub(super) struct Report {
    output: Output,
    base: String,
    target: String,
    kept: Vec<Difference>,
    is_streaming: bool,
    has_written: bool,
    counts: Counts,
    visited: u64,
    progress: Progress,
}

#[derive(Default)]
struct Counts {
    added: u64,
    removed: u64,
    changed: u64,
    renamed: u64,
}

impl Report {
    /// `old` is where the older snapshot is mounted: what is in it says how long the comparison takes.
    pub(super) fn new(output: Output, base: &str, target: &str, old: &Path) -> Self {
        let files = rustix::fs::statvfs(old);
        let files = files.map_or(0, |space| space.f_files.saturating_sub(space.f_ffree));
        Self {
            output,
            base: base.to_owned(),
            target: target.to_owned(),
            kept: Vec::new(),
            is_streaming: false,
            has_written: false,
            counts: Counts::default(),
            visited: 0,
            progress: Progress::of_files("compare", files),
        }
    }

    pub(super) fn begin(&mut self) -> Result<()> {
        let (base, target) = (json!(self.base), json!(self.target));
        match self.output.format {
            Format::Json => self.output.write(&format!(
                "{{\n  \"base\": {base},\n  \"snapshot\": {target},\n  \"files\": ["
            )),
            Format::Yaml => self.output.write(&format!("base: {base}\nsnapshot: {target}\n")),
            Format::Table | Format::Name => Ok(()),
        }
    }

    pub(super) fn end(mut self) -> Result<()> {
        self.write_kept()?;
        let Counts { added, removed, changed, renamed } = self.counts;
        let totals =
            json!({"added": added, "removed": removed, "changed": changed, "renamed": renamed});
        self.output.write(&match self.output.format {
            Format::Json => {
                let bracket = if self.has_written { "\n  ]" } else { "]" };
                format!("{bracket},\n  \"totals\": {totals}\n}}\n")
            }
            Format::Yaml => {
                let none = if self.has_written { "" } else { "files: []\n" };
                format!("{none}{}", yaml::document(&json!({ "totals": totals })))
            }
            Format::Table => {
                format!("{added} added, {removed} removed, {changed} changed, {renamed} renamed\n")
            }
            Format::Name => String::new(),
        })
    }

    /// In the order in which they were found; what was renamed stands at its new name.
    fn write_kept(&mut self) -> Result<()> {
        for difference in with_renames(std::mem::take(&mut self.kept)) {
            self.write(&difference)?;
        }
        Ok(())
    }

    fn write(&mut self, difference: &Difference) -> Result<()> {
        let count = match difference.what {
            ChangeKind::Added => &mut self.counts.added,
            ChangeKind::Removed => &mut self.counts.removed,
            ChangeKind::Changed => &mut self.counts.changed,
            ChangeKind::Renamed => &mut self.counts.renamed,
        };
        *count += 1;
        if std::io::stdout().is_terminal() {
            self.progress.clear();
        }
        let text = match self.output.format {
            Format::Json => {
                let comma = if self.has_written { "," } else { "" };
                format!("{comma}\n    {}", value(difference))
            }
            Format::Yaml => {
                let head = if self.has_written { "" } else { "files:\n" };
                format!("{head}{}", yaml::document(&json!([value(difference)])))
            }
            Format::Table => line(difference),
            Format::Name => format!("{}\n", escaped(&difference.path)),
        };
        self.has_written = true;
        self.output.write(&text)
    }
}

impl Visitor for Report {
    fn found(&mut self, difference: Difference) -> Result<()> {
        if !self.is_streaming {
            self.kept.push(difference);
            if self.kept.len() < MAX_KEPT {
                return Ok(());
            }
            self.is_streaming = true;
            note(&format_args!(
                "there are more than {MAX_KEPT} differences: files that were renamed are listed as removed and added"
            ));
            return self.write_kept();
        }
        self.write(&difference)
    }

    fn visited(&mut self) {
        self.visited += 1;
        self.progress.at(self.visited);
    }
}

/// A file that was removed and one that was added with the same identity are one renamed file. Files with several names
/// stay as removed and added.
fn with_renames(mut all: Vec<Difference>) -> Vec<Difference> {
    let mut removed: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut added: BTreeMap<u64, usize> = BTreeMap::new();
    for (index, difference) in all.iter().enumerate() {
        let inode = difference.identity.inode();
        match difference.what {
            ChangeKind::Removed => removed.entry(inode).or_default().push(index),
            ChangeKind::Added => *added.entry(inode).or_default() += 1,
            ChangeKind::Changed | ChangeKind::Renamed => {}
        }
    }
    let mut gone = vec![false; all.len()];
    for index in 0..all.len() {
        let (identity, what) = (all[index].identity, all[index].what);
        if what != ChangeKind::Added || added.get(&identity.inode()) != Some(&1) {
            continue;
        }
        if let Some([before]) = removed.get(&identity.inode()).map(Vec::as_slice)
            && all[*before].identity.is_same(&identity)
        {
            gone[*before] = true;
            all[index].from = Some(all[*before].path.clone());
            all[index].what = ChangeKind::Renamed;
        }
    }
    all.into_iter().zip(gone).filter(|(_, gone)| !gone).map(|(difference, _)| difference).collect()
}

fn path_text(path: &[u8], kind: FileKind) -> String {
    let slash = if kind == FileKind::Directory { "/" } else { "" };
    format!("{}{slash}", escaped(path))
}

fn line(difference: &Difference) -> String {
    let path = path_text(&difference.path, difference.kind);
    match (difference.what, &difference.from) {
        (ChangeKind::Renamed, Some(from)) => {
            format!("renamed  {} -> {path}\n", path_text(from, difference.kind))
        }
        (ChangeKind::Added, _) => format!("added    {path}\n"),
        (ChangeKind::Removed, _) => format!("removed  {path}\n"),
        (ChangeKind::Changed | ChangeKind::Renamed, _) => {
            format!("changed  {path} ({})\n", difference.respects.join(", "))
        }
    }
}

fn value(difference: &Difference) -> Value {
    let mut value = json!({
        "change": difference.what, "type": difference.kind, "path": escaped(&difference.path),
    });
    if let Some(fields) = value.as_object_mut() {
        if let Some(from) = &difference.from {
            fields.insert("from".to_owned(), json!(escaped(from)));
        }
        if difference.what == ChangeKind::Changed {
            fields.insert("respects".to_owned(), json!(difference.respects));
        }
    }
    value
}
