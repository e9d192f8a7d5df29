//! `orlop volume export` and `orlop snapshot export`: a copy is made in the plugin, and read as a raw device, so that
//! the volume may be in use all the time.

use std::path::{Path, PathBuf};

use orlop_csi::proto::csi::v1::volume_content_source::Type;
use orlop_model::{Bytes, NameDigest};
use orlop_sys::file::{self, RenameOutcome};
use serde_json::json;

use super::copy::{Side, Target, compare, copy};
use super::device_path;
use crate::interrupt::Interruptible;
use crate::capability::{Access, ModeName};
use crate::failure::{Failure, Result};
use crate::hand_mounts::{self, Wanted, ensure_mounted, ensure_unmounted, volume_to_mount};
use crate::inventory::{self, Volume};
use crate::output::Answer;
use crate::plugin::Offer;
use crate::session::{Change, Session};
use crate::volume::{NewVolume, create, delete_id, source_of_snapshot, source_of_volume};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The volume may be in use: what is written to the file is a copy of one instant, which the plugin makes \
    and which is deleted afterwards."
)]
pub(crate) struct ExportArguments {
    /// Its id or name, or the beginning of one
    volume: String,
    #[command(flatten)]
    to: Destination,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotExportArguments {
    /// Its id or name, or the beginning of one
    snapshot: String,
    #[command(flatten)]
    to: Destination,
}

#[derive(Debug, clap::Args)]
struct Destination {
    /// The file, a raw disk image with holes where nothing was written
    file: PathBuf,

    /// Replace the file if there is one
    #[arg(long)]
    overwrite: bool,

    /// Do not compare the file with the volume afterwards
    #[arg(long)]
    no_verify: bool,

    #[command(flatten)]
    change: Change,
}

pub(crate) async fn export(session: &Session, arguments: ExportArguments) -> Result<()> {
    let source = source_of_volume(session, &arguments.volume).await?;
    export_source(session, source, &arguments.to).await
}

pub(crate) async fn export_snapshot(
    session: &Session,
    arguments: SnapshotExportArguments,
) -> Result<()> {
    let source = source_of_snapshot(session, &arguments.snapshot).await?;
    export_source(session, source, &arguments.to).await
}

async fn export_source(session: &Session, source: Type, to: &Destination) -> Result<()> {
    let id = match &source {
        Type::Snapshot(it) => it.snapshot_id.clone(),
        Type::Volume(it) => it.volume_id.clone(),
    };
    let cannot =
        |why: String| Failure::usage(format!("cannot export {id} to {}: {why}", to.file.display()));
    let file = std::path::absolute(&to.file).map_err(|error| cannot(error.to_string()))?;
    if file.is_dir() {
        return Err(cannot("it is a directory; name a file".to_owned()));
    }
    if file.exists() && !to.overwrite {
        return Err(cannot("it exists; say --overwrite to replace it".to_owned()));
    }
    session.plugin.require(Offer::ListVolumes, &format_args!("export {id}"))?;
    if to.change.dry_run {
        return session.would(&format!("copy {id} to {}", to.file.display()));
    }
    let text = format!("{}\0{id}\0{}", session.plugin.driver, file.display());
    let name = format!("orlop-export-{}", NameDigest::of_text(&text).as_str());
    let made = new_copy(session, NewVolume::copy(name, None, Access::Block, source)).await?;
    let wanted = Wanted {
        volume: volume_to_mount(session, &made.id).await?,
        target: device_path(session, &made.id)?,
        access: Access::Block,
        mode: ModeName::SingleNodeWriter,
        read_only: true,
        temporary_copy_of: Some(id.clone()),
    };
    let mount = match ensure_mounted(session, &wanted).await {
        Ok(mount) => mount,
        Err(failure) => return Err(without_copy(session, &made, failure).await),
    };
    let copied = copy_out(&mount.target, &file, made.size_bytes, to).await;
    let unmounted = ensure_unmounted(session, &mount).await;
    let written = copied?;
    unmounted.map_err(|failure| {
        failure.hinting("the file is complete; the copy is left, run the same command again")
    })?;
    let checked = if to.no_verify { "" } else { ", compared" };
    let text = format!(
        "exported {id} to {}: {} of {} written{checked}",
        to.file.display(),
        Bytes(written),
        Bytes(made.size_bytes)
    );
    let value = json!({
        "id": id, "file": file, "size_bytes": made.size_bytes, "written_bytes": written, "verified": !to.no_verify,
    });
    session.show(&Answer::new(vec![id.clone()], &value, text)?)
}

/// One that an interrupted call left shows an earlier instant, so it is made again.
async fn new_copy(session: &Session, wanted: NewVolume) -> Result<Volume> {
    let before = inventory::volumes(&session.plugin).await?;
    let made = create(session, &wanted).await?;
    if !before.iter().any(|volume| volume.id == made.id) {
        return Ok(made);
    }
    for mount in hand_mounts::of_volume(&session.directory, &session.plugin.driver, &made.id)? {
        ensure_unmounted(session, &mount).await?;
    }
    delete_id(session, &made.id, &made.label()).await?;
    create(session, &wanted).await
}

async fn without_copy(session: &Session, made: &Volume, failure: Failure) -> Failure {
    match delete_id(session, &made.id, &made.label()).await {
        Ok(()) => failure,
        Err(also) => failure.hinting(&also.to_string()),
    }
}

/// Under another name until it is complete.
async fn copy_out(device: &Path, file: &Path, length: u64, to: &Destination) -> Result<u64> {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let partial = file.with_file_name(format!(".{name}.partial"));
    let (is_verified, replaces) = (!to.no_verify, to.overwrite);
    let (from, target, part) = (device.to_owned(), file.to_owned(), partial.clone());
    let copied = Interruptible::begin()?.run(move |stop| {
        let mut from = Side::open(&from, false)?;
        let cannot = |error: &dyn std::fmt::Display| {
            Failure::failed(format!("cannot write {}: {error}", target.display()))
        };
        // What an interrupted call left is begun again.
        let _ = std::fs::remove_file(&part);
        std::fs::File::create_new(&part)
            .and_then(|new| new.set_len(length))
            .map_err(|error| cannot(&error))?;
        let into = Side::open(&part, true)?;
        let written = copy("export", &mut from, &into, 0..length, Target::Blank, stop)?;
        if is_verified {
            compare(&mut from, &into, 0..length, stop)?;
        }
        finish(&part, &target, replaces).map_err(|why| cannot(&why))?;
        Ok(written)
    })
    .await;
    if copied.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    copied
}

fn finish(partial: &Path, target: &Path, replaces: bool) -> std::result::Result<(), String> {
    if replaces {
        return std::fs::rename(partial, target).map_err(|error| error.to_string());
    }
    match file::rename_new(partial, target).map_err(|error| error.to_string())? {
        RenameOutcome::Renamed => Ok(()),
        RenameOutcome::TargetExists => {
            Err("it exists by now; say --overwrite to replace it".to_owned())
        }
    }
}
