//! `--secrets-file`: what a plugin asks of its callers. Never on the command line, where others see it.

use std::collections::BTreeMap;
use std::path::Path;

use orlop_sys::file;

use crate::failure::{Failure, Result};

const MAX_BYTES: usize = 1 << 20;

pub(crate) fn read(path: &Path) -> Result<BTreeMap<String, String>> {
    let wrong = |why: String| {
        Failure::usage(format!("cannot read the secrets in {}: {why}", path.display()))
    };
    let bytes =
        file::read_at_most(path, MAX_BYTES).map_err(|error| wrong(error.cause().to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not text".to_owned()))?;
    // What is wrong with them is not shown: a message must not repeat a secret.
    parse(&text).ok_or_else(|| {
        wrong("it is neither a JSON object of texts nor lines of key=value".to_owned())
    })
}

fn parse(text: &str) -> Option<BTreeMap<String, String>> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).ok();
    }
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let pairs = lines.map(|line| {
        line.split_once('=').map(|(key, value)| (key.trim().to_owned(), value.to_owned()))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_json_or_lines() {
        let expected = BTreeMap::from([("user".to_owned(), "a=b".to_owned())]);
        assert_eq!(parse("# for tests\nuser=a=b\n\n"), Some(expected.clone()));
        assert_eq!(parse(" {\"user\": \"a=b\"}"), Some(expected));
        assert_eq!(parse("user"), None);
        assert_eq!(parse("{\"user\": 1}"), None);
    }
}
