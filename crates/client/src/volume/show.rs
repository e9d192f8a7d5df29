//! `orlop volume show`

use std::collections::BTreeMap;

use orlop_model::Bytes;
use serde::Serialize;

use super::list::source;
use crate::copies::{self, Copy, Family};
use crate::failure::Result;
use crate::hand_mounts::{self, HandMount};
use crate::health::{self, Problem};
use crate::inventory::{self, Volume};
use crate::monitor::{self, Footprint};
use crate::output::Answer;
use crate::plugin::Offer;
use crate::session::{Session, Watch};
use crate::terminal::{Style, printable};
use crate::{pairs, resolve};

#[derive(Debug, clap::Args)]
pub(super) struct ShowArguments {
    /// Its id or name, or the beginning of one
    volume: String,
    #[command(flatten)]
    watch: Watch,
}

#[derive(Serialize)]
struct VolumeDetails {
    #[serde(flatten)]
    volume: Volume,
    /// Whether the plugin says to which nodes.
    #[serde(skip)]
    published: bool,
    /// By `orlop volume mount`, on this machine.
    mounted_at: Vec<String>,
    /// What the node behind the socket says beyond that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems_on_node: Vec<Problem>,
    copies: Vec<Copy>,
}

pub(super) async fn run(session: &Session, arguments: &ShowArguments) -> Result<()> {
    let id = resolve::volume(&session.plugin, &arguments.volume).await?;
    session.watch(arguments.watch, async || show(session, &id).await).await
}

async fn show(session: &Session, id: &str) -> Result<Answer> {
    let plugin = &session.plugin;
    let volume = inventory::volume(plugin, id).await?;
    let footprints = monitor::footprints(plugin, id).await;
    let used_bytes = match footprints.get(id) {
        Some(footprint) => Some(footprint.used_bytes),
        None => monitor::volumes(plugin).await.remove(id).map(|known| known.used_bytes),
    };
    let exclusive_bytes = footprints.get(id).map(|footprint| footprint.exclusive_bytes);
    let problems = health::of_volume(plugin, id).await;
    let volume = Volume { used_bytes, exclusive_bytes, problems, ..volume };
    let problems_on_node = health::beyond(&volume, health::on_node(plugin, id).await);
    let mounts = hand_mounts::of_volume(&session.directory, &plugin.driver, id)?;
    let details = VolumeDetails {
        problems_on_node,
        published: session.plugin.offers(Offer::ListVolumesPublishedNodes),
        mounted_at: mounts
            .iter()
            .map(|mount: &HandMount| mount.target.display().to_string())
            .collect(),
        copies: copies_of(session, id, &footprints).await?,
        volume,
    };
    let text = described(&details, session.output.style);
    Answer::new(vec![id.to_owned()], &details, text)
}

/// As far as the plugin lists what it has.
async fn copies_of(
    session: &Session,
    id: &str,
    footprints: &BTreeMap<String, Footprint>,
) -> Result<Vec<Copy>> {
    let plugin = &session.plugin;
    let volumes = match plugin.offers(Offer::ListVolumes) {
        true => inventory::named_volumes(plugin).await?,
        false => Vec::new(),
    };
    let snapshots = match plugin.offers(Offer::ListSnapshots) {
        true => inventory::named_snapshots(plugin, None).await?,
        false => Vec::new(),
    };
    Ok(Family { volumes: &volumes, snapshots: &snapshots, footprints }.of_volume(id))
}

fn described(details: &VolumeDetails, style: Style) -> String {
    let volume = &details.volume;
    let mut lines = vec![format!("volume     {}", style.heading(&volume.id))];
    let mut add = |what: &str, value: String| {
        if !value.is_empty() {
            lines.push(format!("{what:<9}  {}", printable(&value)));
        }
    };
    add("name", volume.name.clone().unwrap_or_default());
    add("size", format!("{} ({} bytes)", Bytes(volume.size_bytes), volume.size_bytes));
    let used = |bytes: u64| {
        let parts = volume.exclusive_bytes.map(|exclusive| {
            Footprint::parts_shared_with(
                bytes,
                exclusive,
                shared_with(details, bytes - exclusive.min(bytes)),
            )
        });
        let parts = parts.map(|parts| format!(": {parts}")).unwrap_or_default();
        format!("{} ({bytes} bytes){parts}", Bytes(bytes))
    };
    add("used", volume.used_bytes.map(used).unwrap_or_default());
    let nodes = details.published.then(|| match volume.published_nodes.join(", ") {
        nodes if nodes.is_empty() => "to no node".to_owned(),
        nodes => format!("to {nodes}"),
    });
    add("published", nodes.unwrap_or_default());
    add("mounted", details.mounted_at.join(", "));
    add("copy of", volume.source.as_ref().map(source).unwrap_or_default());
    let limits = volume.limits.as_ref().map(|limits| match limits.is_empty() {
        true => "none".to_owned(),
        false => pairs::joined(limits),
    });
    add("limits", limits.unwrap_or_default());
    add("topology", volume.topology.iter().map(pairs::joined).collect::<Vec<_>>().join("; or "));
    add("context", pairs::joined(&volume.context));
    lines.extend(condition(details, style));
    match details.copies.as_slice() {
        [] => lines.push("copies     none".to_owned()),
        copies => lines.push(format!("copies\n{}", copies::drawn(copies, ""))),
    }
    lines.join("\n")
}

/// A volume without any copy shares what mkfs wrote with others of its size, which nothing else here shows.
fn shared_with(details: &VolumeDetails, shared: u64) -> &'static str {
    let is_alone = details.copies.is_empty() && details.volume.source.is_none();
    if is_alone && shared > 0 { " with the template of new volumes" } else { "" }
}

/// A line for each problem. The older condition has only the first, and says why a volume is normal.
fn condition(details: &VolumeDetails, style: Style) -> Vec<String> {
    let volume = &details.volume;
    let mut texts: Vec<String> = volume.problems.iter().flatten().map(Problem::text).collect();
    let on_node = details.problems_on_node.iter();
    texts.extend(on_node.map(|problem| format!("on the node, {}", problem.text())));
    if texts.is_empty() {
        match &volume.condition {
            Some(condition) if condition.abnormal => texts.push(condition.message.clone()),
            Some(condition) if !condition.message.is_empty() => {
                return vec![printable(&format!("condition  normal: {}", condition.message))];
            }
            None if volume.problems.is_none() => return Vec::new(),
            Some(_) | None => return vec!["condition  normal".to_owned()],
        }
    }
    let line = |(index, text): (usize, &String)| {
        let head = if index == 0 { "condition" } else { "" };
        format!("{head:<9}  {}", style.bad(&printable(&format!("abnormal: {text}"))))
    };
    texts.iter().enumerate().map(line).collect()
}
