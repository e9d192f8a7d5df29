//! What must not be seen: the passphrases of encrypted volumes.

use std::fmt;

use zeroize::Zeroizing;

use crate::error::{Error, Result};

/// As many bytes as a pipe takes at once on every machine, so that writing a key to a tool waits for nothing.
const LONGEST: usize = 4096;

/// Its memory is overwritten when it is dropped. It has neither `Debug` nor `Clone`, so that it gets into no log line and
/// no copy of it is left anywhere.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes over. `field` is where they come from, for the error.
    pub fn new(field: &'static str, bytes: Vec<u8>) -> Result<Self> {
        let secret = Self(Zeroizing::new(bytes));
        match secret.0.len() {
            0 => Err(Error::invalid(field, "is an empty passphrase")),
            1..=LONGEST => Ok(secret),
            length => Err(Error::invalid(
                field,
                format!("is a passphrase of {length} bytes; it may have {LONGEST}"),
            )),
        }
    }

    /// For the one who needs it: a tool, by a pipe.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    pub fn is_same_as(&self, other: &Self) -> bool {
        *self.0 == *other.0
    }
}

/// Passphrases that a call brings for an encrypted volume.
#[derive(Default)]
pub struct VolumeKeys {
    /// `encryptionPassphrase`
    pub current: Option<Secret>,
    /// `previousEncryptionPassphrase`: what the volume has until its key is rotated.
    pub previous: Option<Secret>,
}

/// For structures that hold them: it tells nothing.
impl fmt::Debug for VolumeKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeKeys").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn passphrase_has_from_1_to_4096_bytes() {
        let secret = |length: usize| Secret::new("secrets", vec![b'x'; length]);
        assert_eq!(secret(4096).unwrap().expose().len(), 4096);
        for length in [0, 4097] {
            let Err(refused) = secret(length) else { panic!("{length} bytes") };
            assert!(!refused.to_string().contains("xx"), "{refused}");
        }
    }

    #[test]
    fn secrets_are_compared_by_their_bytes() {
        let secret = |text: &str| Secret::new("secrets", text.as_bytes().to_vec()).unwrap();
        assert!(secret("a").is_same_as(&secret("a")));
        assert!(!secret("a").is_same_as(&secret("a\n")));
    }
}
