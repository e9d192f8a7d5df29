//! The commands that save what only a loop device still has, because its file was removed. People run them word for
//! word, so each goes on only if the one before it has succeeded, and nothing is detached before the copy was compared.
//!
//! A filesystem is unmounted before its device is copied: what it has not written back is not on the device, and what is
//! written to it later would be missing in the copy.

use std::path::{Path, PathBuf};

/// `sync -f A B && umount A B`. `mounted_at`: what was mounted last comes first. An unmount writes back nothing where
/// another mount namespace has a copy of the mount.
pub fn unmount_command(mounted_at: &[PathBuf]) -> Option<String> {
    let commands = ["sync -f", "umount"].map(|command| on_all(command, mounted_at));
    (!mounted_at.is_empty()).then(|| in_order(commands))
}

pub fn detach_command(devices: &[PathBuf]) -> Option<String> {
    on_all("losetup --detach", devices)
}

/// To a file that is not there yet. Direct, so that the kernel writes back first what was written to the device itself.
pub fn copy_commands(device: &Path, to: &Path) -> String {
    let (device, to) = (shell_word(device), shell_word(to));
    format!("dd if={device} of={to} bs=1M iflag=direct conv=sparse,fsync && cmp {device} {to}")
}

pub fn rename_command(from: &Path, to: &Path) -> String {
    format!("mv {} {}", shell_word(from), shell_word(to))
}

/// One after the other, as long as they succeed.
pub fn in_order(commands: impl IntoIterator<Item = Option<String>>) -> String {
    commands.into_iter().flatten().collect::<Vec<_>>().join(" && ")
}

/// Where the data is copied to, until the copy is known to be whole.
pub fn saved(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".saved");
    PathBuf::from(name)
}

/// Without quotes, for the messages have the commands in quotes.
pub fn shell_word(path: &Path) -> String {
    let is_plain = |char: char| char.is_alphanumeric() || "/._-+:=@%,".contains(char);
    let mut word = String::new();
    for char in path.to_string_lossy().chars() {
        if !is_plain(char) {
            word.push('\\');
        }
        word.push(char);
    }
    word
}

fn on_all(command: &str, paths: &[PathBuf]) -> Option<String> {
    let words: Vec<String> = paths.iter().map(|path| shell_word(path)).collect();
    (!words.is_empty()).then(|| format!("{command} {}", words.join(" ")))
}

#[cfg(test)]
mod tests;
