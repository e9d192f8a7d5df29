//! Mounting by hand: what an orchestrator does, in its order.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use orlop_csi::proto::csi::v1::node_client::NodeClient;
use orlop_sys::file::{EmptyEntry, EntryKind, restore_empty};
use orlop_sys::mounts;

use super::{
    Attributes, HandMount, at_target, ensure_directory, forget, lock, of_volume, save,
    volume_digest,
};
use crate::capability::{Access, ModeName};
use crate::failure::{Failure, Result};
use crate::inventory::{self, Volume};
use crate::plugin::{NodeOffer, Offer};
use crate::session::Session;
use crate::terminal::note;

pub(crate) struct MountRequest {
    pub(crate) volume: Volume,
    /// Absolute, without links.
    pub(crate) target: PathBuf,
    pub(crate) access: Access,
    pub(crate) mode: ModeName,
    pub(crate) read_only: bool,
    pub(crate) temporary_copy_of: Option<String>,
}

/// May be repeated, and completes an interrupted mount. If a new mount fails, its steps are undone.
pub(crate) async fn ensure_mounted(session: &Session, wanted: &MountRequest) -> Result<HandMount> {
    let (plugin, directory) = (&session.plugin, &session.directory);
    let _lock = lock(directory, &plugin.driver, &wanted.volume.id, plugin.timeout()).await?;
    let node = plugin.node_info().await?.node_id;
    let mut mount = HandMount {
        driver: plugin.driver.clone(),
        socket: plugin.socket.clone(),
        volume: wanted.volume.id.clone(),
        context: wanted.volume.context.clone(),
        target: wanted.target.clone(),
        staging: directory.join("staging").join(volume_digest(&plugin.driver, &wanted.volume.id)),
        access: wanted.access.clone(),
        mode: wanted.mode,
        read_only: wanted.read_only,
        attached: plugin.offers(Offer::PublishUnpublishVolume)
            && !wanted.volume.published_nodes.contains(&node),
        node,
        temporary_copy_of: wanted.temporary_copy_of.clone(),
        directory_before: attributes_of(&wanted.target, std::fs::Metadata::is_dir),
        file_before: attributes_of(&wanted.target, std::fs::Metadata::is_file),
    };
    let before = at_target(directory, &wanted.target)?;
    match &before {
        Some(before) if before.is_same(&mount) => {
            mount.attached = before.attached;
            mount.directory_before = before.directory_before;
            mount.file_before = before.file_before;
        }
        Some(before) => return Err(occupied(before)),
        None => {
            refuse_foreign(&wanted.target)?;
            refuse_to_hide_files(&wanted.target)?;
            // If the volume is mounted at a second directory, the last unmount unpublishes it.
            let others = of_volume(directory, &plugin.driver, &mount.volume)?;
            mount.attached |= others.iter().any(|other| other.attached);
            save(directory, &mount)?;
        }
    }
    let publish_context = match attach(session, &mount).await {
        // The plugin refused, so there is nothing to undo; for a damaged volume, undoing would fail too.
        Err(failure) if before.is_none() && failure.is_answer() => {
            forget(directory, &mount)?;
            return Err(failure);
        }
        attached => attached,
    };
    let done = match publish_context {
        Ok(publish_context) => stage_and_publish(session, &mount, publish_context).await,
        Err(failure) => Err(failure),
    };
    match (done, before) {
        (Ok(()), _) => Ok(mount),
        // It was mounted before this call, and stays.
        (Err(failure), Some(_)) => Err(failure),
        (Err(failure), None) => Err(roll_back(session, &mount, failure).await),
    }
}

async fn roll_back(session: &Session, mount: &HandMount, failure: Failure) -> Failure {
    match super::unmount::undo(session, mount).await {
        Ok(()) => match forget(&session.directory, mount) {
            Ok(()) => failure,
            Err(also) => failure.with_hint(&also.to_string()),
        },
        Err(also) => failure.with_hint(&format!(
            "and it could not be undone ({also}): run the same command again, or `orlop volume unmount {}`",
            mount.target.display()
        )),
    }
}

async fn stage_and_publish(
    session: &Session,
    mount: &HandMount,
    publish_context: BTreeMap<String, String>,
) -> Result<()> {
    let plugin = &session.plugin;
    let label = &mount.volume;
    if plugin.node_offers().await?.contains(&NodeOffer::StageUnstageVolume) {
        let above = mount.staging.parent().unwrap_or(Path::new("/"));
        let made = ensure_directory(&session.directory, above)
            .and_then(|()| orlop_sys::file::ensure_private_directory(&mount.staging));
        made.map_err(|error| Failure::failed(format!("cannot stage volume {label}: {error}")))?;
        let request = v1::NodeStageVolumeRequest {
            volume_id: mount.volume.clone(),
            publish_context: publish_context.clone(),
            staging_target_path: mount.staging.display().to_string(),
            volume_capability: Some(mount.capability()),
            secrets: plugin.secrets.clone(),
            volume_context: mount.context.clone(),
        };
        let send = |channel, request| async move {
            NodeClient::new(channel).node_stage_volume(request).await
        };
        plugin.ask(&format_args!("stage volume {label}"), request, send).await?;
    }
    let request = v1::NodePublishVolumeRequest {
        volume_id: mount.volume.clone(),
        publish_context,
        staging_target_path: mount.staging.display().to_string(),
        target_path: mount.target.display().to_string(),
        volume_capability: Some(mount.capability()),
        readonly: mount.read_only,
        secrets: plugin.secrets.clone(),
        volume_context: mount.context.clone(),
    };
    let doing = format!("mount volume {label} at {}", mount.target.display());
    let send = |channel, request| async move {
        NodeClient::new(channel).node_publish_volume(request).await
    };
    plugin.ask(&doing, request, send).await?;
    check_mounted(mount)
}

async fn attach(session: &Session, mount: &HandMount) -> Result<BTreeMap<String, String>> {
    if !session.plugin.offers(Offer::PublishUnpublishVolume) {
        return Ok(BTreeMap::new());
    }
    let request = v1::ControllerPublishVolumeRequest {
        volume_id: mount.volume.clone(),
        node_id: mount.node.clone(),
        volume_capability: Some(mount.capability()),
        readonly: false,
        secrets: session.plugin.secrets.clone(),
        volume_context: mount.context.clone(),
    };
    let doing = format!("publish volume {} to node {}", mount.volume, mount.node);
    let send = |channel, request| async move {
        ControllerClient::new(channel).controller_publish_volume(request).await
    };
    Ok(session.plugin.ask(&doing, request, send).await?.into_inner().publish_context)
}

/// A plugin in a container may have mounted it where only the container sees it.
fn check_mounted(mount: &HandMount) -> Result<()> {
    match mounts::mount_at(&mount.target) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Failure::failed(format!(
            "cannot mount volume {} at {}: the plugin says that it did, but nothing is mounted there; it \
             probably runs in a container that has other mounts, so choose a directory that it shares with this \
             machine",
            mount.volume,
            mount.target.display()
        ))),
        Err(error) => Err(Failure::failed(error.to_string())),
    }
}

fn occupied(before: &HandMount) -> Failure {
    let target = before.target.display();
    Failure::usage(format!(
        "cannot mount at {target}: volume {} is mounted there in another way or by another plugin, or a mount of it \
         was interrupted; `orlop volume unmount {target}` first",
        before.volume
    ))
}

fn refuse_foreign(target: &Path) -> Result<()> {
    match mounts::mount_at(target) {
        Ok(Some(_)) => Err(Failure::usage(format!(
            "cannot mount at {}: something else is mounted there; choose another directory",
            target.display()
        ))),
        Ok(None) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(Failure::failed(error.to_string())),
    }
}

/// A mistyped path, such as /etc or /etc/passwd, would be hidden from all programs of the machine.
fn refuse_to_hide_files(target: &Path) -> Result<()> {
    let Ok(there) = target.symlink_metadata() else { return Ok(()) };
    let hidden = if there.is_dir() {
        let has_files = std::fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_some());
        has_files.then_some("the directory is not empty, and its files would be hidden")
    } else if there.is_file() {
        (there.len() > 0).then_some("the file is not empty, and its contents would be hidden")
    } else {
        Some("it is neither a directory nor a regular file, and would be hidden")
    };
    let Some(hidden) = hidden else { return Ok(()) };
    let kind = if there.is_dir() { "directory" } else { "file" };
    Err(Failure::usage(format!(
        "cannot mount at {}: {hidden}; choose an empty {kind}, or one that does not exist yet",
        target.display()
    )))
}

fn attributes_of(
    target: &Path,
    is_kind: impl Fn(&std::fs::Metadata) -> bool,
) -> Option<Attributes> {
    let there = target.symlink_metadata().ok().filter(is_kind)?;
    Some(Attributes {
        mode: there.permissions().mode() & 0o7777,
        user: there.uid(),
        group: there.gid(),
    })
}

/// Plugins remove an empty target; it was there before.
pub(super) fn restore_target(mount: &HandMount) {
    let directory = mount.directory_before.map(|it| (EntryKind::Directory, it));
    let file = mount.file_before.map(|it| (EntryKind::File, it));
    if let Some((kind, Attributes { mode, user, group })) = directory.or(file) {
        // As it was, where that can be had: the volume is unmounted in any case.
        let restored = restore_empty(&mount.target, EmptyEntry { kind, mode, user, group });
        if let Err(error) = restored {
            note(&error);
        }
    }
}

/// Where to mount, without links: plugins follow none. It need not exist, and what it is in has to.
pub(crate) fn target(given: &Path, access: &Access) -> Result<PathBuf> {
    let cannot =
        |why: String| Failure::usage(format!("cannot mount at {}: {why}", given.display()));
    match std::fs::canonicalize(given) {
        Ok(path) if path.is_dir() == access.is_block() => Err(cannot(match access.is_block() {
            true => "it is a directory, and a raw device is mounted at a file".to_owned(),
            false => "it is not a directory; a raw device is mounted with --block".to_owned(),
        })),
        Ok(path) => Ok(path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let absolute = std::path::absolute(given).map_err(|error| cannot(error.to_string()))?;
            let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
                return Err(cannot("it has no name".to_owned()));
            };
            let parent = std::fs::canonicalize(parent).map_err(|error| {
                cannot(format!("{}: {error}; create it first", parent.display()))
            })?;
            Ok(parent.join(name))
        }
        Err(error) => Err(cannot(error.to_string())),
    }
}

/// The volume with the nodes that it is published to, if the plugin says them.
pub(crate) async fn volume_to_mount(session: &Session, id: &str) -> Result<Volume> {
    match session.plugin.offers(Offer::GetVolume) || session.plugin.offers(Offer::ListVolumes) {
        true => inventory::volume(&session.plugin, id).await,
        false => {
            note(&format_args!(
                "note: the plugin does not list volumes, so it is not known whether volume {id} is in use elsewhere"
            ));
            Ok(Volume::of(v1::Volume { volume_id: id.to_owned(), ..Default::default() }))
        }
    }
}
