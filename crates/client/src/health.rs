//! What is wrong with volumes and with what they are on, as CSI 1.13 says it: a status, a reason for programs and a text
//! for people. A plugin that does not say it is no failure: then there is CSI's older condition, or nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use orlop_csi::proto::csi::v1::node_client::NodeClient;
use orlop_csi::proto::csi::v1::node_get_storage_health_response::StorageBackendHealth;
use orlop_csi::proto::csi::v1::volume_health::VolumeHealthEntry;
use orlop_csi::proto::csi::v1::{StorageHealthErrorType, VolumeHealthErrorType};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::inventory::{PAGE, Volume, check_token};
use crate::monitor;
use crate::plugin::{NodeOffer, Offer, Plugin};

/// How long a list waits for what the node says of the volumes that are staged there: one of them may hang.
const STAGED_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_ASKED_AT_ONCE: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// `degraded`, `inaccessible`, `data-loss` or `unknown`.
    pub(crate) status: &'static str,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Problem {
    fn of_volume(entry: VolumeHealthEntry) -> Self {
        let status = match entry.status() {
            VolumeHealthErrorType::Degraded => "degraded",
            VolumeHealthErrorType::Inaccessible => "inaccessible",
            VolumeHealthErrorType::DataLoss => "data-loss",
            VolumeHealthErrorType::UnknownVolumeHealthType => "unknown",
        };
        Self { status, reason: entry.reason, message: entry.message }
    }

    fn of_storage(entry: StorageBackendHealth) -> Self {
        let status = match entry.status() {
            StorageHealthErrorType::StorageDegraded => "degraded",
            StorageHealthErrorType::StorageUnreachable => "inaccessible",
            StorageHealthErrorType::UnknownStorageHealthErrorType => "unknown",
        };
        Self { status, reason: entry.reason, message: entry.message }
    }

    /// `PoolFull (degraded): the pool is below its floor`
    pub(crate) fn text(&self) -> String {
        format!("{} ({}): {}", self.reason, self.status, self.message)
    }
}

fn problems(health: Option<v1::VolumeHealth>) -> Vec<Problem> {
    let entries = health.map(|health| health.health_statuses).unwrap_or_default();
    entries.into_iter().map(Problem::of_volume).collect()
}

/// As the controller sees it. `None`: it does not say.
pub(crate) async fn of_volume(plugin: &Plugin, id: &str) -> Option<Vec<Problem>> {
    if !plugin.offers(Offer::GetVolumeHealth) {
        return None;
    }
    let request = v1::ControllerGetVolumeHealthRequest {
        volume_id: id.to_owned(),
        secrets: plugin.secrets.clone(),
    };
    let send = |channel, request| async move {
        ControllerClient::new(channel).controller_get_volume_health(request).await
    };
    let asked = plugin.ask(&format_args!("ask for the health of volume {id}"), request, send).await;
    asked.ok().map(|answer| problems(answer.into_inner().volume_health))
}

/// Of all volumes that have problems, by their ids. `None`: the controller does not say, or not of all.
pub(crate) async fn of_volumes(plugin: &Plugin) -> Option<BTreeMap<String, Vec<Problem>>> {
    if !plugin.offers(Offer::ListVolumeHealth) {
        return None;
    }
    let doing = "list volumes with problems";
    let mut found = BTreeMap::new();
    let mut token = String::new();
    loop {
        let request = v1::ControllerListVolumeHealthRequest {
            max_entries: PAGE,
            starting_token: token.clone(),
            secrets: plugin.secrets.clone(),
        };
        let send = |channel, request| async move {
            ControllerClient::new(channel).controller_list_volume_health(request).await
        };
        let page = plugin.ask(&doing, request, send).await.ok()?.into_inner();
        for health in page.entries {
            found.insert(health.volume_id.clone(), problems(Some(health)));
        }
        check_token(doing, &token, &page.next_token).ok()?;
        if page.next_token.is_empty() {
            return Some(found);
        }
        token = page.next_token;
    }
}

/// As the node behind the socket sees it, and why it could not be staged there. Nothing of a volume that is not in use on
/// that node.
pub(crate) async fn on_node(plugin: &Plugin, id: &str) -> Vec<Problem> {
    let offers = plugin.node_offers().await.unwrap_or_default();
    if !offers.contains(&NodeOffer::GetVolumeHealth) {
        return Vec::new();
    }
    let request = v1::NodeGetVolumeHealthRequest { volume_id: id.to_owned(), ..Default::default() };
    let send = |channel, request| async move {
        NodeClient::new(channel).node_get_volume_health(request).await
    };
    let doing = format!("ask the node for the health of volume {id}");
    let asked = plugin.ask(&doing, request, send).await;
    asked.map(|answer| problems(answer.into_inner().volume_health)).unwrap_or_default()
}

/// What the node says of a volume beyond what the controller says: it names what is wrong with the pool too.
pub(crate) fn beyond(volume: &Volume, on_node: Vec<Problem>) -> Vec<Problem> {
    let known = |problem: &Problem| {
        volume.problems.iter().flatten().any(|other| other.reason == problem.reason)
    };
    on_node.into_iter().filter(|problem| !known(problem)).collect()
}

/// As the node behind the socket sees the volumes that are staged there, by their ids; only of an Orlop daemon, which says
/// which these are: another plugin would have to be asked for each volume. What has not been answered in time is left out.
pub(crate) async fn of_staged(plugin: &Plugin) -> BTreeMap<String, Vec<Problem>> {
    let mut found = BTreeMap::new();
    // What was found by the deadline is kept.
    let _ = timeout(STAGED_TIMEOUT, add_staged(plugin, &mut found)).await;
    found
}

async fn add_staged(plugin: &Plugin, found: &mut BTreeMap<String, Vec<Problem>>) {
    let mut staged = monitor::staged(plugin).await.into_iter();
    if staged.len() == 0 {
        return;
    }
    let offers = plugin.node_offers().await.unwrap_or_default();
    if !offers.contains(&NodeOffer::GetVolumeHealth) {
        return;
    }
    let mut asking = JoinSet::new();
    loop {
        while asking.len() < MAX_ASKED_AT_ONCE
            && let Some(id) = staged.next()
        {
            let mut node = NodeClient::new(plugin.channel());
            asking.spawn(async move {
                let volume_id = id.clone();
                let request = v1::NodeGetVolumeHealthRequest { volume_id, ..Default::default() };
                (id, node.node_get_volume_health(request).await)
            });
        }
        match asking.join_next().await {
            None => return,
            Some(Ok((id, Ok(answer)))) => {
                found.insert(id, problems(answer.into_inner().volume_health));
            }
            // Unstaged in between.
            Some(_) => {}
        }
    }
}

/// Of the storage that the node behind the socket uses. `None`: it does not say.
pub(crate) async fn of_storage(plugin: &Plugin) -> Option<Vec<Problem>> {
    let offers = plugin.node_offers().await.ok()?;
    if !offers.contains(&NodeOffer::GetStorageHealth) {
        return None;
    }
    let request = v1::NodeGetStorageHealthRequest { secrets: plugin.secrets.clone() };
    let send = |channel, request| async move {
        NodeClient::new(channel).node_get_storage_health(request).await
    };
    let asked = plugin.ask(&"ask the node for the health of its storage", request, send).await;
    let entries = asked.ok()?.into_inner().backend_health;
    Some(entries.into_iter().map(Problem::of_storage).collect())
}
