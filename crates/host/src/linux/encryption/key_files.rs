//! Passphrases in files that the operator's configuration names, for orchestrators without secrets.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use orlop_model::{Error, Result, Secret, VolumeKeys};
use orlop_sys::file;

use super::super::failure::cannot;

/// More than a passphrase may have, so that the error says what is wrong.
const LONGEST: usize = 1 << 16;
const FIELD: &str = "the encryption key file";
/// Beside the key file: the key that volumes have until theirs is rotated.
const PREVIOUS: &str = ".previous";

#[derive(Debug, Clone, Default)]
pub struct KeyFiles {
    pub of_all: Option<PathBuf>,
    /// By the name of the pool.
    pub of_pools: BTreeMap<String, PathBuf>,
}

impl KeyFiles {
    pub(super) fn keys_of(&self, pool: &str) -> Result<VolumeKeys> {
        let Some(path) = self.of_pools.get(pool).or(self.of_all.as_ref()) else {
            return Ok(VolumeKeys::default());
        };
        let mut previous = OsString::from(path);
        previous.push(PREVIOUS);
        Ok(VolumeKeys {
            current: Some(read(path)?.ok_or_else(|| unusable(path, "it does not exist"))?),
            previous: read(Path::new(&previous))?,
        })
    }
}

/// As cryptsetup reads a key file: all bytes, with a newline at the end if there is one.
fn read(path: &Path) -> Result<Option<Secret>> {
    let contents = match file::read_private(path, LONGEST) {
        Ok(contents) => contents,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) if error.is_refusal() => return Err(unusable(path, &error.cause())),
        Err(error) => return Err(cannot("read the encryption key file")(error)),
    };
    match Secret::new(FIELD, contents) {
        Ok(secret) => Ok(Some(secret)),
        Err(error) => Err(unusable(path, &error.to_string())),
    }
}

fn unusable(path: &Path, reason: &str) -> Error {
    Error::precondition(format!(
        "cannot use the encryption key file {}: {reason}; it is a file of 1 to 4096 bytes that its owner alone can \
         read",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn file_of_a_pool_comes_before_the_file_of_all() {
        let directory = tempfile::tempdir().unwrap();
        let (all, one) = (directory.path().join("all"), directory.path().join("one"));
        write(&all, "for all", 0o400);
        write(&one, "for one\n", 0o600);
        write(&directory.path().join("one.previous"), "before", 0o600);
        let files = KeyFiles { of_all: Some(all), of_pools: [("fast".to_owned(), one)].into() };
        let fast = files.keys_of("fast").unwrap();
        assert_eq!(fast.current.unwrap().expose(), b"for one\n");
        assert_eq!(fast.previous.unwrap().expose(), b"before");
        let slow = files.keys_of("slow").unwrap();
        assert_eq!(slow.current.unwrap().expose(), b"for all");
        assert!(slow.previous.is_none());
        assert!(KeyFiles::default().keys_of("slow").unwrap().current.is_none());
    }

    #[test]
    fn file_that_others_can_read_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let files = KeyFiles { of_all: Some(path.clone()), of_pools: BTreeMap::new() };
        let refused = || {
            let Err(refused) = files.keys_of("any") else { panic!("it is used") };
            assert!(matches!(refused, Error::Precondition(_)), "{refused:?}");
            assert!(!refused.to_string().contains("hunter2"), "{refused}");
            refused.to_string()
        };
        assert!(refused().contains("does not exist"));
        for mode in [0o640, 0o604, 0o660] {
            write(&path, "hunter2", mode);
            assert!(refused().contains("others"), "{mode:o}");
        }
        write(&path, "", 0o600);
        assert!(refused().contains("empty"));
        write(&path, &"hunter2".repeat(1000), 0o600);
        refused();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        refused();
    }
}
