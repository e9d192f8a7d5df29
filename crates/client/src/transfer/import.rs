//! `orlop volume import`

use std::path::PathBuf;

use orlop_model::Bytes;
use serde_json::json;

use super::copy::Side;
use super::fill::{Claim, Filling, new_mark};
use super::image::{DiskImage, ImageFormat};
use super::unfinished::{self, Unfinished};
use super::{blocks, device_path};
use crate::capability::{Access, ModeName};
use crate::failure::{Failure, Result};
use crate::hand_mounts::{self, Wanted, ensure_mounted, ensure_unmounted, volume_to_mount};
use crate::interrupt::Interruptible;
use crate::inventory::{self, Volume};
use crate::output::Answer;
use crate::pairs;
use crate::plugin::Offer;
use crate::session::{Change, Session};
use crate::terminal::note;
use crate::volume::{NewVolume, create};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A filesystem in the image (ext4, xfs or btrfs, without a partition table) is recognized, and the \
    volume can then be mounted as well as used raw. A qcow2 image that depends on another file is refused, as it could \
    name any file of this machine.\nIf it is interrupted, the same command finishes it."
)]
pub(crate) struct ImportArguments {
    /// The image, raw or qcow2: a file, or a device
    file: PathBuf,

    /// The new volume's name
    name: String,

    /// Its size, at least that of the image
    #[arg(long, short, value_parser = pairs::size)]
    size: Option<u64>,

    /// The format of the image; without it the first bytes decide
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<ImageFormat>,

    /// A parameter for the plugin, as of a StorageClass
    #[arg(long = "parameter", short, value_name = "KEY=VALUE", value_parser = pairs::parse)]
    parameters: Vec<(String, String)>,

    /// Do not compare the volume with the image afterwards
    #[arg(long)]
    no_verify: bool,

    #[command(flatten)]
    change: Change,
}

pub(crate) async fn import(session: &Session, arguments: ImportArguments) -> Result<()> {
    let image = DiskImage::open(&arguments.file, arguments.format)?;
    let length = image.length;
    let mut wanted = new_volume(&arguments, &image)?;
    session
        .plugin
        .require(Offer::ListVolumes, &format_args!("import {}", arguments.file.display()))?;
    if arguments.change.dry_run {
        let file = arguments.file.display();
        return session.would(&format!(
            "create {} and copy {} from {file}",
            wanted.described(),
            Bytes(length)
        ));
    }
    let _lock = unfinished::lock(session, &arguments.name)?;
    let Own { volume: made, claim, unfinished } =
        ensure_own_volume(session, &arguments, &mut wanted).await?;
    let copying = Interruptible::begin()?;
    let mount = ensure_mounted(
        session,
        &Wanted {
            volume: volume_to_mount(session, &made.id).await?,
            target: device_path(session, &made.id)?,
            access: Access::Block,
            mode: ModeName::SingleNodeWriter,
            read_only: false,
            temporary_copy_of: None,
        },
    )
    .await?;
    let device = Side::open(&mount.target, true);
    let is_verified = !arguments.no_verify;
    let (block, format) = (image.smallest_block(), image.format);
    let too_small =
        block.zip(blocks::sector_of(&mount.target)).filter(|(block, sector)| block < sector);
    let copied = match device {
        Ok(device) => {
            let work = copying.run(move |stop| {
                let mut source = image.source;
                let mut filling = Filling {
                    source: source.as_mut(),
                    device: &device,
                    length,
                    mark: &unfinished.mark,
                    is_verified,
                    stop,
                };
                filling.run(claim)
            });
            work.await
        }
        Err(failure) => Err(failure),
    };
    let unmounted = ensure_unmounted(session, &mount).await;
    let again =
        format!("run the same command again to finish it, or `orlop volume delete {}`", made.id);
    let written = copied.map_err(|failure| failure.hinting(&again))?;
    unmounted.map_err(|failure| failure.hinting(&again))?;
    let written = written.ok_or_else(|| not_known_again(&arguments, &made.id))?;
    unfinished::forget(session, &arguments.name)?;
    if let Some((block, sector)) = too_small {
        note(&format_args!(
            "note: the filesystem in the image has blocks of {block} bytes, and the volume has sectors of {sector}: it can \
             be used as a raw device, and not be mounted"
        ));
    }
    let checked = if is_verified { ", compared" } else { "" };
    let text = format!(
        "imported {}{} to volume {}: {} of {} written{checked}",
        arguments.file.display(),
        match format {
            ImageFormat::Raw => "",
            ImageFormat::Qcow2 => " (qcow2)",
        },
        made.label(),
        Bytes(written),
        Bytes(length)
    );
    let value = json!({
        "id": made.id, "name": arguments.name, "size_bytes": made.size_bytes, "image_bytes": length,
        "format": match format {
            ImageFormat::Raw => "raw",
            ImageFormat::Qcow2 => "qcow2",
        },
        "written_bytes": written, "verified": is_verified, "mountable": wanted.access.len() > 1 && too_small.is_none(),
    });
    session.show(&Answer::new(vec![made.id.clone()], &value, text)?)
}

fn wrong_image(arguments: &ImportArguments, why: &str) -> Failure {
    Failure::usage(format!("cannot import {}: {why}", arguments.file.display()))
}

/// A filesystem that is in the image is one that the volume may be mounted with.
fn new_volume(arguments: &ImportArguments, image: &DiskImage) -> Result<NewVolume> {
    let length = image.length;
    if arguments.size.is_some_and(|size| size < length) {
        return Err(wrong_image(
            arguments,
            &format!("it has {}, which is more than --size", Bytes(length)),
        ));
    }
    let mut access = vec![Access::Block];
    if let Some(filesystem) = image.filesystem() {
        access.push(Access::mount(Some(filesystem)));
    }
    Ok(NewVolume {
        name: arguments.name.clone(),
        size: Some(arguments.size.unwrap_or(length)),
        access,
        mode: ModeName::SingleNodeWriter,
        parameters: pairs::collected("--parameter", &arguments.parameters)?,
        mutable: Default::default(),
        source: None,
        topology: Default::default(),
    })
}

/// The volume that an import may write to.
struct Own {
    volume: Volume,
    claim: Claim,
    unfinished: Unfinished,
}

/// A new volume, or the one that an interrupted import of the same file left. Creating a volume that exists
/// succeeds, so what was there before has to be known: it is not overwritten.
async fn ensure_own_volume(
    session: &Session,
    arguments: &ImportArguments,
    wanted: &mut NewVolume,
) -> Result<Own> {
    let file = std::fs::canonicalize(&arguments.file)
        .map_err(|error| wrong_image(arguments, &error.to_string()))?;
    let before = inventory::volumes(&session.plugin).await?;
    let noted = unfinished::find(session, &arguments.name)?.filter(|note| note.file == file);
    let is_noted = |id: &str| noted.as_ref().is_some_and(|note| note.volume == id);
    if let Some(other) = inventory_by_name(&before, &arguments.name)
        && !is_noted(&other)
    {
        return Err(exists(arguments, &other));
    }
    let mut created = create(session, wanted).await;
    if matches!(created, Err(Failure::Refused(_))) && wanted.access.len() > 1 {
        // There are plugins whose volumes are for one use alone.
        wanted.access.truncate(1);
        created = create(session, wanted).await;
    }
    let made = created?;
    let mounts = hand_mounts::of_volume(&session.directory, &session.plugin.driver, &made.id)?;
    let existed = before.iter().find(|volume| volume.id == made.id);
    match existed {
        None => {
            let (name, volume) = (arguments.name.clone(), made.id.clone());
            let unfinished = Unfinished { name, file, volume, mark: new_mark()? };
            unfinished::save(session, &unfinished)?;
            Ok(Own { volume: made, claim: Claim::New, unfinished })
        }
        Some(volume) if !volume.published_nodes.is_empty() && mounts.is_empty() => {
            Err(in_use(arguments, &volume.id))
        }
        Some(volume) => match noted.filter(|note| note.volume == made.id) {
            Some(unfinished) => {
                let target = device_path(session, &made.id)?;
                let is_attached = mounts.iter().any(|mount| mount.target == target)
                    && orlop_sys::mounts::mount_at(&target).is_ok_and(|there| there.is_some());
                let claim = Claim::Noted { still_attached: is_attached };
                Ok(Own { volume: made, claim, unfinished })
            }
            None => Err(exists(arguments, &volume.id)),
        },
    }
}

/// Orlop's ids tell it before anything is asked; of other plugins the answer does.
fn inventory_by_name(volumes: &[Volume], name: &str) -> Option<String> {
    let digest = orlop_model::NameDigest::of_text(name);
    let is_of_name = |volume: &&Volume| {
        volume.id.parse::<orlop_model::VolumeId>().is_ok_and(|id| *id.digest() == digest)
    };
    volumes.iter().find(is_of_name).map(|volume| volume.id.clone())
}

fn refused(arguments: &ImportArguments, why: &str) -> Failure {
    Failure::refused(format!(
        "cannot import {} to volume {}: {why}; choose another name, or delete it first",
        arguments.file.display(),
        arguments.name
    ))
}

fn exists(arguments: &ImportArguments, id: &str) -> Failure {
    refused(arguments, &format!("there is such a volume, {id}, and it is not overwritten"))
}

fn in_use(arguments: &ImportArguments, id: &str) -> Failure {
    refused(arguments, &format!("there is such a volume, {id}, and it is in use"))
}

/// Its contents are neither those of the image nor what the interrupted command wrote.
fn not_known_again(arguments: &ImportArguments, id: &str) -> Failure {
    let why = format!(
        "volume {id} is not as the interrupted import left it, and is not overwritten: it was made again or written to \
         since, or the import had not begun to write"
    );
    refused(arguments, &why)
}
