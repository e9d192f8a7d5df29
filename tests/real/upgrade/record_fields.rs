//! Which fields the records have, whatever is in them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::upgrade::fixture::files_below;

/// The fields of each file that is JSON, by its name without what differs from pool to pool.
pub(crate) type Shapes = BTreeMap<String, BTreeSet<String>>;

pub(crate) fn of_tree(root: &Path) -> Shapes {
    let mut shapes = Shapes::new();
    for path in files_below(root) {
        let small = fs::metadata(&path).is_ok_and(|found| found.len() < 64 << 10);
        let Some(text) = small.then(|| fs::read(&path).unwrap()) else { continue };
        let Ok(value) = serde_json::from_slice::<Value>(&text) else { continue };
        let mut fields = BTreeSet::new();
        collect(&value, "", &mut fields);
        shapes.entry(name_of(&path)).or_default().extend(fields);
    }
    shapes
}

/// What is new, what is missing.
pub(crate) fn differences(known: &Shapes, written: &Shapes) -> Vec<String> {
    let mut found = Vec::new();
    for name in known.keys().chain(written.keys()).collect::<BTreeSet<_>>() {
        match (known.get(name), written.get(name)) {
            (Some(known), Some(written)) => {
                found.extend(written.difference(known).map(|field| format!("{name}: new {field}")));
                found.extend(known.difference(written).map(|field| format!("{name}: no {field}")));
            }
            (None, _) => found.push(format!("{name} is new")),
            (_, None) => found.push(format!("{name} is missing")),
        }
    }
    found
}

/// Directory, file and digest; the id of the pool stands in the middle of each id. The name of a
/// member of a group snapshot depends on the pool, so all snapshots count as one.
fn name_of(path: &Path) -> String {
    let names: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    let last: Vec<_> = names.iter().rev().take(3).rev().map(|part| without_pool(part)).collect();
    match last.as_slice() {
        [directory, _, file] if directory == "snapshots" => format!("{directory}/{file}"),
        // A marker has the pool's id as its name.
        [.., directory, _] if directory == "pools" => directory.clone(),
        // One of a device has its number.
        [.., directory, _] if directory == "io-before" => directory.clone(),
        [directory, id, file] if file == "record.json" => format!("{directory}/{id}/{file}"),
        [.., directory, file] => format!("{directory}/{file}"),
        other => other.join("/"),
    }
    // The pool itself has another name in each test.
    .trim_start_matches("pool/")
    .to_owned()
}

fn without_pool(name: &str) -> String {
    match name.splitn(3, '-').collect::<Vec<_>>()[..] {
        [kind @ ("v" | "s" | "g" | "gs"), _, digest] => format!("{kind}-{digest}"),
        _ => name.to_owned(),
    }
}

fn collect(value: &Value, at: &str, fields: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => {
            for (key, inner) in entries {
                collect(inner, &format!("{at}.{key}"), fields);
            }
        }
        Value::Array(items) => items.iter().for_each(|inner| collect(inner, at, fields)),
        Value::Null => drop(fields.insert(format!("{at}: null"))),
        Value::Bool(_) => drop(fields.insert(format!("{at}: bool"))),
        Value::Number(_) => drop(fields.insert(format!("{at}: number"))),
        // States and kinds are named by text; ids and paths are not the same twice.
        Value::String(text) if is_word(text) => drop(fields.insert(format!("{at}: {text}"))),
        Value::String(_) => drop(fields.insert(format!("{at}: text"))),
    }
}

fn is_word(text: &str) -> bool {
    text.len() <= 24 && text.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
}
