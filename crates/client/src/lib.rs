//! The command line client: `orlop volume`, `snapshot`, `group`, `pool status` and `node info`, for the socket of any CSI
//! plugin; and `orlop top` and `orlop events`, for that of an Orlop daemon.
//!
//! A command connects to the plugin ([`session`]), resolves names to ids (`resolve.rs`), makes the calls that an
//! orchestrator makes, and shows the answer (`output.rs`). It stores nothing but notes of its mounts and
//! imports (`hand_mounts/`, `transfer/`), so that an interrupted command can be repeated. It never reads a pool.

mod capability;
mod copies;
mod events;
mod failure;
mod group;
mod hand_mounts;
mod health;
mod interrupt;
mod inventory;
mod monitor;
mod node;
mod output;
mod pairs;
mod plugin;
mod pool;
mod progress;
mod ranges;
mod resolve;
mod screen;
mod secrets;
mod session;
mod signals;
mod snapshot;
mod terminal;
mod top;
mod transfer;
mod tree_diff;
mod volume;

use std::pin::Pin;
use std::process::ExitCode;

pub use events::EventsArguments;
use failure::Failure;
pub use group::GroupArguments;
pub use node::NodeInfoArguments;
pub use output::{Format, rendered};
pub use pool::PoolStatusArguments;
pub use session::{FindSettings, Settings};
pub use snapshot::SnapshotArguments;
pub use top::TopArguments;
pub use volume::VolumeArguments;

pub enum Command {
    Volume(VolumeArguments),
    Snapshot(SnapshotArguments),
    Group(GroupArguments),
    NodeInfo(NodeInfoArguments),
    PoolStatus(PoolStatusArguments),
    Top(TopArguments),
    Events(EventsArguments),
}

/// `find` reads the settings of the daemon, which is the plugin unless another one is named.
pub fn run(command: Command, find: FindSettings<'_>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    // By a pointer, as block_on has a copy of the code of each future that it is given by value for each kind of runtime.
    let work: Pin<Box<dyn Future<Output = failure::Result<()>>>> =
        Box::pin(carry_out(command, find));
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => Err(Failure::failed(format!("cannot start the client: {error}"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Err(failure) => {
            terminal::note(&format_args!("orlop: {failure}"));
            ExitCode::from(failure.exit_code())
        }
    }
}

async fn carry_out(command: Command, find: FindSettings<'_>) -> failure::Result<()> {
    match command {
        Command::Volume(arguments) => volume::run(arguments, find).await,
        Command::Snapshot(arguments) => snapshot::run(arguments, find).await,
        Command::Group(arguments) => group::run(arguments, find).await,
        Command::NodeInfo(arguments) => node::run(&arguments, find).await,
        Command::PoolStatus(arguments) => pool::run(&arguments, find).await,
        Command::Top(arguments) => top::run(&arguments, find).await,
        Command::Events(arguments) => events::run(&arguments, find).await,
    }
}
