//! `orlop snapshot`.

mod changes;
mod files;
mod mount;
mod objects;
mod report;

use crate::failure::{EXIT_CODES, Result};
use crate::session::{Common, FindSettings, Session};
use crate::transfer::{self, SnapshotExportArguments};
use crate::volume::{UnmountArguments, unmount};

/// Snapshots of any CSI plugin
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct SnapshotArguments {
    #[command(flatten)]
    common: Common,

    #[command(subcommand)]
    command: SnapshotCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SnapshotCommand {
    /// List all snapshots, or those of one volume
    List(objects::ListArguments),

    /// Show one snapshot, and the volumes that came from it
    Show(objects::ShowArguments),

    /// Take a snapshot of a volume
    Create(objects::CreateArguments),

    /// Delete snapshots
    Delete(objects::DeleteArguments),

    /// Create a volume with the contents of a snapshot
    Restore(objects::RestoreArguments),

    /// Look into a snapshot: makes a volume out of it and mounts that, read-only
    Mount(mount::MountArguments),

    /// End what `mount` began, and delete its volume
    Unmount(UnmountArguments),

    /// Write a snapshot to a file, as a raw disk image
    Export(SnapshotExportArguments),

    /// Show what changed between two snapshots of a volume
    Diff(changes::DiffArguments),

    /// Show which parts of a snapshot were ever written
    Allocated(changes::AllocatedArguments),
}

pub(crate) async fn run(arguments: SnapshotArguments, find: FindSettings<'_>) -> Result<()> {
    let session = Session::open(&arguments.common, find).await?;
    match arguments.command {
        SnapshotCommand::List(list) => objects::list(&session, &list).await,
        SnapshotCommand::Show(show) => objects::show(&session, &show).await,
        SnapshotCommand::Create(create) => objects::create(&session, &create).await,
        SnapshotCommand::Delete(delete) => objects::delete(&session, &delete).await,
        SnapshotCommand::Restore(restore) => objects::restore(&session, &restore).await,
        SnapshotCommand::Mount(mount) => mount::mount(&session, &mount).await,
        SnapshotCommand::Unmount(arguments) => unmount(&session, &arguments).await,
        SnapshotCommand::Export(export) => transfer::export_snapshot(&session, export).await,
        SnapshotCommand::Diff(diff) => changes::diff(&session, &diff).await,
        SnapshotCommand::Allocated(allocated) => changes::allocated(&session, &allocated).await,
    }
}
