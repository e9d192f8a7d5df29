//! List, show, create, delete and restore.

use std::time::Duration;

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use orlop_model::Bytes;
use serde::Serialize;

use crate::capability::Access;
use crate::copies::{self, Copy, Family};
use crate::failure::{Failure, Result};
use crate::inventory::{self, Snapshot};
use crate::monitor::{self, Footprint};
use crate::output::{Answer, Table};
use crate::plugin::Offer;
use crate::session::{Change, Destroy, Session, Watch};
use crate::terminal::{confirm, printable};
use crate::volume::{NewVolume, create_or_find, source_of_snapshot};
use crate::{pairs, resolve};

/// How often it is checked whether a snapshot is ready.
const READY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(super) struct ListArguments {
    /// Only those of this volume, which need not exist any more
    #[arg(long, value_name = "VOLUME")]
    volume: Option<String>,
    #[command(flatten)]
    watch: Watch,
}

#[derive(Debug, clap::Args)]
pub(super) struct ShowArguments {
    /// Its id or name, or the beginning of one
    snapshot: String,
    #[command(flatten)]
    watch: Watch,
}

#[derive(Debug, clap::Args)]
pub(super) struct CreateArguments {
    /// The volume's id or name, or the beginning of one
    volume: String,

    /// A name that no other snapshot has; one of the same volume that has it already is shown
    name: String,

    /// A parameter for the plugin, as of a VolumeSnapshotClass
    #[arg(long = "parameter", short, value_name = "KEY=VALUE", value_parser = pairs::parse)]
    parameters: Vec<(String, String)>,

    #[command(flatten)]
    change: Change,
}

#[derive(Debug, clap::Args)]
pub(super) struct DeleteArguments {
    /// Ids or names, not just the beginnings of some
    #[arg(required = true, value_name = "SNAPSHOT")]
    snapshots: Vec<String>,
    #[command(flatten)]
    destroy: Destroy,
}

#[derive(Debug, clap::Args)]
pub(super) struct RestoreArguments {
    /// Its id or name, or the beginning of one
    snapshot: String,

    /// The new volume's name
    name: String,

    /// Its size, at least that of the snapshot
    #[arg(long, short, value_parser = pairs::size)]
    size: Option<u64>,

    /// With this filesystem, such as xfs; without it the plugin's default, or that of the snapshot
    #[arg(long, value_name = "TYPE", conflicts_with = "block")]
    fs: Option<String>,

    /// A raw device
    #[arg(long)]
    block: bool,

    #[command(flatten)]
    change: Change,
}

pub(super) async fn list(session: &Session, arguments: &ListArguments) -> Result<()> {
    let plugin = &session.plugin;
    let of = match &arguments.volume {
        // Snapshots may outlive their volume, of which nothing but the id is left.
        Some(given) => Some(match resolve::volume(plugin, given).await {
            Err(Failure::Refused(_)) => given.clone(),
            resolved => resolved?,
        }),
        None => None,
    };
    session.watch(arguments.watch, async || listed(session, of.as_deref()).await).await
}

async fn listed(session: &Session, of: Option<&str>) -> Result<Answer> {
    let snapshots = inventory::named_snapshots(&session.plugin, of).await?;
    let mut table = Table::new(&["ID", "NAME", "SIZE", "TAKEN", "READY", "OF VOLUME", "GROUP"]);
    for snapshot in &snapshots {
        table.row([
            snapshot.id.clone(),
            snapshot.name.clone().unwrap_or_default(),
            Bytes(snapshot.size_bytes).to_string(),
            seconds(&snapshot.created),
            if snapshot.ready { "yes" } else { "no" }.to_owned(),
            snapshot.source_volume.clone(),
            snapshot.group.clone().unwrap_or_default(),
        ]);
    }
    let ids = snapshots.iter().map(|snapshot| snapshot.id.clone()).collect();
    Answer::new(ids, &snapshots, table.rendered(session.output.style, "there are no snapshots"))
}

/// Without the fraction, which people do not need.
fn seconds(created: &str) -> String {
    match created.split_once('.') {
        Some((whole, _)) => format!("{whole}Z"),
        None => created.to_owned(),
    }
}

#[derive(Serialize)]
struct SnapshotDetails {
    #[serde(flatten)]
    snapshot: Snapshot,
    /// What it takes in its pool, where the plugin tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    used_bytes: Option<u64>,
    /// Of these, what nothing else has: deleting it gives that much back.
    #[serde(skip_serializing_if = "Option::is_none")]
    exclusive_bytes: Option<u64>,
    copies: Vec<Copy>,
}

pub(super) async fn show(session: &Session, arguments: &ShowArguments) -> Result<()> {
    let id = resolve::snapshot(&session.plugin, &arguments.snapshot).await?;
    session.watch(arguments.watch, async || details(session, &id).await).await
}

async fn details(session: &Session, id: &str) -> Result<Answer> {
    let plugin = &session.plugin;
    let snapshot = inventory::snapshot(plugin, id).await?;
    let volumes = match plugin.offers(Offer::ListVolumes) {
        true => inventory::named_volumes(plugin).await?,
        false => Vec::new(),
    };
    let snapshots = inventory::named_snapshots(plugin, None).await?;
    let footprints = monitor::footprints(plugin, &snapshot.source_volume).await;
    let family = Family { volumes: &volumes, snapshots: &snapshots, footprints: &footprints };
    let footprint = footprints.get(id);
    let details = SnapshotDetails {
        snapshot,
        used_bytes: footprint.map(|footprint| footprint.used_bytes),
        exclusive_bytes: footprint.map(|footprint| footprint.exclusive_bytes),
        copies: family.of_snapshot(id),
    };
    Answer::new(vec![id.to_owned()], &details, described(session, &details))
}

fn described(session: &Session, details: &SnapshotDetails) -> String {
    let snapshot = &details.snapshot;
    let mut lines = vec![format!("snapshot     {}", session.output.style.heading(&snapshot.id))];
    let mut add = |what: &str, value: &str| {
        if !value.is_empty() {
            lines.push(format!("{what:<11}  {}", printable(value)));
        }
    };
    add("name", snapshot.name.as_deref().unwrap_or_default());
    add("of volume", &snapshot.source_volume);
    add("taken", &snapshot.created);
    add("size", &format!("{} ({} bytes)", Bytes(snapshot.size_bytes), snapshot.size_bytes));
    if let Some((used, exclusive)) = details.used_bytes.zip(details.exclusive_bytes) {
        let parts = Footprint::parts(used, exclusive);
        add("used", &format!("{} ({used} bytes): {parts}", Bytes(used)));
    }
    add("ready", if snapshot.ready { "yes" } else { "no" });
    add("consistency", snapshot.consistency.as_deref().unwrap_or_default());
    add("group", snapshot.group.as_deref().unwrap_or_default());
    match details.copies.as_slice() {
        [] => lines.push("copies       none".to_owned()),
        copies => lines.push(format!("copies\n{}", copies::drawn(copies, ""))),
    }
    lines.join("\n")
}

pub(super) async fn create(session: &Session, arguments: &CreateArguments) -> Result<()> {
    let plugin = &session.plugin;
    let source = resolve::volume(plugin, &arguments.volume).await?;
    let doing = format!("take snapshot {} of volume {source}", arguments.name);
    plugin.require(Offer::CreateDeleteSnapshot, &doing)?;
    if arguments.change.dry_run {
        return session.would(&doing);
    }
    let before = match plugin.offers(Offer::ListSnapshots) {
        true => inventory::snapshots(plugin, Some(&source)).await?,
        false => Vec::new(),
    };
    let request = v1::CreateSnapshotRequest {
        source_volume_id: source,
        name: arguments.name.clone(),
        secrets: plugin.secrets.clone(),
        parameters: pairs::collected("--parameter", &arguments.parameters)?,
        accessibility_requirements: None,
    };
    let made = loop {
        let send = |channel, request| async move {
            ControllerClient::new(channel).create_snapshot(request).await
        };
        let answer = plugin.ask(&doing, request.clone(), send).await?;
        let metadata = answer.metadata().clone();
        let made = answer.into_inner().snapshot.map(Snapshot::of);
        let made = made.ok_or_else(|| {
            Failure::failed(format!("cannot {doing}: the plugin's answer has no snapshot id"))
        })?;
        let consistency = inventory::consistency(&metadata, &made.id);
        if made.ready {
            break Snapshot { name: Some(arguments.name.clone()), consistency, ..made };
        }
        // Cut, and still being copied elsewhere: CSI asks for the same call again.
        tokio::time::sleep(READY_INTERVAL).await;
    };
    let guarantee = match made.consistency.as_deref() {
        Some("filesystem") => ", filesystem-consistent",
        Some("crash") => ", crash-consistent",
        Some(_) | None => "",
    };
    // CSI answers a repeated call with the first snapshot, which a job with a fixed name would not notice.
    let text = match before.iter().any(|it| it.id == made.id) {
        true => format!(
            "snapshot {} exists already, taken {}; nothing was done",
            made.label(),
            seconds(&made.created)
        ),
        false => format!("took snapshot {}, {}{guarantee}", made.label(), Bytes(made.size_bytes)),
    };
    session.show(&Answer::new(vec![made.id.clone()], &made, text)?)
}

pub(super) async fn delete(session: &Session, arguments: &DeleteArguments) -> Result<()> {
    let plugin = &session.plugin;
    plugin.require(Offer::CreateDeleteSnapshot, &"delete a snapshot")?;
    let mut to_delete: Vec<Snapshot> = Vec::new();
    for given in &arguments.snapshots {
        let id = resolve::whole_snapshot(plugin, given).await?;
        let snapshot =
            match plugin.offers(Offer::ListSnapshots) || plugin.offers(Offer::GetSnapshot) {
                true => inventory::snapshot(plugin, &id).await?,
                false => Snapshot::of(v1::Snapshot { snapshot_id: id, ..Default::default() }),
            };
        if to_delete.iter().all(|other| other.id != snapshot.id) {
            to_delete.push(snapshot);
        }
    }
    let what = |it: &Snapshot| {
        format!(
            "snapshot {} of volume {}, taken {}",
            it.label(),
            it.source_volume,
            seconds(&it.created)
        )
    };
    let listed = to_delete.iter().map(what).collect::<Vec<_>>().join("; ");
    if arguments.destroy.dry_run {
        return session.would(&format!("delete {listed}"));
    }
    confirm(&format!("this deletes: {listed}"), arguments.destroy.yes)?;
    for snapshot in &to_delete {
        let request = v1::DeleteSnapshotRequest {
            snapshot_id: snapshot.id.clone(),
            secrets: plugin.secrets.clone(),
        };
        let send = |channel, request| async move {
            ControllerClient::new(channel).delete_snapshot(request).await
        };
        plugin.ask(&format_args!("delete snapshot {}", snapshot.label()), request, send).await?;
        let text = format!("deleted snapshot {}", snapshot.label());
        session.show(&Answer::new(vec![snapshot.id.clone()], snapshot, text)?)?;
    }
    Ok(())
}

pub(super) async fn restore(session: &Session, arguments: &RestoreArguments) -> Result<()> {
    let source = source_of_snapshot(session, &arguments.snapshot).await?;
    let access = match arguments.block {
        true => Access::Block,
        false => Access::mount(arguments.fs.as_deref()),
    };
    let wanted = NewVolume::copy(arguments.name.clone(), arguments.size, access, source);
    if arguments.change.dry_run {
        return session.would(&format!("create {}", wanted.described()));
    }
    let (made, is_new) = create_or_find(session, &wanted).await?;
    let size = Bytes(made.size_bytes);
    // CSI answers a repeated call with the first volume, whatever was written to it since.
    let text = match is_new {
        true => format!("restored to volume {}, {size}", made.label()),
        false => format!(
            "volume {} exists already, {size}; nothing was done, and it holds what was written to it since",
            made.label()
        ),
    };
    session.show(&Answer::new(vec![made.id.clone()], &made, text)?)
}
