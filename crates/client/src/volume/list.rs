//! `orlop volume list`

use orlop_model::Bytes;

use crate::failure::Result;
use crate::health;
use crate::inventory::{self, Source, Volume};
use crate::output::{Answer, Table};
use crate::session::{Session, Watch};

#[derive(Debug, clap::Args)]
pub(super) struct ListArguments {
    #[command(flatten)]
    watch: Watch,
}

pub(super) async fn run(session: &Session, arguments: &ListArguments) -> Result<()> {
    session.watch(arguments.watch, async || list(session).await).await
}

async fn list(session: &Session) -> Result<Answer> {
    let mut volumes = inventory::named_volumes(&session.plugin).await?;
    if let Some(mut abnormal) = health::of_volumes(&session.plugin).await {
        for volume in &mut volumes {
            volume.problems = Some(abnormal.remove(&volume.id).unwrap_or_default());
        }
    }
    let mut table =
        Table::new(&["ID", "NAME", "SIZE", "USED", "PUBLISHED TO", "CONDITION", "COPY OF"]);
    for volume in &volumes {
        let cells = [
            volume.id.clone(),
            volume.name.clone().unwrap_or_default(),
            Bytes(volume.size_bytes).to_string(),
            volume.used_bytes.map(|used| Bytes(used).to_string()).unwrap_or_default(),
            volume.published_nodes.join(","),
            condition(volume),
            volume.source.as_ref().map(source).unwrap_or_default(),
        ];
        table.judged_row(cells, volume.is_abnormal());
    }
    let ids = volumes.iter().map(|volume| volume.id.clone()).collect();
    Answer::new(ids, &volumes, table.rendered(session.output.style, "there are no volumes"))
}

/// The reasons of all problems, and the text of the first.
fn condition(volume: &Volume) -> String {
    if let Some([first, ..]) = volume.problems.as_deref() {
        let problems = volume.problems.iter().flatten();
        let reasons: Vec<&str> = problems.map(|problem| problem.reason.as_str()).collect();
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
