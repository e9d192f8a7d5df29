//! What follows from the command line by itself: completion scripts and man pages.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::generate;

use crate::{Arguments, complain};

/// Those that distributions install completions for.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn print_completion(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    let mut command = Arguments::command();
    let name = command.get_name().to_owned();
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    generate(shell, &mut command, name, &mut script);
    // A closed stdout is no reason to change the exit code.
    let _ = std::io::stdout().write_all(&script);
    ExitCode::SUCCESS
}

/// One page for each command, as `orlop-volume-create.1`.
pub(crate) fn write_man_pages(directory: &Path) -> ExitCode {
    let made = std::fs::create_dir_all(directory);
    match made.and_then(|()| clap_mangen::generate_to(Arguments::command(), directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(1, &error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clap checks a command only when it is used, and each on its own.
    #[test]
    fn every_command_holds_together() {
        Arguments::command().debug_assert();
    }
}
