//! The part of a request behind the question mark.

use std::collections::BTreeMap;

pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    /// What cannot be decoded is left as it is; of a key that is given twice the last counts.
    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(key), decoded(value))
        });
        Self(pairs.collect())
    }

    /// Empty if it is not given.
    pub(super) fn text(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    pub(super) fn number(&self, key: &str) -> Option<usize> {
        self.text(key).parse().ok()
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let (byte, left) = match (first, after) {
            (b'+', _) => (b' ', after),
            (b'%', [high, low, left @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high * 16 + low, left),
                (_, _) => (b'%', after),
            },
            (other, _) => (*other, after),
        };
        bytes.push(byte);
        rest = left;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_decoded() {
        let query =
            Query::parse("search=%3Cscript%3E+a%26b&start=50&&flag&start=7&odd=%zz%4&u=%C3%A9");
        assert_eq!(query.text("search"), "<script> a&b");
        assert_eq!(query.number("start"), Some(7));
        assert_eq!(query.text("flag"), "");
        assert_eq!(query.text("odd"), "%zz%4");
        assert_eq!(query.text("u"), "é");
        assert_eq!(query.number("search"), None);
        assert_eq!(Query::parse("").number("start"), None);
    }
}
