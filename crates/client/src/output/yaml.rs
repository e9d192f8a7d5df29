//! YAML out of a JSON value. Scalars are written as JSON, which every YAML parser reads the same way.

use std::fmt::Write;

use serde_json::Value;

pub(crate) fn document(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(_) | Value::Array(_) if !is_empty(value) => block(&mut text, value, 0),
        Value::Object(_)
        | Value::Array(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_) => {
            text.push_str(&value.to_string());
        }
    }
    text
}

fn block(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) => {
            for (index, (key, field)) in fields.iter().enumerate() {
                if index > 0 {
                    indent(text, depth);
                }
                let _ = write!(text, "{}:", shown_key(key));
                entry(text, field, depth + 1);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    indent(text, depth);
                }
                text.push('-');
                item_of_list(text, item, depth + 1);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let _ = writeln!(text, "{value}");
        }
    }
}

/// After `key:`, a block begins on the next line.
fn entry(text: &mut String, value: &Value, depth: usize) {
    if is_block(value) {
        text.push('\n');
        indent(text, depth);
        block(text, value, depth);
    } else {
        let _ = writeln!(text, " {value}");
    }
}

/// After `-`, it begins on the same line.
fn item_of_list(text: &mut String, value: &Value, depth: usize) {
    text.push(' ');
    if is_block(value) {
        block(text, value, depth);
    } else {
        let _ = writeln!(text, "{value}");
    }
}

/// Without quotes where no parser could take it for anything but text.
fn shown_key(key: &str) -> String {
    const RESERVED: [&str; 7] = ["null", "true", "false", "yes", "no", "on", "off"];
    let is_word = key.len() > 1 && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    match is_word && !RESERVED.contains(&key) {
        true => key.to_owned(),
        false => Value::String(key.to_owned()).to_string(),
    }
}

fn indent(text: &mut String, depth: usize) {
    text.extend(std::iter::repeat_n("  ", depth));
}

fn is_block(value: &Value) -> bool {
    (value.is_object() || value.is_array()) && !is_empty(value)
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
        || value.as_object().is_some_and(serde_json::Map::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_maps_nest() {
        let value = serde_json::json!({
            "id": "v: 1", "nodes": ["a", "no"], "none": [], "tags": {"x": 1, "no": {"z": null}},
            "list": [{"aa": 1, "bb": [2, 3]}, {}],
        });
        let expected = "id: \"v: 1\"\nlist:\n  - aa: 1\n    bb:\n      - 2\n      - 3\n  - {}\n\
            nodes:\n  - \"a\"\n  - \"no\"\nnone: []\ntags:\n  \"no\":\n    \"z\": null\n  \"x\": 1\n";
        assert_eq!(document(&value), expected);
        assert_eq!(document(&serde_json::json!([])), "[]");
    }
}
