//! `orlop volume export` and `orlop snapshot export`: a copy is made in the plugin, and read as a raw device, so that
//! the volume may be in use all the time.

use std::path::{Path, PathBuf};

use orlop_csi::proto::csi::v1::volume_content_source::Type;
use orlop_model::{Bytes, NameDigest};
use serde_json::json;

use super::copy::{NamedFile, Target, compare, copy};
use super::device_path;
use super::partial::{Partial, refuse_other_than_file};
use crate::capability::{Access, ModeName};
use crate::failure::{Failure, Result};
use crate::hand_mounts::{self, MountRequest, ensure_mounted, ensure_unmounted, volume_to_mount};
use crate::interrupt::Interruptible;
use crate::inventory::{self, Source, Volume};
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
    let file = destination(&to.file).map_err(cannot)?;
    refuse_other_than_file(&file).map_err(cannot)?;
    if file.exists() && !to.overwrite {
        return Err(cannot("it exists; pass --overwrite to replace it".to_owned()));
    }
    session.plugin.require(Offer::ListVolumes, &format_args!("export {id}"))?;
    if to.change.dry_run {
        return session.would(&format!("copy {id} to {}", to.file.display()));
    }
    // Before the copy is made, so that another export to the same file does not delete it as one that was left behind.
    let partial = Partial::create(&file).map_err(cannot)?;
    let text = format!("{}\0{id}\0{}", session.plugin.driver, file.display());
    let name = format!("orlop-export-{}", NameDigest::of_text(&text).as_str());
    let made = new_copy(session, NewVolume::copy(name, None, Access::Block, source)).await?;
    let wanted = MountRequest {
        volume: volume_to_mount(session, &made.id).await?,
        target: device_path(session, &made.id)?,
        access: Access::Block,
        mode: ModeName::SingleNodeWriter,
        read_only: true,
        temporary_copy_of: Some(id.clone()),
    };
    // The same command would find the file, and refuse it.
    let remedy = format!(
        "the file is complete; `orlop volume unmount {}` deletes the copy that it was read from",
        wanted.target.display()
    );
    let mount = match ensure_mounted(session, &wanted).await {
        Ok(mount) => mount,
        Err(failure) => return Err(without_copy(session, &made, failure).await),
    };
    let copied = copy_out(&mount.target, partial, made.size_bytes, to).await;
    let unmounted = ensure_unmounted(session, &mount).await;
    let written = copied?;
    unmounted.map_err(|failure| failure.with_hint(&remedy))?;
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

/// A copy that an interrupted export left has older data, so it is deleted and made again.
async fn new_copy(session: &Session, wanted: NewVolume) -> Result<Volume> {
    let before = inventory::volumes(&session.plugin).await?;
    let made = create(session, &wanted).await?;
    let Some(left) = before.iter().find(|volume| volume.id == made.id) else {
        return Ok(made);
    };
    refuse_other_source(left, &wanted)?;
    for mount in hand_mounts::of_volume(&session.directory, &session.plugin.driver, &made.id)? {
        ensure_unmounted(session, &mount).await?;
    }
    delete_id(session, &made.id, &made.label()).await?;
    create(session, &wanted).await
}

/// Only a copy of the same source may be deleted. If the plugin does not say the source, the name decides.
fn refuse_other_source(left: &Volume, wanted: &NewVolume) -> Result<()> {
    let is_same = match (&left.source, &wanted.source) {
        (Some(Source::Snapshot(id)), Some(Type::Snapshot(it))) => *id == it.snapshot_id,
        (Some(Source::Volume(id)), Some(Type::Volume(it))) => *id == it.volume_id,
        (None, _) => true,
        (Some(_), _) => false,
    };
    match is_same {
        true => Ok(()),
        false => Err(Failure::refused(format!(
            "cannot make a copy to export: volume {} ({}) has its name, and is a copy of something else; delete it first",
            wanted.name, left.id
        ))),
    }
}

async fn without_copy(session: &Session, made: &Volume, failure: Failure) -> Failure {
    match delete_id(session, &made.id, &made.label()).await {
        Ok(()) => failure,
        Err(also) => failure.with_hint(&also.to_string()),
    }
}

async fn copy_out(device: &Path, partial: Partial, length: u64, to: &Destination) -> Result<u64> {
    let (is_verified, replaces) = (!to.no_verify, to.overwrite);
    let (from, target) = (device.to_owned(), to.file.clone());
    let copying = Interruptible::begin()?;
    let work = copying.run(move |stop| {
        let mut from = NamedFile::open(&from, false)?;
        let cannot = |error: &dyn std::fmt::Display| {
            Failure::failed(format!("cannot write {}: {error}", target.display()))
        };
        let file = partial.file.try_clone().map_err(|error| cannot(&error))?;
        file.set_len(length).map_err(|error| cannot(&error))?;
        let into = NamedFile { file, path: partial.path.clone() };
        let written = copy("export", &mut from, &into, 0..length, Target::Blank, stop)?;
        if is_verified {
            compare(&mut from, &into, 0..length, stop)?;
        }
        partial.finish(replaces).map_err(|why| cannot(&why))?;
        Ok(written)
    });
    work.await
}

/// Resolves links, so that the file is replaced and not the link.
fn destination(given: &Path) -> std::result::Result<PathBuf, String> {
    match std::fs::canonicalize(given) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::path::absolute(given).map_err(|error| error.to_string())
        }
        resolved => resolved.map_err(|error| error.to_string()),
    }
}
