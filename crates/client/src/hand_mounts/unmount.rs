//! Unmounting what was mounted by hand.

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use orlop_csi::proto::csi::v1::node_client::NodeClient;

use super::mount::restore_target;
use super::{HandMount, forget, lock, of_volume};
use crate::failure::Result;
use crate::plugin::{NodeOffer, Offer};
use crate::session::Session;
use crate::terminal::note;
use crate::volume::delete_id;

/// May be repeated. The note is removed last: until then another command can finish the unmount.
pub(crate) async fn ensure_unmounted(session: &Session, mount: &HandMount) -> Result<()> {
    let plugin = &session.plugin;
    let _lock = lock(&session.directory, &plugin.driver, &mount.volume, plugin.timeout()).await?;
    undo(session, mount).await?;
    if mount.temporary_copy_of.is_some() {
        delete_id(session, &mount.volume, &mount.volume).await?;
    }
    forget(&session.directory, mount)
}

/// Undoes the mount, and leaves the volume.
pub(super) async fn undo(session: &Session, mount: &HandMount) -> Result<()> {
    let plugin = &session.plugin;
    let request = v1::NodeUnpublishVolumeRequest {
        volume_id: mount.volume.clone(),
        target_path: mount.target.display().to_string(),
    };
    let doing = format!("unmount volume {} from {}", mount.volume, mount.target.display());
    let send = |channel, request| async move {
        NodeClient::new(channel).node_unpublish_volume(request).await
    };
    plugin.ask(&doing, request, send).await?;
    restore_target(mount);
    let others = of_volume(&session.directory, &plugin.driver, &mount.volume)?;
    if others.iter().any(|other| other.target != mount.target) {
        return Ok(());
    }
    release(session, mount).await.map_err(|failure| failure.with_hint(&left_to_do(mount)))
}

/// Said of a volume that is no longer where the person looks for it.
fn left_to_do(mount: &HandMount) -> String {
    let target = mount.target.display();
    format!(
        "it is no longer mounted at {target}, but this node still holds it; then run `orlop volume unmount {target}` again to \
         complete the unmount"
    )
}

/// After the last unmount: lets go of the volume on this node.
async fn release(session: &Session, mount: &HandMount) -> Result<()> {
    let plugin = &session.plugin;
    unstage(session, mount).await?;
    if mount.attached && plugin.offers(Offer::PublishUnpublishVolume) {
        let request = v1::ControllerUnpublishVolumeRequest {
            volume_id: mount.volume.clone(),
            node_id: mount.node.clone(),
            secrets: plugin.secrets.clone(),
        };
        let doing = format!("unpublish volume {} from node {}", mount.volume, mount.node);
        let send = |channel, request| async move {
            ControllerClient::new(channel).controller_unpublish_volume(request).await
        };
        match plugin.ask(&doing, request, send).await {
            // The volume is unmounted; without this, its note could never be removed.
            Err(failure) if failure.is_data_loss() => {
                note(&format_args!("note: {failure}; the volume is unmounted all the same"));
            }
            answer => drop(answer?),
        }
    }
    Ok(())
}

async fn unstage(session: &Session, mount: &HandMount) -> Result<()> {
    let plugin = &session.plugin;
    if plugin.node_offers().await?.contains(&NodeOffer::StageUnstageVolume) {
        let request = v1::NodeUnstageVolumeRequest {
            volume_id: mount.volume.clone(),
            staging_target_path: mount.staging.display().to_string(),
        };
        let send = |channel, request| async move {
            NodeClient::new(channel).node_unstage_volume(request).await
        };
        plugin.ask(&format_args!("unstage volume {}", mount.volume), request, send).await?;
    }
    // Removes the directory only if it is empty.
    let _ = std::fs::remove_dir(&mount.staging);
    Ok(())
}
