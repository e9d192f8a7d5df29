//! Names that callers give to volumes and snapshots.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Any text of 1 to 128 bytes without the control characters that CSI bans (CV-06, CS-12).
/// Tab, line feed and carriage return are allowed; no name ever becomes a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectName(String);

impl ObjectName {
    pub const LONGEST: usize = 128;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_banned(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n' | '\r')
}

impl FromStr for ObjectName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::invalid("name", "is missing"));
        }
        if text.len() > Self::LONGEST {
            return Err(Error::invalid("name", "is longer than 128 bytes"));
        }
        if text.chars().any(is_banned) {
            return Err(Error::invalid("name", "holds control characters"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for ObjectName {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<ObjectName> for String {
    fn from(name: ObjectName) -> String {
        name.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_banned_range_is_refused() {
        for code in (0..=8).chain([0xb, 0xc]).chain(0xe..=0x1f).chain(0x7f..=0x9f) {
            let name = format!("a{}b", char::from_u32(code).unwrap());
            assert!(name.parse::<ObjectName>().is_err(), "U+{code:04X}");
        }
    }

    #[test]
    fn allowed_text_is_unchanged() {
        for name in ["../x", "a/b", "é", "🐙", "tab\there", "cr\r\n", ".", "-rf", " "] {
            assert_eq!(name.parse::<ObjectName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn the_limit_counts_bytes() {
        assert!("x".repeat(128).parse::<ObjectName>().is_ok());
        assert!("x".repeat(129).parse::<ObjectName>().is_err());
        assert!("é".repeat(65).parse::<ObjectName>().is_err());
    }
}
