//! The volumes and snapshots of the plugin, as the client shows them.

use std::collections::BTreeMap;

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use orlop_csi::proto::csi::v1::volume_content_source::Type;
use orlop_csi::{LIMITS_KEY, NAME_KEY};
use orlop_model::{SnapshotId, VolumeId};
use serde::Serialize;
use tonic::metadata::MetadataMap;

use crate::failure::{Failure, Result};
use crate::health::Problem;
use crate::monitor;
use crate::plugin::{Offer, Plugin};
use crate::terminal::printable;

/// How many entries one page of a list has.
pub(crate) const PAGE: i32 = 500;
/// How many objects are requested one by one for their names, if the plugin does not list them.
const MAX_NAMES: usize = 200;
const CONSISTENCY_KEY: &str = "orlop-consistency";

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Volume {
    pub(crate) id: String,
    /// `None`: the plugin does not say it. Orlop does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) size_bytes: u64,
    /// Bytes that it takes in its pool, including those that it shares with copies. `None`: the plugin does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) used_bytes: Option<u64>,
    /// Of these, the bytes that nothing else has: deleting the volume frees them. Only in `volume show`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exclusive_bytes: Option<u64>,
    pub(crate) source: Option<Source>,
    pub(crate) published_nodes: Vec<String>,
    pub(crate) condition: Option<Condition>,
    /// As the health calls of CSI 1.13 have it; where the plugin has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problems: Option<Vec<Problem>>,
    pub(crate) topology: Vec<BTreeMap<String, String>>,
    pub(crate) context: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limits: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    Snapshot(String),
    Volume(String),
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Condition {
    pub(crate) abnormal: bool,
    pub(crate) message: String,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Snapshot {
    pub(crate) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) source_volume: String,
    pub(crate) size_bytes: u64,
    /// RFC 3339.
    pub(crate) created: String,
    pub(crate) ready: bool,
    pub(crate) group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) consistency: Option<String>,
}

impl Volume {
    pub(crate) fn of(volume: v1::Volume) -> Self {
        let source =
            volume.content_source.and_then(|source| source.r#type).map(|source| match source {
                Type::Snapshot(it) => Source::Snapshot(it.snapshot_id),
                Type::Volume(it) => Source::Volume(it.volume_id),
            });
        Self {
            id: volume.volume_id,
            name: None,
            size_bytes: bytes(volume.capacity_bytes),
            used_bytes: None,
            exclusive_bytes: None,
            source,
            published_nodes: Vec::new(),
            condition: None,
            problems: None,
            topology: volume.accessible_topology.into_iter().map(|it| it.segments).collect(),
            context: volume.volume_context,
            limits: None,
        }
    }

    fn with_status(
        self,
        plugin: &Plugin,
        nodes: Vec<String>,
        condition: Option<v1::VolumeCondition>,
    ) -> Self {
        // A plugin that does not offer LIST_VOLUMES_PUBLISHED_NODES may return anything.
        let nodes = match plugin.offers(Offer::ListVolumesPublishedNodes) {
            true => nodes,
            false => Vec::new(),
        };
        let condition =
            condition.map(|it| Condition { abnormal: it.abnormal, message: it.message });
        Self { published_nodes: nodes, condition, ..self }
    }

    pub(crate) fn is_abnormal(&self) -> bool {
        self.problems.as_ref().is_some_and(|problems| !problems.is_empty())
            || self.condition.as_ref().is_some_and(|condition| condition.abnormal)
    }

    /// `pvc-1 (v-...)`, or the id alone.
    pub(crate) fn label(&self) -> String {
        labelled(&self.id, self.name.as_deref())
    }
}

impl Snapshot {
    pub(crate) fn of(snapshot: v1::Snapshot) -> Self {
        Self {
            id: snapshot.snapshot_id,
            name: None,
            source_volume: snapshot.source_volume_id,
            size_bytes: bytes(snapshot.size_bytes),
            created: snapshot.creation_time.map(|it| it.to_string()).unwrap_or_default(),
            ready: snapshot.ready_to_use,
            group: Some(snapshot.group_snapshot_id).filter(|it| !it.is_empty()),
            consistency: None,
        }
    }

    pub(crate) fn label(&self) -> String {
        labelled(&self.id, self.name.as_deref())
    }
}

fn labelled(id: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{} ({id})", printable(name)),
        None => id.to_owned(),
    }
}

/// The protocol has signed sizes.
pub(crate) fn bytes(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

pub(crate) async fn volumes(plugin: &Plugin) -> Result<Vec<Volume>> {
    let doing = "list volumes";
    plugin.require(Offer::ListVolumes, &doing)?;
    let mut found = Vec::new();
    let mut token = String::new();
    loop {
        let request = v1::ListVolumesRequest { max_entries: PAGE, starting_token: token.clone() };
        let send = |channel, request| async move {
            ControllerClient::new(channel).list_volumes(request).await
        };
        let page = plugin.ask(&doing, request, send).await?.into_inner();
        found.extend(page.entries.into_iter().filter_map(|entry| {
            let status = entry.status.unwrap_or_default();
            Some(Volume::of(entry.volume?).with_status(
                plugin,
                status.published_node_ids,
                status.volume_condition,
            ))
        }));
        check_token(doing, &token, &page.next_token)?;
        if page.next_token.is_empty() {
            return Ok(found);
        }
        token = page.next_token;
    }
}

pub(crate) async fn snapshots(plugin: &Plugin, of: Option<&str>) -> Result<Vec<Snapshot>> {
    let doing = "list snapshots";
    plugin.require(Offer::ListSnapshots, &doing)?;
    let mut found = Vec::new();
    let mut token = String::new();
    loop {
        let request = v1::ListSnapshotsRequest {
            max_entries: PAGE,
            starting_token: token.clone(),
            source_volume_id: of.unwrap_or_default().to_owned(),
            secrets: plugin.secrets.clone(),
            ..Default::default()
        };
        let send = |channel, request| async move {
            ControllerClient::new(channel).list_snapshots(request).await
        };
        let page = plugin.ask(&doing, request, send).await?.into_inner();
        found.extend(page.entries.into_iter().filter_map(|entry| entry.snapshot).map(Snapshot::of));
        check_token(doing, &token, &page.next_token)?;
        if page.next_token.is_empty() {
            return Ok(found);
        }
        token = page.next_token;
    }
}

/// With their names, if the plugin says them. ListVolumes has no field for names, so each volume that the monitor does not
/// name is requested.
pub(crate) async fn named_volumes(plugin: &Plugin) -> Result<Vec<Volume>> {
    let mut listed = volumes(plugin).await?;
    let mut known = monitor::volumes(plugin).await;
    for volume in &mut listed {
        if let Some(found) = known.remove(&volume.id) {
            volume.name = Some(found.name);
            volume.limits = Some(found.limits);
            volume.used_bytes = Some(found.used_bytes);
        }
    }
    if !plugin.offers(Offer::GetVolume) {
        return Ok(listed);
    }
    for entry in listed.iter_mut().filter(|entry| entry.name.is_none()).take(MAX_NAMES) {
        match volume(plugin, &entry.id).await {
            Ok(Volume { name: Some(name), limits, .. }) => {
                entry.name = Some(name);
                entry.limits = limits;
            }
            // This plugin does not say names. Orlop does, except of volumes whose record cannot be read.
            Ok(Volume { name: None, .. }) if entry.id.parse::<VolumeId>().is_err() => break,
            Ok(_) => {}
            // Deleted since it was listed, or its pool is absent: it is listed without its name.
            Err(_) => {}
        }
    }
    Ok(listed)
}

/// As [`named_volumes`], the oldest first.
pub(crate) async fn named_snapshots(plugin: &Plugin, of: Option<&str>) -> Result<Vec<Snapshot>> {
    let mut listed = snapshots(plugin, of).await?;
    listed.sort_by(|a, b| a.created.cmp(&b.created));
    let mut known = monitor::snapshots(plugin).await;
    for snapshot in &mut listed {
        if let Some(found) = known.remove(&snapshot.id) {
            snapshot.name = Some(found.name);
            snapshot.consistency = Some(found.consistency);
        }
    }
    if !plugin.offers(Offer::GetSnapshot) {
        return Ok(listed);
    }
    for entry in listed.iter_mut().filter(|entry| entry.name.is_none()).take(MAX_NAMES) {
        match snapshot(plugin, &entry.id).await {
            Ok(found) if found.name.is_some() => *entry = found,
            Ok(_) if entry.id.parse::<SnapshotId>().is_err() => break,
            Ok(_) | Err(_) => {}
        }
    }
    Ok(listed)
}

/// A plugin that returns the same token again would be called without end.
pub(crate) fn check_token(doing: &str, before: &str, next: &str) -> Result<()> {
    match !next.is_empty() && before == next {
        true => Err(Failure::failed(format!(
            "cannot {doing}: the plugin returns the same page token again"
        ))),
        false => Ok(()),
    }
}

/// One volume, with its name and limits if the plugin says them. Without ControllerGetVolume, its entry in the list.
pub(crate) async fn volume(plugin: &Plugin, id: &str) -> Result<Volume> {
    if !plugin.offers(Offer::GetVolume) {
        let all = volumes(plugin).await?;
        let found = all.into_iter().find(|volume| volume.id == id);
        return found.ok_or_else(|| {
            Failure::refused(format!("cannot show volume {id}: the plugin has no such volume"))
        });
    }
    let request = v1::ControllerGetVolumeRequest { volume_id: id.to_owned() };
    let send = |channel, request| async move {
        ControllerClient::new(channel).controller_get_volume(request).await
    };
    let answer = plugin.ask(&format_args!("show volume {id}"), request, send).await?;
    let (name, limits) = (name(answer.metadata()), limits(answer.metadata()));
    let answer = answer.into_inner();
    let status = answer.status.unwrap_or_default();
    let found = answer.volume.map(Volume::of).filter(|volume| !volume.id.is_empty());
    let found = found.ok_or_else(|| {
        Failure::failed(format!("cannot show volume {id}: the plugin's answer does not contain it"))
    })?;
    let found = found.with_status(plugin, status.published_node_ids, status.volume_condition);
    // A plugin that says names says limits too. Of another one, limits are not known.
    let limits = name.is_some().then_some(limits);
    Ok(Volume { name, limits, ..found })
}

pub(crate) async fn snapshot(plugin: &Plugin, id: &str) -> Result<Snapshot> {
    let secrets = plugin.secrets.clone();
    if !plugin.offers(Offer::GetSnapshot) {
        let all = snapshots(plugin, None).await?;
        let found = all.into_iter().find(|snapshot| snapshot.id == id);
        return found.ok_or_else(|| {
            Failure::refused(format!("cannot show snapshot {id}: the plugin has no such snapshot"))
        });
    }
    let request = v1::GetSnapshotRequest { snapshot_id: id.to_owned(), secrets };
    let send = |channel, request| async move {
        ControllerClient::new(channel).get_snapshot(request).await
    };
    let answer = plugin.ask(&format_args!("show snapshot {id}"), request, send).await?;
    let (name, consistency) = (name(answer.metadata()), consistency(answer.metadata(), id));
    let found = answer.into_inner().snapshot.map(Snapshot::of);
    let found = found.ok_or_else(|| {
        Failure::failed(format!(
            "cannot show snapshot {id}: the plugin's answer does not contain it"
        ))
    })?;
    Ok(Snapshot { name, consistency, ..found })
}

fn name(metadata: &MetadataMap) -> Option<String> {
    let bytes = metadata.get_bin(NAME_KEY)?.to_bytes().ok()?;
    String::from_utf8(bytes.to_vec()).ok()
}

fn limits(metadata: &MetadataMap) -> BTreeMap<String, String> {
    let values = metadata.get_all(LIMITS_KEY).into_iter().filter_map(|value| value.to_str().ok());
    values
        .filter_map(|text| text.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

pub(crate) fn consistency(metadata: &MetadataMap, id: &str) -> Option<String> {
    let mut values =
        metadata.get_all(CONSISTENCY_KEY).into_iter().filter_map(|value| value.to_str().ok());
    values.find_map(|text| text.strip_prefix(id)?.strip_prefix('=')).map(str::to_owned)
}
