//! Paths that callers name on the node.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// An absolute path without `.`, `..`, doubled slashes or control characters, short enough for the
/// kernel.
/// Links in it are dealt with when it is opened, not here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TargetPath(String);

impl TargetPath {
    /// PATH_MAX without the final NUL.
    const LONGEST: usize = 4095;

    pub fn parse(field: &'static str, text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::invalid(field, "is missing"));
        }
        if !text.starts_with('/') {
            return Err(Error::invalid(field, "is not an absolute path"));
        }
        // Paths stand in messages and in lines of logs, which have to stay lines.
        if text.len() > Self::LONGEST || text.contains(char::is_control) {
            return Err(Error::invalid(
                field,
                "is longer than a path can be, or holds control characters",
            ));
        }
        let mut clean = PathBuf::from("/");
        for component in Path::new(text).components() {
            match component {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(part) => clean.push(part),
                Component::ParentDir | Component::Prefix(_) => {
                    return Err(Error::invalid(field, "holds '..'"));
                }
            }
        }
        if clean == Path::new("/") {
            return Err(Error::invalid(field, "is the root directory"));
        }
        // Built from a &str, piece by piece: still UTF-8.
        Ok(Self(clean.to_string_lossy().into_owned()))
    }

    /// Is one of them the other, or in it?
    pub fn overlaps(&self, other: &Self) -> bool {
        self.as_path().starts_with(other.as_path()) || other.as_path().starts_with(self.as_path())
    }

    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl TryFrom<String> for TargetPath {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::parse("path", &text)
    }
}

impl From<TargetPath> for String {
    fn from(path: TargetPath) -> String {
        path.0
    }
}

impl fmt::Display for TargetPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn relative_and_dotdot_paths_are_refused() {
        for text in ["", "rel/path", "/a/../b", "/", "//", "/..", "a", "/nul\0byte", "/a\nb"] {
            assert!(TargetPath::parse("target_path", text).is_err(), "{text:?}");
        }
        assert!(TargetPath::parse("target_path", &format!("/{}", "x/".repeat(2100))).is_err());
    }

    #[test]
    fn paths_overlap_by_whole_components() {
        let overlap = |a: &str, b: &str| {
            let parsed = |text| TargetPath::parse("p", text).unwrap();
            parsed(a).overlaps(&parsed(b))
        };
        assert!(overlap("/a/b", "/a/b/") && overlap("/a", "/a/b") && overlap("/a/b/c", "/a"));
        assert!(!overlap("/a/b", "/a/bc") && !overlap("/a/b", "/a/c"));
    }

    #[test]
    fn equivalent_paths_compare_equal() {
        let plain = TargetPath::parse("p", "/a/b").unwrap();
        assert_eq!(TargetPath::parse("p", "/a//b/").unwrap(), plain);
        assert_eq!(TargetPath::parse("p", "/a/./b").unwrap(), plain);
    }
}
