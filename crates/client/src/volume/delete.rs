//! `orlop volume delete`

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use orlop_model::Bytes;
use orlop_sys::mounts;

use crate::failure::{Failure, Result};
use crate::inventory::{self, Volume};
use crate::output::Answer;
use crate::plugin::Offer;
use crate::session::{Destroy, Session};
use crate::terminal::confirm;
use crate::{hand_mounts, resolve, transfer};

#[derive(Debug, clap::Args)]
pub(super) struct DeleteArguments {
    /// Ids or names, whole
    #[arg(required = true, value_name = "VOLUME")]
    volumes: Vec<String>,
    #[command(flatten)]
    destroy: Destroy,
}

pub(super) async fn run(session: &Session, arguments: &DeleteArguments) -> Result<()> {
    session.plugin.require(Offer::CreateDeleteVolume, &"delete a volume")?;
    let mut to_delete: Vec<Volume> = Vec::new();
    for given in &arguments.volumes {
        let id = resolve::whole_volume(&session.plugin, given).await?;
        // Also of a plugin without lists, of whose volumes nothing is known.
        let volume = match session.plugin.offers(Offer::ListVolumes)
            || session.plugin.offers(Offer::GetVolume)
        {
            true => inventory::volume(&session.plugin, &id).await?,
            false => Volume::of(v1::Volume { volume_id: id, ..Default::default() }),
        };
        if to_delete.iter().all(|other| other.id != volume.id) {
            refuse_mounted(session, &volume)?;
            to_delete.push(volume);
        }
    }
    let listed: Vec<String> = to_delete.iter().map(described).collect();
    if arguments.destroy.dry_run {
        return session.would(&format!("delete {}", listed.join("; ")));
    }
    confirm(&format!("this deletes, with all data: {}", listed.join("; ")), arguments.destroy.yes)?;
    for volume in &to_delete {
        delete(session, volume).await?;
        let text = format!("deleted volume {}", volume.label());
        session.show(&Answer::new(vec![volume.id.clone()], volume, text)?)?;
    }
    Ok(())
}

fn described(volume: &Volume) -> String {
    let nodes = match volume.published_nodes.as_slice() {
        [] => String::new(),
        nodes => format!(", in use on {}", nodes.join(", ")),
    };
    format!("volume {} of {}{nodes}", volume.label(), Bytes(volume.size_bytes))
}

/// The plugin would refuse it too, without naming the command that unmounts it.
fn refuse_mounted(session: &Session, volume: &Volume) -> Result<()> {
    let noted = hand_mounts::of_volume(&session.directory, &session.plugin.driver, &volume.id)?;
    match noted.first() {
        Some(mount) => {
            let target = mount.target.display();
            // A refused unmount leaves the volume in use, and nothing at the target.
            let is_gone = matches!(mounts::mount_at(&mount.target), Ok(None));
            let why = match is_gone {
                false => {
                    format!("it is mounted at {target}; `orlop volume unmount {target}` first")
                }
                true => format!(
                    "its mount or unmount at {target} is not complete: nothing is mounted there, but this node still holds the \
                     volume; `orlop volume unmount {target}` first, which completes the unmount"
                ),
            };
            Err(Failure::refused(format!("cannot delete volume {}: {why}", volume.label())))
        }
        None => Ok(()),
    }
}

async fn delete(session: &Session, volume: &Volume) -> Result<()> {
    delete_id(session, &volume.id, &volume.label()).await
}

pub(crate) async fn delete_id(session: &Session, id: &str, label: &str) -> Result<()> {
    let request = v1::DeleteVolumeRequest {
        volume_id: id.to_owned(),
        secrets: session.plugin.secrets.clone(),
    };
    let send = |channel, request| async move {
        ControllerClient::new(channel).delete_volume(request).await
    };
    session.plugin.ask(&format_args!("delete volume {label}"), request, send).await?;
    transfer::forget_volume(session, id)
}
