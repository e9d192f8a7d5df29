//! `orlop volume import`

use std::path::PathBuf;

use orlop_model::Bytes;
use orlop_sys::filesystem::sector_size;
use serde_json::json;

use super::copy::NamedFile;
use super::device_path;
use super::fill::{ImportCopy, VolumeOrigin, new_mark};
use super::image::{DiskImage, ImageFormat};
use super::unfinished::{self, UnfinishedImport};
use crate::capability::{Access, ModeName};
use crate::failure::{Failure, Result};
use crate::hand_mounts::{self, MountRequest, ensure_mounted, ensure_unmounted, volume_to_mount};
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
    let is_unrecognized = wanted.access.len() == 1;
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
    let ImportVolume { volume: made, origin, unfinished } =
        ensure_import_volume(session, &arguments, &mut wanted).await?;
    let copying = Interruptible::begin()?;
    let mount = ensure_mounted(
        session,
        &MountRequest {
            volume: volume_to_mount(session, &made.id).await?,
            target: device_path(session, &made.id)?,
            access: Access::Block,
            mode: ModeName::SingleNodeWriter,
            read_only: false,
            temporary_copy_of: None,
        },
    )
    .await?;
    let device = NamedFile::open(&mount.target, true);
    let is_verified = !arguments.no_verify;
    let (unit, format) = (image.smallest_unit(), image.format);
    let too_small =
        unit.zip(sector_size(&mount.target)).filter(|(unit, sector)| unit.bytes() < *sector);
    let copied = match device {
        Ok(device) => {
            let work = copying.run(move |stop| {
                let mut source = image.source;
                let mut import_copy = ImportCopy {
                    source: source.as_mut(),
                    device: &device,
                    length,
                    mark: &unfinished.mark,
                    is_verified,
                    stop,
                };
                import_copy.run(origin)
            });
            work.await
        }
        Err(failure) => Err(failure),
    };
    let unmounted = ensure_unmounted(session, &mount).await;
    let again =
        format!("run the same command again to finish it, or `orlop volume delete {}`", made.id);
    let written = copied.map_err(|failure| failure.with_hint(&again))?;
    unmounted.map_err(|failure| failure.with_hint(&again))?;
    let written = written.ok_or_else(|| differs_from_interrupted(&arguments, &made.id))?;
    unfinished::forget(session, &arguments.name)?;
    if let Some((unit, sector)) = too_small {
        note(&format_args!(
            "note: the filesystem in the image has {unit}, and the volume has sectors of {sector}: it can be used as a raw \
             device, but not be mounted; a filesystem made with {} could",
            unit.mkfs_for(sector)
        ));
    } else if is_unrecognized {
        note(
            &"note: no filesystem (ext4, xfs or btrfs) is recognized at the beginning of the image, which may have a partition \
              table: the volume can be used as a raw device, but not be mounted",
        );
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

/// If the image holds a filesystem, the volume may be mounted with it as well as used raw.
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
struct ImportVolume {
    volume: Volume,
    origin: VolumeOrigin,
    unfinished: UnfinishedImport,
}

/// Creates the volume, or finds that of an interrupted import of the same file. CreateVolume also succeeds for a volume
/// that exists already, so volumes are listed first: an existing volume is not overwritten.
async fn ensure_import_volume(
    session: &Session,
    arguments: &ImportArguments,
    wanted: &mut NewVolume,
) -> Result<ImportVolume> {
    let file = std::fs::canonicalize(&arguments.file)
        .map_err(|error| wrong_image(arguments, &error.to_string()))?;
    let before = inventory::volumes(&session.plugin).await?;
    let note = unfinished::find(session, &arguments.name)?.filter(|note| note.file == file);
    let is_noted = |id: &str| note.as_ref().is_some_and(|note| note.volume == id);
    if let Some(other) = find_by_name(&before, &arguments.name)
        && !is_noted(&other)
    {
        return Err(exists(arguments, &other));
    }
    let mut created = create(session, wanted).await;
    if matches!(created, Err(Failure::Refused(_))) && wanted.access.len() > 1 {
        // Some plugins make volumes for one access type only.
        wanted.access.truncate(1);
        created = create(session, wanted).await;
    }
    let made = created?;
    let mounts = hand_mounts::of_volume(&session.directory, &session.plugin.driver, &made.id)?;
    let existed = before.iter().find(|volume| volume.id == made.id);
    match existed {
        None => {
            let (name, volume) = (arguments.name.clone(), made.id.clone());
            let unfinished = UnfinishedImport { name, file, volume, mark: new_mark()? };
            unfinished::save(session, &unfinished)?;
            Ok(ImportVolume { volume: made, origin: VolumeOrigin::Created, unfinished })
        }
        Some(volume) if !volume.published_nodes.is_empty() && mounts.is_empty() => {
            Err(in_use(arguments, &volume.id))
        }
        Some(volume) => match note.filter(|note| note.volume == made.id) {
            Some(unfinished) => {
                let target = device_path(session, &made.id)?;
                let is_attached = mounts.iter().any(|mount| mount.target == target)
                    && orlop_sys::mounts::mount_at(&target).is_ok_and(|there| there.is_some());
                let origin = VolumeOrigin::Interrupted { still_attached: is_attached };
                Ok(ImportVolume { volume: made, origin, unfinished })
            }
            None => Err(exists(arguments, &volume.id)),
        },
    }
}

/// The volume of this name, by the digest in its id. Ids of other plugins do not have it, and CreateVolume finds the
/// volume.
fn find_by_name(volumes: &[Volume], name: &str) -> Option<String> {
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
    refused(arguments, &format!("volume {id} exists already, and is not overwritten"))
}

fn in_use(arguments: &ImportArguments, id: &str) -> Failure {
    refused(arguments, &format!("volume {id} exists already, and is in use"))
}

/// The volume holds neither the image nor the data of the interrupted import.
fn differs_from_interrupted(arguments: &ImportArguments, id: &str) -> Failure {
    let why = format!(
        "volume {id} is not as the interrupted import left it, and is not overwritten: it was made again or written to \
         since, or the import had not begun to write"
    );
    refused(arguments, &why)
}
