//! `orlop pool status`: what the pools of a daemon have and how they are; of another plugin, what it can still provide.

use std::collections::BTreeMap;

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use orlop_csi::proto::monitor;
use orlop_csi::proto::monitor::monitor_client::MonitorClient;
use orlop_model::Bytes;
use serde::Serialize;

use crate::failure::{EXIT_CODES, Result};
use crate::inventory;
use crate::output::{Answer, Table};
use crate::plugin::Offer;
use crate::session::{Common, FindSettings, Session, Watch};
use crate::terminal::printable;

#[derive(Debug, clap::Args)]
#[command(after_help = format!(
    "FREE is what the filesystem or thin pool of the pool has left, STORED what the pool's own files take of it, SHARED what copies have \
     in common and is stored once (at most), PROMISED the sizes of all volumes and what snapshots may need, AVAILABLE what \
     can still be promised, FLOOR the free space below which nothing new is created, METADATA how much of the metadata of a \
     thin pool is used.\n\n{EXIT_CODES}"
))]
pub struct PoolStatusArguments {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    watch: Watch,
}

/// What is not known is null.
#[derive(Debug, Default, Serialize)]
struct PoolStatus {
    name: Option<String>,
    id: Option<String>,
    /// `up`, `hung`, `failed` or `absent`.
    state: Option<String>,
    problem: Option<String>,
    size_bytes: Option<u64>,
    free_bytes: Option<u64>,
    stored_bytes: Option<u64>,
    shared_bytes: Option<u64>,
    promised_bytes: Option<u64>,
    reserved_bytes: Option<u64>,
    available_bytes: Option<u64>,
    floor_bytes: Option<u64>,
    overcommit_percent: Option<u32>,
    metadata_size_bytes: Option<u64>,
    metadata_used_bytes: Option<u64>,
    volumes: Option<u64>,
    abnormal_volumes: Option<u64>,
    snapshots: Option<u64>,
    abnormal_snapshots: Option<u64>,
    /// How many volumes have each problem.
    volumes_by_reason: BTreeMap<String, u64>,
}

pub(crate) async fn run(arguments: &PoolStatusArguments, find: FindSettings<'_>) -> Result<()> {
    let session = Session::open(&arguments.common, find).await?;
    session.watch(arguments.watch, async || status(&session).await).await
}

async fn status(session: &Session) -> Result<Answer> {
    let pools = pools(session).await?;
    let ids = pools.iter().filter_map(|pool| pool.id.clone()).collect();
    Answer::new(ids, &pools, described(session, &pools))
}

async fn pools(session: &Session) -> Result<Vec<PoolStatus>> {
    let send =
        |channel, request| async move { MonitorClient::new(channel).list_pools(request).await };
    let doing = "show the state of pools";
    match session.plugin.ask(&doing, monitor::ListPoolsRequest {}, send).await {
        Ok(answer) => Ok(answer.into_inner().pools.into_iter().map(PoolStatus::of).collect()),
        Err(failure) if failure.is_unimplemented() => capacity(session).await,
        Err(failure) => Err(failure),
    }
}

/// CSI has no call for more than this.
async fn capacity(session: &Session) -> Result<Vec<PoolStatus>> {
    let doing = "read the capacity of the plugin";
    session.plugin.require(Offer::GetCapacity, &doing)?;
    let send = |channel, request| async move {
        ControllerClient::new(channel).get_capacity(request).await
    };
    let answer = session.plugin.ask(&doing, v1::GetCapacityRequest::default(), send).await?;
    let available_bytes = Some(inventory::bytes(answer.into_inner().available_capacity));
    Ok(vec![PoolStatus { available_bytes, ..PoolStatus::default() }])
}

impl PoolStatus {
    fn of(pool: monitor::PoolStatus) -> Self {
        let known = |text: String| Some(text).filter(|text| !text.is_empty());
        Self {
            name: known(pool.name),
            id: known(pool.pool_id),
            state: known(pool.state),
            problem: known(pool.problem),
            size_bytes: pool.size_bytes,
            free_bytes: pool.free_bytes,
            stored_bytes: pool.stored_bytes,
            shared_bytes: pool.shared_bytes,
            promised_bytes: pool.promised_bytes,
            reserved_bytes: pool.reserved_bytes,
            available_bytes: pool.available_bytes,
            floor_bytes: pool.floor_bytes,
            overcommit_percent: pool.overcommit_percent,
            metadata_size_bytes: pool.metadata_size_bytes,
            metadata_used_bytes: pool.metadata_used_bytes,
            volumes: pool.volumes,
            abnormal_volumes: pool.abnormal_volumes,
            snapshots: pool.snapshots,
            abnormal_snapshots: pool.abnormal_snapshots,
            volumes_by_reason: pool.volumes_by_reason,
        }
    }

    fn is_bad(&self) -> bool {
        self.problem.is_some()
            || !self.volumes_by_reason.is_empty()
            || self.abnormal_snapshots.is_some_and(|count| count > 0)
    }

    /// `37%`: how much of its metadata is used, rounded up. `None`: it has none that could fill up.
    fn metadata(&self) -> Option<String> {
        let (size, used) = self.metadata_size_bytes.zip(self.metadata_used_bytes)?;
        let size = u128::from(size);
        (size > 0).then(|| format!("{}%", (u128::from(used) * 100).div_ceil(size)))
    }

    /// What needs attention, one line each.
    fn complaints(&self) -> Vec<String> {
        let name = self.name.as_deref().unwrap_or_default();
        let mut all: Vec<String> =
            self.problem.iter().map(|why| format!("pool {name}: {why}")).collect();
        for (reason, count) in &self.volumes_by_reason {
            all.push(format!("pool {name}: {} with {reason}", counted(*count, "volume")));
        }
        if let Some(count) = self.abnormal_snapshots.filter(|count| *count > 0) {
            let snapshots = counted(count, "snapshot");
            all.push(format!("pool {name}: {snapshots} that cannot be restored; see orlop doctor"));
        }
        all
    }
}

fn counted(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

fn described(session: &Session, pools: &[PoolStatus]) -> String {
    let mut table = Table::new(&[
        "POOL",
        "ID",
        "STATE",
        "SIZE",
        "FREE",
        "STORED",
        "SHARED",
        "PROMISED",
        "AVAILABLE",
        "FLOOR",
        "METADATA",
        "VOLUMES",
        "SNAPSHOTS",
    ]);
    let size = |bytes: Option<u64>| bytes.map(|bytes| Bytes(bytes).to_string()).unwrap_or_default();
    let count = |count: Option<u64>| count.map(|count| count.to_string()).unwrap_or_default();
    for pool in pools {
        let cells = [
            pool.name.clone().unwrap_or_default(),
            pool.id.clone().unwrap_or_default(),
            pool.state.clone().unwrap_or_default(),
            size(pool.size_bytes),
            size(pool.free_bytes),
            size(pool.stored_bytes),
            size(pool.shared_bytes),
            size(pool.promised_bytes),
            size(pool.available_bytes),
            size(pool.floor_bytes),
            pool.metadata().unwrap_or_default(),
            count(pool.volumes),
            count(pool.snapshots),
        ];
        table.judged_row(cells, pool.is_bad());
    }
    let style = session.output.style;
    let mut text = table.rendered(style, "this daemon has no pools; those of its nodes do");
    for complaint in pools.iter().flat_map(PoolStatus::complaints) {
        text.push_str(&format!("\n{}", style.bad(&printable(&complaint))));
    }
    text
}
