//! What calls cost, measured at the socket: Orlop, another driver on the same disk, and the bare
//! system calls that neither can do without, one after the other in one run.
//!
//! Needs root, and a machine that does nothing else. `orlop` is taken from beside this binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement that cannot be made is over, and the others are printed"
)]

mod baseline;
mod concurrent;
mod delta;
mod driver;
mod experiments;
mod fio;
mod hop;
mod lvm;
mod process;
mod report;
mod results;
mod series;
mod stopwatch;
mod table;
mod testbed;

use std::path::PathBuf;
use std::time::Instant;

use clap::{Parser, Subcommand};

use experiments::Experiment;
use results::Results;
use testbed::Drivers;

#[derive(Parser)]
#[command(about = "Measures CSI drivers side by side, with the bare system calls beside them")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Few samples and small sizes, to see that everything works; docs/ is left alone
    #[arg(long)]
    quick: bool,
    /// Only this experiment; may be repeated; docs/ is left alone
    #[arg(long, value_enum, value_name = "NAME")]
    only: Vec<Experiment>,
    /// Where the report goes; plots go beside it
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The program of csi-driver-host-path
    #[arg(long, value_name = "FILE", env = "HOST_PATH")]
    host_path: Option<PathBuf>,
    /// Another driver that already runs, in place of csi-driver-host-path
    #[arg(long, value_name = "SOCKET", conflicts_with = "host_path")]
    peer: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Changed blocks of a 100 GiB volume
    Delta {
        #[arg(default_value_t = 25)]
        runs: usize,
    },
    /// Calls at a node, and through a router before it
    Hop {
        #[arg(default_value_t = 200)]
        runs: usize,
    },
    /// I/O and calls on LVM, beside LVM alone; in the guest of tests/guest
    Lvm,
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    Full,
    Quick,
}

impl Effort {
    pub(crate) fn of<T>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}

impl Cli {
    /// Figures of a part, or of few samples, are not what docs/ promises.
    fn report(&self) -> PathBuf {
        let usual = match self.quick || !self.only.is_empty() {
            true => "target/bench/performance.md",
            false => "docs/reports/performance.md",
        };
        self.report.clone().unwrap_or_else(|| PathBuf::from(usual))
    }

    fn effort(&self) -> Effort {
        if self.quick { Effort::Quick } else { Effort::Full }
    }

    fn drivers(&self) -> Drivers {
        match (&self.host_path, &self.peer) {
            (_, Some(socket)) => Drivers::Running(socket.clone()),
            (Some(program), None) => Drivers::HostPath(program.clone()),
            (None, None) => panic!("--host-path or --peer is missing; scripts/bench knows it"),
        }
    }

    async fn compare(&self) {
        let effort = self.effort();
        let drivers = self.drivers();
        let began = Instant::now();
        let mut results = Results::new(&drivers).await;
        for experiment in Experiment::ALL {
            if self.only.is_empty() || self.only.contains(&experiment) {
                println!("{experiment:?}, after {} s", began.elapsed().as_secs());
                experiment.run(&drivers, effort, &mut results).await;
            }
        }
        results.took = began.elapsed();
        report::write(&results, &self.report());
    }
}

// One thread: what is measured is the driver, not how threads of its caller wake each other.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let cli = Cli::parse();
    assert!(orlop_tests::root(), "the benchmark needs root");
    match cli.command {
        Some(Command::Delta { runs }) => delta::run(runs.max(1)).await,
        Some(Command::Hop { runs }) => hop::run(runs.max(1)).await,
        Some(Command::Lvm) => lvm::run(cli.effort()).await,
        None => cli.compare().await,
    }
}
