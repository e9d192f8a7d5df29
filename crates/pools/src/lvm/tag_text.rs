//! JSON in the characters that LVM allows in a tag: letters, digits and `_+.-/=!:&#`.
//!
//! ```text
//! {"name": "db 1", "capacity_bytes": 1024, "flags": ["ro"], "published": {}}
//! name=db#201&capacity_bytes:1024&flags/0=ro&published!
//! ```
//!
//! Each leaf is one entry: where it is, and its value. `.` leads into an object, `/` into an array; `=` is followed by a
//! string, `:` by a number, `true`, `false` or `null`; `!` stands for an empty object, `!!` for an empty array. What is
//! neither a letter, a digit nor one of a few others is `#` with two hexadecimal digits, byte by byte. It can be read
//! by an operator who has only `lvs -o +lv_tags`, which the metadata area pays for with fewer bytes than JSON takes.

use serde_json::{Map, Value};

/// Deeper than any record. What is read may be anything.
const DEEPEST: usize = 16;

/// Of an object; nothing else can be written.
pub(super) fn write(object: &Map<String, Value>) -> String {
    let mut text = String::new();
    for (key, value) in object {
        write_entries(&escaped(key), value, &mut text);
    }
    text
}

fn write_entries(path: &str, value: &Value, text: &mut String) {
    let leaf = match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                write_entries(&format!("{path}.{}", escaped(key)), value, text);
            }
            return;
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, value) in items.iter().enumerate() {
                write_entries(&format!("{path}/{index}"), value, text);
            }
            return;
        }
        Value::Object(_) => "!".to_owned(),
        Value::Array(_) => "!!".to_owned(),
        Value::String(string) => format!("={}", escaped_string(string)),
        Value::Null | Value::Bool(_) | Value::Number(_) => format!(":{value}"),
    };
    if !text.is_empty() {
        text.push('&');
    }
    text.push_str(path);
    text.push_str(&leaf);
}

fn escaped(key: &str) -> String {
    escape(key, b"_-+")
}

/// More is plain in a string: nothing follows it but the next entry.
fn escaped_string(string: &str) -> String {
    escape(string, b"_-+./=:!")
}

fn escape(text: &str, plain: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("#{byte:02X}"));
        }
    }
    escaped
}

fn unescaped(text: &str) -> Result<String, String> {
    let malformed = || format!("{text:?} is not escaped as it should be");
    let mut parts = text.split('#');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, plain) = part.split_at_checked(2).ok_or_else(malformed)?;
        bytes.push(u8::from_str_radix(code, 16).map_err(|_| malformed())?);
        bytes.extend_from_slice(plain.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| malformed())
}

/// The error says why it is no such text.
pub(super) fn read(text: &str) -> Result<Map<String, Value>, String> {
    let mut object = Map::new();
    for entry in text.split('&').filter(|_| !text.is_empty()) {
        let end = entry.find(['=', ':', '!']).ok_or_else(|| format!("{entry:?} has no value"))?;
        let (path, leaf) = entry.split_at(end);
        let steps = steps(path);
        if steps.len() > DEEPEST {
            return Err(format!("{path} has more than {DEEPEST} levels"));
        }
        read_leaf(leaf)
            .and_then(|leaf| insert_field(&mut object, &steps, leaf))
            .map_err(|reason| format!("{path} {reason}"))?;
    }
    Ok(object)
}

fn read_leaf(leaf: &str) -> Result<Value, String> {
    if let Some(string) = leaf.strip_prefix('=') {
        return unescaped(string).map(Value::String);
    }
    match leaf {
        "!" => return Ok(Value::Object(Map::new())),
        "!!" => return Ok(Value::Array(Vec::new())),
        _ => {}
    }
    let is_scalar = |value: &Value| value.is_null() || value.is_boolean() || value.is_number();
    let value = leaf.strip_prefix(':').and_then(|literal| serde_json::from_str(literal).ok());
    value.filter(is_scalar).ok_or_else(|| format!("has no value in {leaf:?}"))
}

/// From the root to a leaf.
#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Item(&'a str),
}

impl Step<'_> {
    fn empty_container(self) -> Value {
        match self {
            Self::Field(_) => Value::Object(Map::new()),
            Self::Item(_) => Value::Array(Vec::new()),
        }
    }
}

fn steps(path: &str) -> Vec<Step<'_>> {
    let (mut steps, mut rest, mut kind) = (Vec::new(), path, '.');
    loop {
        let end = rest.find(['.', '/']);
        let name = &rest[..end.unwrap_or(rest.len())];
        steps.push(if kind == '/' { Step::Item(name) } else { Step::Field(name) });
        let Some(end) = end else { return steps };
        kind = char::from(rest.as_bytes()[end]);
        rest = &rest[end + 1..];
    }
}

fn insert(container: &mut Value, steps: &[Step<'_>], leaf: Value) -> Result<(), String> {
    if let Value::Object(fields) = container {
        insert_field(fields, steps, leaf)
    } else if let Value::Array(items) = container {
        insert_item(items, steps, leaf)
    } else {
        Err("is in what has a value already".to_owned())
    }
}

fn insert_field(
    fields: &mut Map<String, Value>,
    steps: &[Step<'_>],
    leaf: Value,
) -> Result<(), String> {
    let [Step::Field(key), rest @ ..] = steps else {
        return Err("is an item of what is an object".to_owned());
    };
    let key = unescaped(key)?;
    match rest {
        [] if fields.contains_key(&key) => Err("occurs twice".to_owned()),
        [] => {
            fields.insert(key, leaf);
            Ok(())
        }
        [next, ..] => {
            let inner = fields.entry(key).or_insert_with(|| next.empty_container());
            insert(inner, rest, leaf)
        }
    }
}

/// Items come one after the other.
fn insert_item(items: &mut Vec<Value>, steps: &[Step<'_>], leaf: Value) -> Result<(), String> {
    let [Step::Item(index), rest @ ..] = steps else {
        return Err("is a field of what is an array".to_owned());
    };
    let index: usize = index.parse().map_err(|_| "has no number for an item".to_owned())?;
    if index == items.len() {
        items.push(rest.first().map_or(Value::Null, |next| next.empty_container()));
    } else if index + 1 != items.len() || rest.is_empty() {
        return Err("is out of order".to_owned());
    }
    match (items.last_mut(), rest) {
        (Some(item), []) => {
            *item = leaf;
            Ok(())
        }
        (Some(item), rest) => insert(item, rest, leaf),
        (None, _) => Err("is out of order".to_owned()),
    }
}

#[cfg(test)]
mod tests;
