//! The command line client: `orlop volume`, `snapshot`, `group` and `node info`, for the socket of any CSI
//! plugin; and `orlop top` and `orlop events`, for that of an Orlop daemon.
//!
//! A command finds the plugin ([`session`]), finds out which object is meant (`resolve.rs`), asks the plugin
//! with the calls that an orchestrator uses, and shows the answer (`output.rs`). It keeps nothing but
//! notes of what it mounted or is importing (`hand_mounts/`, `transfer/`), so that a call that was interrupted
//! can be repeated. It never looks into a pool.

mod capability;
mod copies;
mod events;
mod failure;
mod group;
mod hand_mounts;
mod interrupt;
mod inventory;
mod node;
mod output;
mod pairs;
mod plugin;
mod progress;
mod ranges;
mod resolve;
mod secrets;
mod session;
mod signals;
mod snapshot;
mod terminal;
mod top;
mod transfer;
mod tree_diff;
mod volume;

use std::process::ExitCode;

pub use events::EventsArguments;
use failure::Failure;
pub use group::GroupArguments;
pub use node::NodeInfoArguments;
pub use session::{FindSettings, Settings};
pub use snapshot::SnapshotArguments;
pub use top::TopArguments;
pub use volume::VolumeArguments;

pub enum Command {
    Volume(VolumeArguments),
    Snapshot(SnapshotArguments),
    Group(GroupArguments),
    NodeInfo(NodeInfoArguments),
    Top(TopArguments),
    Events(EventsArguments),
}

/// `find` reads the settings of the daemon that the plugin is unless another one is named.
pub fn run(command: Command, find: FindSettings<'_>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(carry_out(command, find)),
        Err(error) => Err(Failure::failed(format!("cannot start: {error}"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Unread) => ExitCode::SUCCESS,
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
        Command::Top(arguments) => top::run(&arguments, find).await,
        Command::Events(arguments) => events::run(&arguments, find).await,
    }
}
