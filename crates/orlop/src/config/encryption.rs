//! Encrypted volumes: the operator's key files, and what a guess of a passphrase costs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use orlop_csi::Mode;
use orlop_host::{EncryptionConfig, KeyFiles};
use orlop_sys::crypt::KeyDerivation;
use serde::Deserialize;

use super::ConfigError;
use super::file::PoolSettings;

const KDF: &str = "ORLOP_ENCRYPTION_KDF";
const MIB: u32 = 1 << 10;
/// What cryptsetup and the standard take.
const ARGON2_ITERATIONS: std::ops::RangeInclusive<u32> = 4..=1000;
const ARGON2_MEMORY_MIB: std::ops::RangeInclusive<u32> = 1..=4096;
const PBKDF2_ITERATIONS: std::ops::RangeInclusive<u32> = 1000..=1_000_000_000;
/// What OWASP asks for.
const DEFAULT_PBKDF2_ITERATIONS: u32 = 600_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EncryptionSettings {
    pub(super) key_file: Option<PathBuf>,
    pub(super) kdf: Option<String>,
}

pub(super) fn validate(
    settings: EncryptionSettings,
    pools: &[PoolSettings],
    mode: Mode,
) -> Result<EncryptionConfig, ConfigError> {
    let of_pool = |pool: &PoolSettings| {
        let name = super::pools::name_of(pool).to_owned();
        let file = absolute("ORLOP_POOL_ENCRYPTION_KEY_FILE", pool.encryption_key_file.clone());
        file.map(|file| Some((name.clone(), file?))).map_err(|error| error.of_pool(&name))
    };
    let of_pools: Result<Vec<_>, ConfigError> = pools.iter().map(of_pool).collect();
    Ok(EncryptionConfig {
        is_used_here: mode.serves_node(),
        derivation: match settings.kdf.as_deref() {
            None => EncryptionConfig::DERIVATION,
            Some(text) => derivation(text)?,
        },
        key_files: KeyFiles {
            of_all: absolute("ORLOP_ENCRYPTION_KEY_FILE", settings.key_file)?,
            of_pools: of_pools?.into_iter().flatten().collect::<BTreeMap<_, _>>(),
        },
    })
}

fn absolute(setting: &str, path: Option<PathBuf>) -> Result<Option<PathBuf>, ConfigError> {
    match path {
        Some(path) if !path.is_absolute() => {
            Err(ConfigError::new(setting, "is not the absolute path of a file"))
        }
        path => Ok(path),
    }
}

/// `argon2id`, `argon2id:MIB:ITERATIONS`, `pbkdf2` or `pbkdf2:ITERATIONS`.
fn derivation(text: &str) -> Result<KeyDerivation, ConfigError> {
    let wrong = || {
        let problem = format!(
            "{text:?} is not argon2id:MIB:ITERATIONS with up to {} MiB and at least {} iterations, nor \
             pbkdf2:ITERATIONS with at least {}",
            ARGON2_MEMORY_MIB.end(),
            ARGON2_ITERATIONS.start(),
            PBKDF2_ITERATIONS.start()
        );
        ConfigError::new(KDF, problem)
    };
    let number = |text: &str, range: std::ops::RangeInclusive<u32>| {
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(wrong)
    };
    match text.split(':').collect::<Vec<_>>().as_slice() {
        ["argon2id"] => Ok(EncryptionConfig::DERIVATION),
        ["argon2id", memory, iterations] => Ok(KeyDerivation::Argon2id {
            memory_kib: number(memory, ARGON2_MEMORY_MIB)? * MIB,
            iterations: number(iterations, ARGON2_ITERATIONS)?,
        }),
        ["pbkdf2"] => Ok(KeyDerivation::Pbkdf2 { iterations: DEFAULT_PBKDF2_ITERATIONS }),
        ["pbkdf2", iterations] => {
            Ok(KeyDerivation::Pbkdf2 { iterations: number(iterations, PBKDF2_ITERATIONS)? })
        }
        _ => Err(wrong()),
    }
}

/// As [`derivation`] reads it.
pub(super) fn shown(derivation: KeyDerivation) -> String {
    match derivation {
        KeyDerivation::Argon2id { memory_kib, iterations } => {
            format!("argon2id:{}:{iterations}", memory_kib / MIB)
        }
        KeyDerivation::Pbkdf2 { iterations } => format!("pbkdf2:{iterations}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn derivation_is_read_as_it_is_shown() {
        for text in ["argon2id:32:4", "argon2id:4096:1000", "pbkdf2:1000"] {
            assert_eq!(shown(derivation(text).unwrap()), text);
        }
        assert_eq!(shown(derivation("argon2id").unwrap()), "argon2id:32:4");
        assert_eq!(shown(derivation("pbkdf2").unwrap()), "pbkdf2:600000");
    }

    #[test]
    fn derivation_that_cryptsetup_would_refuse_is_refused() {
        for text in
            ["", "scrypt", "argon2id:32", "argon2id:32:3", "argon2id:0:4", "pbkdf2:999", "pbkdf2:x"]
        {
            assert!(derivation(text).is_err(), "{text}");
        }
    }
}
