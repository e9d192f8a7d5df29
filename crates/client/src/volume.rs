//! `orlop volume`.

mod create;
mod delete;
mod grow;
mod limit;
mod list;
mod mount;
mod show;

use crate::failure::{EXIT_CODES, Result};
use crate::session::{Common, FindSettings, Session};
use crate::transfer::{ExportArguments, ImportArguments};

pub(crate) use create::{NewVolume, create, create_or_find, source_of_snapshot, source_of_volume};
pub(crate) use delete::delete_id;
pub(crate) use mount::{UnmountArguments, mounted, unmount};

/// Volumes of any CSI plugin
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct VolumeArguments {
    #[command(flatten)]
    common: Common,

    #[command(subcommand)]
    command: VolumeCommand,
}

#[derive(Debug, clap::Subcommand)]
enum VolumeCommand {
    /// List all volumes
    List(list::ListArguments),

    /// Show one volume: its size, users, limits and health, and the tree of its copies
    Show(show::ShowArguments),

    /// Create a volume, empty or out of a snapshot or another volume
    Create(create::CreateArguments),

    /// Delete volumes and all their data
    Delete(delete::DeleteArguments),

    /// Make a volume larger, and its filesystem too if it is mounted here
    Grow(grow::GrowArguments),

    /// Change what can be changed of a volume in use, such as its I/O limits
    Limit(limit::LimitArguments),

    /// Mount a volume at a directory of this machine
    Mount(mount::MountArguments),

    /// Unmount what `mount` mounted
    Unmount(mount::UnmountArguments),

    /// Create a volume out of a disk image, raw or qcow2
    Import(ImportArguments),

    /// Write a volume to a file, as a raw disk image
    Export(ExportArguments),
}

pub(crate) async fn run(arguments: VolumeArguments, find: FindSettings<'_>) -> Result<()> {
    let session = Session::open(&arguments.common, find).await?;
    match arguments.command {
        VolumeCommand::List(list) => list::run(&session, &list).await,
        VolumeCommand::Show(show) => show::run(&session, &show).await,
        VolumeCommand::Create(create) => create::run(&session, create).await,
        VolumeCommand::Delete(delete) => delete::run(&session, &delete).await,
        VolumeCommand::Grow(grow) => grow::run(&session, &grow).await,
        VolumeCommand::Limit(limit) => limit::run(&session, &limit).await,
        VolumeCommand::Mount(mount) => mount::mount(&session, &mount).await,
        VolumeCommand::Unmount(unmount) => mount::unmount(&session, &unmount).await,
        VolumeCommand::Import(import) => crate::transfer::import(&session, import).await,
        VolumeCommand::Export(export) => crate::transfer::export(&session, export).await,
    }
}
