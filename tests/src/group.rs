//! Group snapshots, in few words.

use orlop_csi::proto::csi::v1;

use crate::client::{Answer, Client};

impl Client {
    pub async fn group_snapshot(
        &self,
        name: &str,
        sources: &[String],
    ) -> Answer<v1::VolumeGroupSnapshot> {
        let request = v1::CreateVolumeGroupSnapshotRequest {
            name: name.to_owned(),
            source_volume_ids: sources.to_vec(),
            ..v1::CreateVolumeGroupSnapshotRequest::default()
        };
        let answer = self.group_controller().create_volume_group_snapshot(request).await?;
        Ok(answer.into_inner().group_snapshot.expect("a group snapshot in the answer"))
    }

    pub async fn get_group_snapshot(
        &self,
        group: &str,
        members: &[String],
    ) -> Answer<v1::VolumeGroupSnapshot> {
        let request = v1::GetVolumeGroupSnapshotRequest {
            group_snapshot_id: group.to_owned(),
            snapshot_ids: members.to_vec(),
            ..v1::GetVolumeGroupSnapshotRequest::default()
        };
        let answer = self.group_controller().get_volume_group_snapshot(request).await?;
        Ok(answer.into_inner().group_snapshot.expect("a group snapshot in the answer"))
    }

    pub async fn delete_group_snapshot(&self, group: &str, members: &[String]) -> Answer<()> {
        let request = v1::DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: group.to_owned(),
            snapshot_ids: members.to_vec(),
            ..v1::DeleteVolumeGroupSnapshotRequest::default()
        };
        self.group_controller().delete_volume_group_snapshot(request).await.map(drop)
    }
}

pub trait GroupSnapshotExt {
    fn member_ids(&self) -> Vec<String>;
    /// The snapshot of this volume.
    fn member_of(&self, volume: &str) -> &v1::Snapshot;
}

impl GroupSnapshotExt for v1::VolumeGroupSnapshot {
    fn member_ids(&self) -> Vec<String> {
        self.snapshots.iter().map(|snapshot| snapshot.snapshot_id.clone()).collect()
    }

    fn member_of(&self, volume: &str) -> &v1::Snapshot {
        let is_it = |snapshot: &&v1::Snapshot| snapshot.source_volume_id == volume;
        self.snapshots.iter().find(is_it).expect("a snapshot of each volume")
    }
}
