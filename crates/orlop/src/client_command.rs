//! The commands of the client: where their plugin is, unless they are given another one.

use std::path::Path;
use std::process::ExitCode;

use orlop_client::{Command, Settings};

use crate::config;

pub(crate) fn run(command: Command) -> ExitCode {
    let find = |file: Option<&Path>| {
        let found = config::surroundings(file).map_err(|error| error.to_string());
        found.map(|(socket, run_dir)| Settings { socket, run_dir })
    };
    orlop_client::run(command, &find)
}
