//! `orlop group`: snapshots of several volumes at one instant.

use std::collections::BTreeMap;

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::group_controller_client::GroupControllerClient;
use orlop_model::Bytes;
use serde::Serialize;

use crate::failure::{EXIT_CODES, Failure, Result};
use crate::inventory::{self, Snapshot};
use crate::output::{Answer, Table};
use crate::plugin::Offer;
use crate::resolve::Match;
use crate::session::{Change, Common, Destroy, FindSettings, Session, Watch};
use crate::terminal::confirm;
use crate::{monitor, pairs, resolve};

/// Group snapshots of any CSI plugin
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct GroupArguments {
    #[command(flatten)]
    common: Common,

    #[command(subcommand)]
    command: GroupCommand,
}

#[derive(Debug, clap::Subcommand)]
enum GroupCommand {
    /// List the group snapshots that have members
    List {
        #[command(flatten)]
        watch: Watch,
    },

    /// Show one group snapshot and its members
    Show {
        /// Its id or name, or the beginning of one
        group: String,
        #[command(flatten)]
        watch: Watch,
    },

    /// Take snapshots of several volumes at one instant
    Create {
        /// A name that no other group snapshot has
        name: String,
        /// The volumes: ids or names, or the beginnings of some
        #[arg(required = true, value_name = "VOLUME")]
        volumes: Vec<String>,
        /// A parameter for the plugin, as of a VolumeGroupSnapshotClass
        #[arg(long = "parameter", short, value_name = "KEY=VALUE", value_parser = pairs::parse)]
        parameters: Vec<(String, String)>,
        #[command(flatten)]
        change: Change,
    },

    /// Delete a group snapshot with all its members
    Delete {
        /// Its id or name, not just the beginning of one
        group: String,
        #[command(flatten)]
        destroy: Destroy,
    },
}

#[derive(Serialize)]
struct Group {
    id: String,
    created: String,
    ready: bool,
    snapshots: Vec<Snapshot>,
}

pub(crate) async fn run(arguments: GroupArguments, find: FindSettings<'_>) -> Result<()> {
    let session = Session::open(&arguments.common, find).await?;
    match arguments.command {
        GroupCommand::List { watch } => session.watch(watch, async || list(&session).await).await,
        GroupCommand::Show { group, watch } => {
            let id = find_group(&session, &group, Match::Beginning).await?;
            session.watch(watch, async || show(&session, &id).await).await
        }
        GroupCommand::Create { name, volumes, parameters, change } => {
            create(&session, name, &volumes, &parameters, change).await
        }
        GroupCommand::Delete { group, destroy } => delete(&session, &group, destroy).await,
    }
}

/// CSI has no list of them: they are known by their members.
async fn groups(session: &Session) -> Result<BTreeMap<String, Vec<Snapshot>>> {
    let mut found: BTreeMap<String, Vec<Snapshot>> = BTreeMap::new();
    for snapshot in inventory::snapshots(&session.plugin, None).await? {
        if let Some(group) = snapshot.group.clone() {
            found.entry(group).or_default().push(snapshot);
        }
    }
    Ok(found)
}

async fn find_group(session: &Session, given: &str, wanted: Match) -> Result<String> {
    resolve::group(groups(session).await?.into_keys().collect(), given, wanted)
}

async fn list(session: &Session) -> Result<Answer> {
    let groups: Vec<Group> = groups(session).await?.into_iter().map(of_members).collect();
    let mut table = Table::new(&["ID", "SNAPSHOTS", "SIZE", "TAKEN", "READY"]);
    for group in &groups {
        let size = group.snapshots.iter().map(|it| it.size_bytes).sum();
        table.row([
            group.id.clone(),
            group.snapshots.len().to_string(),
            Bytes(size).to_string(),
            group.created.clone(),
            if group.ready { "yes" } else { "no" }.to_owned(),
        ]);
    }
    let ids = groups.iter().map(|group| group.id.clone()).collect();
    Answer::new(ids, &groups, table.rendered(session.output.style, "there are no group snapshots"))
}

fn of_members((id, snapshots): (String, Vec<Snapshot>)) -> Group {
    Group {
        id,
        created: snapshots.iter().map(|it| it.created.clone()).min().unwrap_or_default(),
        ready: snapshots.iter().all(|it| it.ready),
        snapshots,
    }
}

async fn show(session: &Session, id: &str) -> Result<Answer> {
    let members = groups(session).await?.remove(id).unwrap_or_default();
    let request = v1::GetVolumeGroupSnapshotRequest {
        group_snapshot_id: id.to_owned(),
        snapshot_ids: members.into_iter().map(|it| it.id).collect(),
        secrets: session.plugin.secrets.clone(),
    };
    let send = |channel, request| async move {
        GroupControllerClient::new(channel).get_volume_group_snapshot(request).await
    };
    let doing = format!("show group snapshot {id}");
    let answer = session.plugin.ask(&doing, request, send).await?;
    let mut group = of_wire(answer.into_inner().group_snapshot, &doing)?;
    let mut known = monitor::snapshots(&session.plugin).await;
    for snapshot in &mut group.snapshots {
        let found = known.remove(&snapshot.id);
        snapshot.consistency = found.map(|found| found.consistency);
    }
    described(session, group, "group snapshot")
}

fn of_wire(group: Option<v1::VolumeGroupSnapshot>, doing: &str) -> Result<Group> {
    let group = group.ok_or_else(|| {
        Failure::failed(format!("cannot {doing}: the plugin's answer does not contain it"))
    })?;
    Ok(Group {
        id: group.group_snapshot_id,
        created: group.creation_time.map(|it| it.to_string()).unwrap_or_default(),
        ready: group.ready_to_use,
        snapshots: group.snapshots.into_iter().map(Snapshot::of).collect(),
    })
}

fn described(session: &Session, group: Group, verb: &str) -> Result<Answer> {
    let mut table = Table::new(&["SNAPSHOT", "SIZE", "READY", "OF VOLUME", "CONSISTENCY"]);
    for snapshot in &group.snapshots {
        table.row([
            snapshot.id.clone(),
            Bytes(snapshot.size_bytes).to_string(),
            if snapshot.ready { "yes" } else { "no" }.to_owned(),
            snapshot.source_volume.clone(),
            snapshot.consistency.clone().unwrap_or_default(),
        ]);
    }
    let members = table.rendered(session.output.style, "it has no members");
    let text = format!("{verb} {}, {}\n{members}", group.id, group.created);
    Answer::new(vec![group.id.clone()], &group, text)
}

async fn create(
    session: &Session,
    name: String,
    volumes: &[String],
    parameters: &[(String, String)],
    change: Change,
) -> Result<()> {
    let mut ids = Vec::new();
    for given in volumes {
        ids.push(resolve::volume(&session.plugin, given).await?);
    }
    let doing = format!("take group snapshot {name} of {}", ids.join(", "));
    if change.dry_run {
        return session.would(&doing);
    }
    let before = match session.plugin.offers(Offer::ListSnapshots) {
        true => groups(session).await?,
        false => BTreeMap::new(),
    };
    let request = v1::CreateVolumeGroupSnapshotRequest {
        name,
        source_volume_ids: ids,
        secrets: session.plugin.secrets.clone(),
        parameters: pairs::collected("--parameter", parameters)?,
    };
    let send = |channel, request| async move {
        GroupControllerClient::new(channel).create_volume_group_snapshot(request).await
    };
    let answer = session.plugin.ask(&doing, request, send).await?;
    let metadata = answer.metadata().clone();
    let mut group = of_wire(answer.into_inner().group_snapshot, &doing)?;
    for snapshot in &mut group.snapshots {
        snapshot.consistency = inventory::consistency(&metadata, &snapshot.id);
    }
    // CSI answers a repeated call with the first group snapshot, which a job with a fixed name would not notice.
    let verb = match before.contains_key(&group.id) {
        true => "nothing was done; this group snapshot exists already:",
        false => "took group snapshot",
    };
    session.show(&described(session, group, verb)?)
}

async fn delete(session: &Session, given: &str, destroy: Destroy) -> Result<()> {
    let id = find_group(session, given, Match::Whole).await?;
    let members = groups(session).await?.remove(&id).unwrap_or_default();
    let listed: Vec<&str> = members.iter().map(|it| it.id.as_str()).collect();
    let what =
        format!("group snapshot {id} with its {} snapshots: {}", listed.len(), listed.join(", "));
    if destroy.dry_run {
        return session.would(&format!("delete {what}"));
    }
    confirm(&format!("this deletes {what}"), destroy.yes)?;
    let request = v1::DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: id.clone(),
        snapshot_ids: members.iter().map(|it| it.id.clone()).collect(),
        secrets: session.plugin.secrets.clone(),
    };
    let send = |channel, request| async move {
        GroupControllerClient::new(channel).delete_volume_group_snapshot(request).await
    };
    session.plugin.ask(&format_args!("delete group snapshot {id}"), request, send).await?;
    let text = format!("deleted group snapshot {id}");
    session.show(&Answer::new(vec![id.clone()], &of_members((id, members)), text)?)
}
