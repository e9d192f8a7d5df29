//! What is where in a volume group; docs/decisions/0063 has the reasons.
//!
//! ```text
//! THIN-POOL                      the thin pool that the operator named; among its tags
//!     orlop1:pool:POOL           the pool header: the format of all these tags, and the pool's id
//!     orlop1:gs-POOL-DIGEST:...  pieces of the record of a group snapshot
//!     orlop1:g-POOL-DIGEST:...   pieces of the record of a volume group
//! v-POOL-DIGEST                  a logical volume: a volume, thin or thick; among its tags
//!     orlop1:STATE               draft, whole or deleted
//!     orlop1:record:...          pieces of its record, if it is whole
//! s-POOL-DIGEST                  a thin snapshot, with tags as a volume has them
//! ```
//!
//! A piece is `KEY:INDEX/COUNT:CHECKSUM:TEXT`. What has no tag of ours is not ours, whatever its name.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use orlop_model::{Error, PoolId, Result};

/// Tags of any format begin so, with its number.
const ANY_PREFIX: &str = "orlop";
/// That this version writes.
const FORMAT: &str = "1";
const POOL: &str = "pool";
/// The key of the record of the logical volume that has the tag.
pub(super) const RECORD: &str = "record";

/// Without the NUL at the end (`DM_NAME_LEN`).
const LONGEST_DEVICE_NAME: usize = 127;
/// Of a volume or snapshot, with each '-' doubled.
const LONGEST_VOLUME_NAME: usize = escaped_length("v-01234567-0123456789abcdef0123456789abcdef");
const LONGEST_GROUP_NAME: usize = LONGEST_DEVICE_NAME - LONGEST_VOLUME_NAME - "-".len();

/// The name of a volume group whose name leaves room for those of our logical volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupName(String);

impl GroupName {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// As lvm takes it, and reports it.
    pub(super) fn lv(&self, name: &impl fmt::Display) -> String {
        format!("{}/{name}", self.0)
    }

    /// As device-mapper knows it.
    pub(super) fn device_name(&self, lv: &str) -> String {
        format!("{}-{}", self.0.replace('-', "--"), lv.replace('-', "--"))
    }

    /// There while it is active.
    pub(super) fn device_path(&self, lv: &str) -> PathBuf {
        Path::new("/dev/mapper").join(self.device_name(lv))
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for GroupName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"+_.-".contains(&b);
        let is_name = !name.is_empty()
            && !name.starts_with('-')
            && !matches!(name, "." | "..")
            && name.bytes().all(allowed);
        let refused = |reason| Err(Error::failed(format!("use the volume group {name:?}"), reason));
        if !is_name {
            return refused(
                "LVM has no such names: they hold letters, digits and +_.- and do not begin with '-'"
                    .to_owned(),
            );
        }
        if escaped_length(name) > LONGEST_GROUP_NAME {
            return refused(format!(
                "its name is too long: with the names of volumes it leaves {LONGEST_GROUP_NAME} bytes, in which each \
                 '-' counts twice; `vgrename` gives it a shorter one"
            ));
        }
        Ok(Self(name.to_owned()))
    }
}

/// As a part of a device's name, in which a single '-' separates group and volume.
const fn escaped_length(name: &str) -> usize {
    let (bytes, mut length, mut index) = (name.as_bytes(), name.len(), 0);
    while index < bytes.len() {
        if bytes[index] == b'-' {
            length += 1;
        }
        index += 1;
    }
    length
}

/// A tag of ours, after the prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnTag<'a> {
    /// One word: a state.
    Word(&'a str),
    Pool(&'a str),
    /// Of the record that has this key.
    Piece {
        key: &'a str,
        piece: &'a str,
    },
}

/// `None`: the tag is not ours. An error: it is, but of a format that this version does not know.
pub(super) fn own_tag(tag: &str) -> Option<std::result::Result<OwnTag<'_>, String>> {
    let version_and_rest = tag.strip_prefix(ANY_PREFIX)?;
    let (version, rest) = version_and_rest.split_once(':')?;
    if version.is_empty() || !version.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    if version != FORMAT {
        return Some(Err(format!(
            "its tags have format {version}, this version of Orlop reads {FORMAT}"
        )));
    }
    Some(Ok(match rest.split_once(':') {
        None => OwnTag::Word(rest),
        Some((POOL, id)) => OwnTag::Pool(id),
        Some((key, piece)) => OwnTag::Piece { key, piece },
    }))
}

/// Is it one of our tags, or of a later version?
pub(super) fn is_of_tag(word: &str) -> bool {
    own_tag(word).is_some()
}

pub(super) fn word_tag(word: &str) -> String {
    format!("{ANY_PREFIX}{FORMAT}:{word}")
}

pub(super) fn pool_tag(id: &PoolId) -> String {
    word_tag(&format!("{POOL}:{id}"))
}

pub(super) fn piece_tag(key: &str, piece: &str) -> String {
    word_tag(&format!("{key}:{piece}"))
}

#[cfg(test)]
mod tests;
