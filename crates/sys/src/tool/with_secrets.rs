//! Programs that need secrets: each comes by a pipe, of which the program gets the path. So no secret is among the
//! arguments or in the environment, where other processes would see it, nor in a file.

use std::ffi::{OsStr, OsString};
use std::io::{PipeReader, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use super::own_session::{Ended, path_of, run_prepared};
use super::prepared;
use crate::abi::{keep_open, outlive_parent, without_core};
use crate::error::{Context, Result};

/// As [`super::run_to_end`]. Where the program is given `arguments`, a secret stands for the path at which it is read. It
/// may have as many bytes as a pipe takes at once: 4096. A program that crashes leaves no core file.
pub fn run_with_secrets(name: &str, arguments: &[SecretArgument<'_>]) -> Result<Ended> {
    let program = path_of(name)?;
    let mut pipes = Vec::new();
    let mut words: Vec<OsString> = Vec::new();
    for argument in arguments {
        match argument {
            SecretArgument::Plain(word) => words.push((*word).to_owned()),
            SecretArgument::Secret(secret) => {
                let pipe = filled_pipe(secret, &program)?;
                words.push(format!("/proc/self/fd/{}", pipe.as_raw_fd()).into());
                pipes.push(pipe);
            }
        }
    }
    let mut command = prepared(&program, words);
    // First, as what is run later in the child closes what is not kept open after it.
    outlive_parent(&mut command);
    without_core(&mut command);
    for pipe in &pipes {
        keep_open(&mut command, pipe);
    }
    run_prepared(name, &program, command, pipes)
}

/// A word for a program, or a secret that it is to read at the path that stands in its place.
#[derive(Clone, Copy)]
pub enum SecretArgument<'a> {
    Plain(&'a OsStr),
    Secret(&'a [u8]),
}

impl<'a> From<&'a str> for SecretArgument<'a> {
    fn from(word: &'a str) -> Self {
        Self::Plain(OsStr::new(word))
    }
}

impl<'a> From<&'a Path> for SecretArgument<'a> {
    fn from(path: &'a Path) -> Self {
        Self::Plain(path.as_os_str())
    }
}

/// Nothing waits for its reader: what is written fits into it.
fn filled_pipe(secret: &[u8], program: &Path) -> Result<PipeReader> {
    let (reader, mut writer) = std::io::pipe().on("make a pipe for", program)?;
    writer.write_all(secret).on("write to a pipe for", program)?;
    Ok(reader)
}

#[cfg(test)]
mod tests;
