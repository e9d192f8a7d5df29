//! Results: a table for people, JSON or YAML for programs, or the ids alone.

mod table;
pub(crate) mod yaml;

use std::io::{ErrorKind, Write};

use serde::Serialize;
use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::terminal::Style;

pub(crate) use table::Table;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// For people; may change between releases
    #[default]
    Table,
    /// For programs; keys are only ever added
    Json,
    /// As json
    Yaml,
    /// The ids alone, one on each line
    Name,
}

/// One result in every form.
pub(crate) struct Answer {
    pub(crate) ids: Vec<String>,
    pub(crate) value: Value,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn new(
        ids: Vec<String>,
        value: &impl Serialize,
        text: impl Into<String>,
    ) -> Result<Self> {
        let value = serde_json::to_value(value)
            .map_err(|error| Failure::failed(format!("cannot write the result: {error}")))?;
        Ok(Self { ids, value, text: text.into() })
    }

    pub(crate) fn rendered(&self, format: Format) -> String {
        let mut text = match format {
            Format::Table => self.text.clone(),
            // Of a value that is one already, this never fails.
            Format::Json => serde_json::to_string_pretty(&self.value).unwrap_or_default(),
            Format::Yaml => yaml::document(&self.value),
            Format::Name => self.ids.join("\n"),
        };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text
    }
}

/// For commands that call no plugin. `text` is the table.
pub fn rendered(format: Format, ids: Vec<String>, value: &impl Serialize, text: String) -> String {
    // Only a value that is no JSON fails, such as a map with keys that are no text.
    let answer = Answer::new(ids, value, text);
    answer.map(|answer| answer.rendered(format)).unwrap_or_default()
}

/// How results are shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) format: Format,
    pub(crate) style: Style,
}

impl Output {
    pub(crate) fn show(&self, answer: &Answer) -> Result<()> {
        self.write(&answer.rendered(self.format))
    }

    pub(crate) fn write(&self, text: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.map_err(|error| match error.kind() == ErrorKind::BrokenPipe {
            true => Failure::OutputClosed,
            false => Failure::failed(format!("cannot write to standard output: {error}")),
        })
    }
}
