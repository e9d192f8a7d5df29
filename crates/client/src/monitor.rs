//! What an Orlop daemon says beyond CSI: names, limits and space, of all objects in one answer. Another plugin has no such
//! calls, and what it does not say is left out.

use std::collections::BTreeMap;

use orlop_csi::proto::monitor;
use orlop_csi::proto::monitor::monitor_client::MonitorClient;
use orlop_model::Bytes;

use crate::plugin::Plugin;

pub(crate) struct KnownVolume {
    pub(crate) name: String,
    pub(crate) limits: BTreeMap<String, String>,
    /// Blocks that it has, also those that it shares with copies.
    pub(crate) used_bytes: u64,
}

pub(crate) struct KnownSnapshot {
    pub(crate) name: String,
    pub(crate) consistency: String,
}

/// What a volume or snapshot takes, and of that what nothing else has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Footprint {
    pub(crate) used_bytes: u64,
    pub(crate) exclusive_bytes: u64,
}

impl Footprint {
    /// `2.1 MiB shared, 98.0 KiB its own`
    pub(crate) fn parts(used: u64, exclusive: u64) -> String {
        Self::parts_shared_with(used, exclusive, "")
    }

    /// As [`Self::parts`], where it is known with what.
    pub(crate) fn parts_shared_with(used: u64, exclusive: u64, with: &str) -> String {
        let shared = Bytes(used.saturating_sub(exclusive));
        format!("{shared} shared{with}, {} its own", Bytes(exclusive))
    }
}

/// By their ids.
pub(crate) async fn volumes(plugin: &Plugin) -> BTreeMap<String, KnownVolume> {
    let send = |channel, request| async move {
        MonitorClient::new(channel).list_volume_usage(request).await
    };
    let request = monitor::ListVolumeUsageRequest {};
    let asked = plugin.ask(&"read names and space of volumes", request, send).await;
    let found = asked.map(|answer| answer.into_inner().volumes).unwrap_or_default();
    let known = |volume: monitor::VolumeUsage| {
        let limits = volume.limits.into_iter().map(|(key, limit)| (key, limit.to_string()));
        let known = KnownVolume {
            name: volume.name,
            limits: limits.collect(),
            used_bytes: volume.used_bytes,
        };
        (volume.volume_id, known)
    };
    // A daemon of an earlier version names none.
    found.into_iter().filter(|volume| !volume.name.is_empty()).map(known).collect()
}

/// The ids of the volumes that are staged on the daemon's node.
pub(crate) async fn staged(plugin: &Plugin) -> Vec<String> {
    let send =
        |channel, request| async move { MonitorClient::new(channel).list_volume_io(request).await };
    let asked = plugin.ask(&"list staged volumes", monitor::ListVolumeIoRequest {}, send).await;
    let found = asked.map(|answer| answer.into_inner().volumes).unwrap_or_default();
    found.into_iter().map(|volume| volume.volume_id).collect()
}

/// By their ids.
pub(crate) async fn snapshots(plugin: &Plugin) -> BTreeMap<String, KnownSnapshot> {
    let send = |channel, request| async move {
        MonitorClient::new(channel).list_snapshot_names(request).await
    };
    let request = monitor::ListSnapshotNamesRequest {};
    let asked = plugin.ask(&"read names of snapshots", request, send).await;
    let found = asked.map(|answer| answer.into_inner().snapshots).unwrap_or_default();
    let known = |snapshot: monitor::SnapshotName| {
        let monitor::SnapshotName { snapshot_id, name, consistency } = snapshot;
        (snapshot_id, KnownSnapshot { name, consistency })
    };
    found.into_iter().map(known).collect()
}

/// Of a volume and what came from it, by their ids.
pub(crate) async fn footprints(plugin: &Plugin, volume: &str) -> BTreeMap<String, Footprint> {
    let request = monitor::ListFootprintsRequest { volume_id: volume.to_owned() };
    let send = |channel, request| async move {
        MonitorClient::new(channel).list_footprints(request).await
    };
    let asked = plugin.ask(&format_args!("measure volume {volume}"), request, send).await;
    let found = asked.map(|answer| answer.into_inner().objects).unwrap_or_default();
    let footprint = |it: monitor::Footprint| {
        let monitor::Footprint { id, taken_bytes: used_bytes, exclusive_bytes } = it;
        (id, Footprint { used_bytes, exclusive_bytes })
    };
    found.into_iter().map(footprint).collect()
}
