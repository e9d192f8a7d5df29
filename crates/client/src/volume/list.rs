//! `orlop volume list`

use orlop_model::Bytes;
use serde::Serialize;

use crate::failure::Result;
use crate::health::{self, Problem};
use crate::inventory::{self, Source, Volume};
use crate::output::{Answer, Table};
use crate::session::{Session, Watch};

#[derive(Debug, clap::Args)]
pub(super) struct ListArguments {
    #[command(flatten)]
    watch: Watch,
}

#[derive(Serialize)]
struct ListedVolume {
    #[serde(flatten)]
    volume: Volume,
    /// What the node behind the socket says beyond that, if the volume is staged there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems_on_node: Vec<Problem>,
}

impl ListedVolume {
    fn of(volume: Volume, problems_on_node: Vec<Problem>) -> Self {
        Self { problems_on_node: health::beyond(&volume, problems_on_node), volume }
    }
}

pub(super) async fn run(session: &Session, arguments: &ListArguments) -> Result<()> {
    session.watch(arguments.watch, async || list(session).await).await
}

async fn list(session: &Session) -> Result<Answer> {
    let volumes = inventory::named_volumes(&session.plugin).await?;
    let mut abnormal = health::of_volumes(&session.plugin).await;
    let mut on_node = health::of_staged(&session.plugin).await;
    let entry = |volume: Volume| {
        let problems = abnormal.as_mut().map(|all| all.remove(&volume.id).unwrap_or_default());
        let problems_on_node = on_node.remove(&volume.id).unwrap_or_default();
        ListedVolume::of(Volume { problems, ..volume }, problems_on_node)
    };
    let volumes: Vec<ListedVolume> = volumes.into_iter().map(entry).collect();
    let mut table =
        Table::new(&["ID", "NAME", "SIZE", "USED", "PUBLISHED TO", "CONDITION", "COPY OF"]);
    for listed in &volumes {
        let volume = &listed.volume;
        let cells = [
            volume.id.clone(),
            volume.name.clone().unwrap_or_default(),
            Bytes(volume.size_bytes).to_string(),
            volume.used_bytes.map(|used| Bytes(used).to_string()).unwrap_or_default(),
            volume.published_nodes.join(","),
            condition(listed),
            volume.source.as_ref().map(source).unwrap_or_default(),
        ];
        table.judged_row(cells, volume.is_abnormal() || !listed.problems_on_node.is_empty());
    }
    let ids = volumes.iter().map(|listed| listed.volume.id.clone()).collect();
    Answer::new(ids, &volumes, table.rendered(session.output.style, "there are no volumes"))
}

/// The reasons of all problems, and the text of the first.
fn condition(listed: &ListedVolume) -> String {
    let ListedVolume { volume, problems_on_node } = listed;
    let problems: Vec<&Problem> =
        volume.problems.iter().flatten().chain(problems_on_node).collect();
    if let [first, ..] = problems.as_slice() {
        let reasons: Vec<&str> = problems.iter().map(|problem| problem.reason.as_str()).collect();
        return format!("abnormal: {}: {}", reasons.join(", "), first.message);
    }
    match &volume.condition {
        Some(condition) if condition.abnormal => format!("abnormal: {}", condition.message),
        Some(_) => "normal".to_owned(),
        None if volume.problems.is_some() => "normal".to_owned(),
        None => String::new(),
    }
}

pub(super) fn source(source: &Source) -> String {
    match source {
        Source::Snapshot(id) => format!("snapshot {id}"),
        Source::Volume(id) => format!("volume {id}"),
    }
}
