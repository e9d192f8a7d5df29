//! Encrypted devices: LUKS2 headers and mappings of dm-crypt, by the command `cryptsetup`.
//!
//! A volume key is in the table of its mapping and not in the kernel's keyring: to grow a mapping then takes no
//! passphrase, and containers mostly may not use the keyring.

mod header;

use std::path::Path;

use rustix::io::Errno;

use crate::device_mapper::{self, MappedDevice};
use crate::error::{Error, Result};
use crate::tool::{self, Ended, SecretArgument};

pub use header::{Header, HeaderAndData, header_and_data};

const CRYPTSETUP: &str = "cryptsetup";
/// What cryptsetup says of a key that opens nothing, if it says anything: adding a key, it does not.
const WRONG_KEY: &str = "No key available with this passphrase";
const SECTOR: u64 = 512;
/// Of the space before the data. It has 15 keys, and is overwritten when a device is formatted.
const KEY_SLOTS_BYTES: &str = "4194304";

/// What makes a key of a passphrase, and so what each guess of one costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyDerivation {
    /// That memory is taken by each format and each opening, by one thread.
    Argon2id { memory_kib: u32, iterations: u32 },
    /// For machines without that memory.
    Pbkdf2 { iterations: u32 },
}

impl KeyDerivation {
    /// Fixed figures: cryptsetup would measure this machine for seconds, and take up to a GiB of memory.
    fn options(self) -> Vec<String> {
        let option = |name: &str, value: u32| [name.to_owned(), value.to_string()];
        let kind = |name: &str| ["--pbkdf".to_owned(), name.to_owned()];
        match self {
            Self::Argon2id { memory_kib, iterations } => [
                kind("argon2id"),
                option("--pbkdf-memory", memory_kib),
                option("--pbkdf-parallel", 1),
                option("--pbkdf-force-iterations", iterations),
            ]
            .concat(),
            Self::Pbkdf2 { iterations } => {
                [kind("pbkdf2"), option("--pbkdf-force-iterations", iterations)].concat()
            }
        }
    }
}

/// Does the passphrase fit?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Unlocked {
    Yes,
    WrongKey,
}

/// A mapping that is to be opened.
#[derive(Debug, Clone, Copy)]
pub struct Mapping<'a> {
    pub name: &'a str,
    pub read_only: bool,
    pub discard: bool,
}

/// `None`: encrypted devices can be made and opened here, as far as can be said without trying. Else why not.
pub fn missing() -> Option<String> {
    if tool::find(CRYPTSETUP).is_none() {
        return Some(format!("{CRYPTSETUP} is not installed"));
    }
    if let Some(why) = device_mapper::missing() {
        return Some(why);
    }
    match device_mapper::has_target("crypt") {
        Ok(false) => Some("the kernel has no dm-crypt".to_owned()),
        Ok(true) | Err(_) => None,
    }
}

/// Writes a header whose data begin after `data_offset` bytes, with one key. What follows the header is left as it is.
pub fn format(
    device: &Path,
    uuid: &str,
    data_offset: u64,
    key: &[u8],
    derivation: KeyDerivation,
) -> Result<()> {
    let offset = (data_offset / SECTOR).to_string();
    let derivation = derivation.options();
    let mut arguments = words(&["luksFormat", "--batch-mode", "--type", "luks2"]);
    arguments.extend(words(&["--cipher", "aes-xts-plain64", "--key-size", "512"]));
    arguments.extend(words(&["--sector-size", "4096", "--uuid", uuid, "--offset", &offset]));
    arguments.extend(words(&["--luks2-keyslots-size", KEY_SLOTS_BYTES]));
    arguments.extend(derivation.iter().map(|word| SecretArgument::from(word.as_str())));
    arguments.extend([SecretArgument::from("--key-file"), SecretArgument::Secret(key)]);
    arguments.push(device.into());
    done("format", device, tool::run_with_secrets(CRYPTSETUP, &arguments)?)
}

/// Opens nothing.
pub fn check_key(device: &Path, key: &[u8]) -> Result<Unlocked> {
    let mut arguments = words(&["open", "--type", "luks2", "--test-passphrase", "--key-file"]);
    arguments.extend([SecretArgument::Secret(key), device.into()]);
    unlocked("check the key of", device, tool::run_with_secrets(CRYPTSETUP, &arguments)?)
}

pub fn open(device: &Path, mapping: &Mapping<'_>, key: &[u8]) -> Result<Unlocked> {
    let mut arguments = words(&["open", "--type", "luks2", "--disable-keyring"]);
    if mapping.read_only {
        arguments.push("--readonly".into());
    }
    if mapping.discard {
        arguments.push("--allow-discards".into());
    }
    arguments.extend([SecretArgument::from("--key-file"), SecretArgument::Secret(key)]);
    arguments.extend([device.into(), SecretArgument::from(mapping.name)]);
    unlocked("open", device, tool::run_with_secrets(CRYPTSETUP, &arguments)?)
}

/// An error that [`Error::is_busy`] if something has it open.
pub fn close(mapping: &MappedDevice) -> Result<()> {
    let ended = tool::run_to_end(CRYPTSETUP, ["close", &mapping.name])?;
    done("close", &mapping.path(), ended)
}

/// To the size that its device has now.
pub fn grow(mapping: &MappedDevice) -> Result<()> {
    let ended = tool::run_to_end(CRYPTSETUP, ["resize", &mapping.name])?;
    done("grow", &mapping.path(), ended)
}

/// Adds a key, where `known` is one already.
pub fn add_key(
    device: &Path,
    known: &[u8],
    new: &[u8],
    derivation: KeyDerivation,
) -> Result<Unlocked> {
    let derivation = derivation.options();
    let mut arguments = words(&["luksAddKey", "--batch-mode", "--type", "luks2"]);
    arguments.extend(derivation.iter().map(|word| SecretArgument::from(word.as_str())));
    arguments.extend([SecretArgument::from("--key-file"), SecretArgument::Secret(known)]);
    arguments.extend([device.into(), SecretArgument::Secret(new)]);
    unlocked("add a key to", device, tool::run_with_secrets(CRYPTSETUP, &arguments)?)
}

/// Removes the key; `WrongKey`: it is none. The caller has made sure that another one is left.
pub fn remove_key(device: &Path, key: &[u8]) -> Result<Unlocked> {
    let mut arguments = words(&["luksRemoveKey", "--batch-mode", "--type", "luks2"]);
    arguments.extend([SecretArgument::from("--key-file"), SecretArgument::Secret(key)]);
    arguments.push(device.into());
    unlocked("remove a key of", device, tool::run_with_secrets(CRYPTSETUP, &arguments)?)
}

fn words<'a>(words: &[&'a str]) -> Vec<SecretArgument<'a>> {
    words.iter().map(|word| SecretArgument::from(*word)).collect()
}

fn unlocked(operation: &'static str, device: &Path, ended: Ended) -> Result<Unlocked> {
    match ended.status.code() {
        Some(2) if ended.stderr.is_empty() || ended.stderr.contains(WRONG_KEY) => {
            Ok(Unlocked::WrongKey)
        }
        Some(_) | None => done(operation, device, ended).map(|()| Unlocked::Yes),
    }
}

/// The one place that knows what the exit status of cryptsetup means.
fn done(operation: &'static str, device: &Path, ended: Ended) -> Result<()> {
    let errno = match ended.status.code() {
        Some(0) => return Ok(()),
        Some(3) => Errno::NOMEM,
        Some(4) => Errno::NODEV,
        Some(5) => Errno::BUSY,
        // 1: wrong arguments, or the kernel refuses; 2: no permission. None: a signal, such as that of the kernel when
        // memory is short.
        Some(_) | None => {
            let stderr = tool::last_lines(&ended.stderr);
            return Err(Error::Tool { tool: CRYPTSETUP.to_owned(), status: ended.status, stderr });
        }
    };
    let messages = tool::last_lines(&ended.stderr);
    Err(Error::Explained { operation, path: device.to_owned(), errno, messages })
}

#[cfg(test)]
mod tests;
