//! Records under the run directory and the kernel's complaints, read from arbitrary bytes.

use crate::linux::mount_options::without_options;
use crate::linux::run_files::{parse_record, to_text};

/// The first byte says what the rest is.
pub fn node_records(input: &[u8]) {
    match input.split_first() {
        Some((kind, rest)) if kind % 2 == 0 => node_record(rest),
        Some((_, rest)) => hidden_options(&String::from_utf8_lossy(rest)),
        None => {}
    }
}

fn node_record(text: &[u8]) {
    let Ok(record) = parse_record(text) else { return };
    let written = to_text(&record).unwrap_or_default();
    assert_eq!(parse_record(&written).ok(), Some(record));
}

/// The first line is what the kernel said, the others are options that may hold secrets: none of
/// them is left standing as a separate word (GEN-38).
fn hidden_options(text: &str) {
    let mut lines = text.lines();
    let said = lines.next().unwrap_or_default();
    let options: Vec<String> = lines.map(str::to_owned).collect();
    let clean = without_options(said, &options);
    let words = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect()
    };
    // Words that the mark itself brings in say nothing about an option.
    let harmless = ["mount", "option", ""];
    let values = options.iter().filter_map(|option| option.split_once('='));
    for (_, value) in values.filter(|(_, value)| value.chars().all(char::is_alphanumeric)) {
        let stays = words(&clean).iter().any(|word| word == value && !harmless.contains(&value));
        assert!(!stays, "{value:?} is left of {said:?}: {clean:?}");
    }
}

#[cfg(test)]
mod tests;
