//! CreateSnapshot, DeleteSnapshot, ListSnapshots, GetSnapshot.

use orlop_engine::Engine;
use orlop_engine::request::{CreateSnapshot, SnapshotFilter};
use orlop_model::{Result, SnapshotRecord};
use tonic::Response;

use super::Controller;
use crate::executor::{Listed, Subject};
use crate::proto::csi::v1;
use crate::proto::csi::v1::list_snapshots_response::Entry;
use crate::services::{note_name, note_snapshot, note_volume};
use crate::{parse, reply};

impl Controller {
    pub(super) async fn create_snapshot(
        &self,
        request: v1::CreateSnapshotRequest,
    ) -> Result<Response<v1::CreateSnapshotResponse>> {
        note_name("snapshot_name", &request.name);
        note_volume(&request.source_volume_id);
        parse::require([
            ("source_volume_id", !request.source_volume_id.is_empty()),
            ("name", !request.name.is_empty()),
        ])?;
        parse::discard_secrets(request.secrets)?;
        parse::check_snapshot_parameters(&request.parameters)?;
        let wanted = CreateSnapshot {
            name: request.name.parse()?,
            topology: parse::topology_requirement(request.accessibility_requirements)?,
            source: parse::volume_id("source_volume_id", &request.source_volume_id)?,
        };
        let home = Subject::Pool(wanted.source.pool().clone());
        let made = self.executor.run(home, move |engine| engine.create_snapshot(&wanted)).await?;
        note_snapshot(&made.id);
        let reply = v1::CreateSnapshotResponse { snapshot: Some(self.described(&made)) };
        Ok(reply::with_consistency(reply, [&made]))
    }

    pub(super) async fn delete_snapshot(
        &self,
        request: v1::DeleteSnapshotRequest,
    ) -> Result<v1::DeleteSnapshotResponse> {
        note_snapshot(&request.snapshot_id);
        parse::require([("snapshot_id", !request.snapshot_id.is_empty())])?;
        parse::discard_secrets(request.secrets)?;
        if let Some(id) = parse::issued_snapshot(&request.snapshot_id)? {
            let home = Subject::Pool(id.pool().clone());
            self.executor.run(home, move |engine| engine.delete_snapshot(&id)).await?;
        }
        Ok(v1::DeleteSnapshotResponse {})
    }

    pub(super) async fn list_snapshots(
        &self,
        request: v1::ListSnapshotsRequest,
    ) -> Result<v1::ListSnapshotsResponse> {
        let max = parse::max_entries(request.max_entries)?;
        parse::discard_secrets(request.secrets)?;
        let after = parse::page_token(&request.starting_token)?;
        let Some(filter) = parse_filter(&request.snapshot_id, &request.source_volume_id)? else {
            return Ok(v1::ListSnapshotsResponse::default());
        };
        let list = move |engine: &Engine| engine.list_snapshots(&filter, after.as_ref(), max);
        let Listed { page, permit: _permit } = self.executor.list(max, list).await?;
        let entry = |record: SnapshotRecord| Entry { snapshot: Some(self.described(&record)) };
        Ok(v1::ListSnapshotsResponse {
            entries: page.entries.into_iter().map(entry).collect(),
            next_token: page.next.map(String::from).unwrap_or_default(),
        })
    }

    pub(super) async fn get_snapshot(
        &self,
        request: v1::GetSnapshotRequest,
    ) -> Result<Response<v1::GetSnapshotResponse>> {
        note_snapshot(&request.snapshot_id);
        parse::require([("snapshot_id", !request.snapshot_id.is_empty())])?;
        parse::discard_secrets(request.secrets)?;
        let id = parse::snapshot_id("snapshot_id", &request.snapshot_id)?;
        let home = Subject::Pool(id.pool().clone());
        let record = self.executor.run(home, move |engine| engine.snapshot(&id)).await?;
        let reply = v1::GetSnapshotResponse { snapshot: Some(self.described(&record)) };
        Ok(reply::with_snapshot_details(reply, &record))
    }

    fn described(&self, record: &SnapshotRecord) -> v1::Snapshot {
        reply::snapshot(record, &self.executor.topology_of(record.id.pool()))
    }
}

/// `None`: a filter that nothing can match (LS-14, LS-15).
fn parse_filter(snapshot: &str, source: &str) -> Result<Option<SnapshotFilter>> {
    let mut filter = SnapshotFilter::default();
    if !source.is_empty() {
        filter.source = parse::issued_volume("source_volume_id", source)?;
        if filter.source.is_none() {
            return Ok(None);
        }
    }
    if !snapshot.is_empty() {
        filter.snapshot = parse::issued_snapshot(snapshot)?;
        if filter.snapshot.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(filter))
}
