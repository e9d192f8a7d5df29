//! Taking back what a check did.

use std::fs;
use std::time::Duration;

use tonic::Code;

use super::{CheckContext, held};
use crate::check::{Failure, Outcome, Stop};
use crate::undo::Undo;
use crate::wire::csi::{v0, v1};
use crate::wire::{Rpc, volumegroup};

/// A plugin that looks itself whether the use ends gets its time for each.
const ATTEMPTS: usize = 8;
const PAUSE: Duration = Duration::from_millis(250);

impl CheckContext {
    /// Undoes everything, the last thing first, and goes on after a refusal. What cannot be
    /// undone is a separate failure.
    pub(crate) async fn clean_up(&self) -> Outcome {
        let mut first = Ok(());
        loop {
            let Some(undo) = held(&self.undo).pop() else { break };
            first = first.and(self.undo(undo).await);
        }
        let directories: Vec<_> = held(&self.directories).drain(..).collect();
        for directory in directories.iter().rev() {
            first = first.and(self.remove_directory(directory));
        }
        first
    }

    fn remove_directory(&self, directory: &std::path::Path) -> Outcome {
        let leftovers = fs::read_dir(directory).map(|entries| entries.count()).unwrap_or_default();
        match fs::remove_dir(directory) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            // A target that the plugin was not asked to remove, for instance one of csi.v0.
            Err(_) if leftovers > 0 => self.remove_leftovers(directory),
            Err(error) => Err(self.left_behind(format!("{}: {error}", directory.display()))),
        }
    }

    /// Only empty things: what holds something, or is mounted, is not the suite's to remove.
    fn remove_leftovers(&self, directory: &std::path::Path) -> Outcome {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let removed = fs::remove_dir(&path).or_else(|_| fs::remove_file(&path));
            removed.map_err(|error| self.left_behind(format!("{}: {error}", path.display())))?;
        }
        fs::remove_dir(directory)
            .map_err(|error| self.left_behind(format!("{}: {error}", directory.display())))
    }

    fn left_behind(&self, what: String) -> Stop {
        let expected = format!("nothing to be left behind after the check: {what}");
        Stop::Failed(Box::new(Failure { row: None, expected, call: None }))
    }

    async fn undo(&self, undo: Undo) -> Outcome {
        let secrets = self.secrets();
        match undo {
            Undo::Volume(volume_id) => {
                self.gone(v1::DeleteVolumeRequest { volume_id, secrets }).await
            }
            Undo::Snapshot(snapshot_id) => {
                self.gone(v1::DeleteSnapshotRequest { snapshot_id, secrets }).await
            }
            Undo::GroupSnapshot { id: group_snapshot_id, snapshots: snapshot_ids } => {
                let request = v1::DeleteVolumeGroupSnapshotRequest {
                    group_snapshot_id,
                    snapshot_ids,
                    secrets,
                };
                self.gone(request).await
            }
            Undo::ControllerPublication { volume: volume_id, node: node_id } => {
                let request = v1::ControllerUnpublishVolumeRequest { volume_id, node_id, secrets };
                self.gone(request).await
            }
            Undo::Stage { volume: volume_id, path: staging_target_path } => {
                self.gone(v1::NodeUnstageVolumeRequest { volume_id, staging_target_path }).await
            }
            Undo::Publication { volume: volume_id, target: target_path } => {
                self.gone(v1::NodeUnpublishVolumeRequest { volume_id, target_path }).await
            }
            Undo::VolumeGroup(volume_group_id) => self.undo_volume_group(volume_group_id).await,
            Undo::V0Volume(_)
            | Undo::V0ControllerPublication { .. }
            | Undo::V0Stage { .. }
            | Undo::V0Publication { .. } => self.undo_v0(undo).await,
        }
    }

    /// Its volumes are noted on their own, so they leave the group first.
    async fn undo_volume_group(&self, volume_group_id: String) -> Outcome {
        let emptied = volumegroup::ModifyVolumeGroupMembershipRequest {
            volume_group_id: volume_group_id.clone(),
            secrets: self.secrets(),
            ..Default::default()
        };
        // Not every plugin has this call, and the group may be gone.
        self.settled(emptied).await.ok();
        let secrets = self.secrets();
        self.gone(volumegroup::DeleteVolumeGroupRequest { volume_group_id, secrets }).await
    }

    async fn undo_v0(&self, undo: Undo) -> Outcome {
        let secrets = self.secrets();
        match undo {
            Undo::V0Volume(volume_id) => {
                let controller_delete_secrets = secrets;
                self.gone(v0::DeleteVolumeRequest { volume_id, controller_delete_secrets }).await
            }
            Undo::V0ControllerPublication { volume: volume_id, node: node_id } => {
                let controller_unpublish_secrets = secrets;
                let request = v0::ControllerUnpublishVolumeRequest {
                    volume_id,
                    node_id,
                    controller_unpublish_secrets,
                };
                self.gone(request).await
            }
            Undo::V0Stage { volume: volume_id, path: staging_target_path } => {
                self.gone(v0::NodeUnstageVolumeRequest { volume_id, staging_target_path }).await
            }
            Undo::V0Publication { volume: volume_id, target: target_path } => {
                self.gone(v0::NodeUnpublishVolumeRequest { volume_id, target_path }).await
            }
            Undo::Volume(_)
            | Undo::Snapshot(_)
            | Undo::GroupSnapshot { .. }
            | Undo::ControllerPublication { .. }
            | Undo::Stage { .. }
            | Undo::Publication { .. }
            | Undo::VolumeGroup(_) => Ok(()),
        }
    }

    /// NOT_FOUND is as good as OK when the aim is that nothing is left. A volume may be called in use
    /// for a while after it was let go of, and the caller is to try again (DV-08).
    async fn gone<R: Rpc>(&self, request: R) -> Outcome {
        for attempt in 1.. {
            match self.settled(request.clone()).await? {
                Ok(_) => break,
                Err(status) if status.code() == Code::NotFound => break,
                Err(status) if status.code() == Code::FailedPrecondition && attempt < ATTEMPTS => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(_) => return Err(self.failed("OK when cleaning up after the check")),
            }
        }
        Ok(())
    }
}
