//! `orlop-bench delta [RUNS]`: what calls cost, measured at the socket of the daemon that lies
//! beside this binary. Needs root, and a machine that does nothing else.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement that cannot be made is over, and the others are printed"
)]

mod delta;
mod table;

use std::process::ExitCode;

const USUAL_RUNS: usize = 25;

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runs = match words[..] {
        ["delta"] => Some(USUAL_RUNS),
        ["delta", runs] => runs.parse().ok().filter(|runs| *runs > 0),
        _ => None,
    };
    let Some(runs) = runs else {
        eprintln!("usage: orlop-bench delta [RUNS]");
        return ExitCode::FAILURE;
    };
    delta::run(runs).await;
    ExitCode::SUCCESS
}
