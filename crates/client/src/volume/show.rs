//! `orlop volume show`

use orlop_model::Bytes;
use serde::Serialize;

use super::list::{condition, source};
use crate::copies::{self, Copy, Family};
use crate::failure::Result;
use crate::hand_mounts::{self, HandMount};
use crate::inventory::{self, Volume};
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
    copies: Vec<Copy>,
}

pub(super) async fn run(session: &Session, arguments: &ShowArguments) -> Result<()> {
    let id = resolve::volume(&session.plugin, &arguments.volume).await?;
    session.watch(arguments.watch, async || show(session, &id).await).await
}

async fn show(session: &Session, id: &str) -> Result<Answer> {
    let used_bytes = inventory::volume_usage(&session.plugin).await.remove(id);
    let volume = Volume { used_bytes, ..inventory::volume(&session.plugin, id).await? };
    let mounts = hand_mounts::of_volume(&session.directory, &session.plugin.driver, id)?;
    let details = VolumeDetails {
        published: session.plugin.offers(Offer::ListVolumesPublishedNodes),
        mounted_at: mounts
            .iter()
            .map(|mount: &HandMount| mount.target.display().to_string())
            .collect(),
        copies: copies_of(session, id).await?,
        volume,
    };
    let text = described(&details, session.output.style);
    Answer::new(vec![id.to_owned()], &details, text)
}

/// As far as the plugin lists what it has.
async fn copies_of(session: &Session, id: &str) -> Result<Vec<Copy>> {
    let plugin = &session.plugin;
    let volumes = match plugin.offers(Offer::ListVolumes) {
        true => inventory::named_volumes_with_usage(plugin).await?,
        false => Vec::new(),
    };
    let snapshots = match plugin.offers(Offer::ListSnapshots) {
        true => inventory::named_snapshots(plugin, None).await?,
        false => Vec::new(),
    };
    Ok(Family { volumes: &volumes, snapshots: &snapshots }.of_volume(id))
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
    let used = |bytes: u64| format!("{} ({bytes} bytes)", Bytes(bytes));
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
    if let Some(health) = &volume.condition {
        let text = match health.abnormal {
            true => style.bad(&printable(&condition(volume))),
            false if health.message.is_empty() => "normal".to_owned(),
            false => printable(&format!("normal: {}", health.message)),
        };
        lines.push(format!("condition  {text}"));
    }
    match details.copies.as_slice() {
        [] => lines.push("copies     none".to_owned()),
        copies => lines.push(format!("copies\n{}", copies::drawn(copies, ""))),
    }
    lines.join("\n")
}
