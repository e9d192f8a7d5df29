//! `orlop thaw-helper`: the process that `orlop serve` keeps beside it, should it be killed while
//! a filesystem is frozen.

use orlop_sys::thaw_helper::{self, HelperCommand};

use crate::config::{LogConfig, LogFormat};
use crate::telemetry;

pub(crate) const SUBCOMMAND: &str = "thaw-helper";
pub(crate) const JSON: &str = "json";

/// Its environment is empty, so what it must know comes by arguments.
pub(crate) fn command(log: LogFormat) -> HelperCommand {
    let mut command = HelperCommand::this_program(SUBCOMMAND);
    match log {
        LogFormat::Text => {}
        LogFormat::Json => command.arguments.push(format!("--{JSON}").into()),
    }
    command
}

pub(crate) fn run(json: bool) {
    let format = if json { LogFormat::Json } else { LogFormat::Text };
    // Without a log it does its work all the same.
    let _ = telemetry::start(&LogConfig { filter: "info".to_owned(), format });
    let _ = telemetry::start_writer();
    thaw_helper::run(std::io::stdin().lock());
    telemetry::flush();
}
