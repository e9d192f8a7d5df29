//! `orlop snapshot diff` and `allocated`: blocks that changed, or that were ever written.

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::snapshot_metadata_client::SnapshotMetadataClient;
use orlop_model::Bytes;
use serde::Serialize;
use tonic::{Code, Status};

use super::files;
use crate::failure::{Failure, Result};
use crate::output::{Answer, Table};
use crate::ranges::{self, Range};
use crate::resolve;
use crate::session::Session;

const BAR_WIDTH: u64 = 64;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "With --files, both snapshots are mounted for as long as it takes, read-only: the plugin makes a volume out of each, \
    which is deleted at the end, also after Ctrl-C. In names, bytes that are no printable text are written as \\xNN, and a \
    backslash as two."
)]
pub(super) struct DiffArguments {
    /// The older snapshot: its id or name, or the beginning of one
    base: String,
    /// The newer snapshot of the same volume
    target: String,
    #[command(flatten)]
    form: Form,

    /// Which files were added, removed, changed or renamed, instead of which blocks
    #[arg(long, conflicts_with = "bar")]
    files: bool,

    /// The filesystem of the snapshots, if it is not the plugin's default
    #[arg(long, value_name = "TYPE", requires = "files")]
    fs: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(super) struct AllocatedArguments {
    /// Its id or name, or the beginning of one
    snapshot: String,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, clap::Args)]
struct Form {
    /// Draw the volume as a bar instead of listing the ranges
    #[arg(long)]
    bar: bool,

    /// How many characters the bar has
    #[arg(long, value_name = "COUNT", default_value_t = BAR_WIDTH, requires = "bar",
        value_parser = clap::value_parser!(u64).range(1..=10_000))]
    width: u64,
}

#[derive(Serialize)]
struct Changes {
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<String>,
    snapshot: String,
    volume_bytes: u64,
    total_bytes: u64,
    ranges: Vec<Range>,
}

/// One message of either stream.
struct Part {
    capacity: i64,
    blocks: Vec<v1::BlockMetadata>,
}

pub(super) async fn diff(session: &Session, arguments: &DiffArguments) -> Result<()> {
    let plugin = &session.plugin;
    let base = resolve::snapshot(plugin, &arguments.base).await?;
    let target = resolve::snapshot(plugin, &arguments.target).await?;
    if arguments.files {
        return files::diff(session, &base, &target, arguments.fs.as_deref()).await;
    }
    let doing = format!("compare snapshots {base} and {target}");
    let request = v1::GetMetadataDeltaRequest {
        base_snapshot_id: base.clone(),
        target_snapshot_id: target.clone(),
        starting_offset: 0,
        max_results: 0,
        secrets: plugin.secrets.clone(),
    };
    let send = |channel, request| async move {
        SnapshotMetadataClient::new(channel).get_metadata_delta(request).await
    };
    let explain = |failure: Failure| explain_order(explain_unimplemented(failure), arguments);
    let mut stream = plugin.ask(&doing, request, send).await.map_err(explain)?.into_inner();
    let next = async || {
        let part = stream.message().await?;
        Ok(part.map(|it| Part { capacity: it.volume_capacity_bytes, blocks: it.block_metadata }))
    };
    let found = read_ranges(session, &doing, next).await;
    let (volume_bytes, found) = found.map_err(|failure| explain_order(failure, arguments))?;
    let changes = changes(Some(base), target, volume_bytes, found);
    show(session, &arguments.form, &changes, "changed")
}

pub(super) async fn allocated(session: &Session, arguments: &AllocatedArguments) -> Result<()> {
    let plugin = &session.plugin;
    let snapshot = resolve::snapshot(plugin, &arguments.snapshot).await?;
    let doing = format!("list the blocks of snapshot {snapshot}");
    let request = v1::GetMetadataAllocatedRequest {
        snapshot_id: snapshot.clone(),
        starting_offset: 0,
        max_results: 0,
        secrets: plugin.secrets.clone(),
    };
    let send = |channel, request| async move {
        SnapshotMetadataClient::new(channel).get_metadata_allocated(request).await
    };
    let mut stream =
        plugin.ask(&doing, request, send).await.map_err(explain_unimplemented)?.into_inner();
    let next = async || {
        let part = stream.message().await?;
        Ok(part.map(|it| Part { capacity: it.volume_capacity_bytes, blocks: it.block_metadata }))
    };
    let (volume_bytes, found) = read_ranges(session, &doing, next).await?;
    let changes = changes(None, snapshot, volume_bytes, found);
    show(session, &arguments.form, &changes, "written")
}

/// The plugin names a field of its protocol.
fn explain_order(failure: Failure, arguments: &DiffArguments) -> Failure {
    match failure.to_string().contains("base_snapshot_id: is later") {
        true => failure.with_hint(&format!(
            "swap the two snapshots: `orlop snapshot diff {} {}`",
            arguments.target, arguments.base
        )),
        false => failure,
    }
}

fn explain_unimplemented(failure: Failure) -> Failure {
    match failure.is_unimplemented() {
        true => failure.with_hint("the plugin has no SnapshotMetadata service"),
        false => failure,
    }
}

async fn read_ranges(
    session: &Session,
    doing: &str,
    mut next: impl AsyncFnMut() -> std::result::Result<Option<Part>, Status>,
) -> Result<(u64, Vec<Range>)> {
    let (mut capacity, mut found) = (0, Vec::new());
    loop {
        let part = match next().await {
            Ok(part) => part,
            // A plugin may report a missing call only when the stream is read.
            Err(status) if status.code() == Code::Unimplemented => {
                return Err(explain_unimplemented(session.plugin.failure(&doing, &status)));
            }
            Err(status) => return Err(session.plugin.failure(&doing, &status)),
        };
        let Some(part) = part else { return Ok((capacity, found)) };
        capacity = capacity.max(non_negative(part.capacity));
        for block in part.blocks {
            let range = Range {
                offset: non_negative(block.byte_offset),
                size_bytes: non_negative(block.size_bytes),
            };
            ranges::push(&mut found, range);
        }
    }
}

fn non_negative(count: i64) -> u64 {
    crate::inventory::bytes(count)
}

fn changes(
    base: Option<String>,
    snapshot: String,
    volume_bytes: u64,
    ranges: Vec<Range>,
) -> Changes {
    Changes { base, snapshot, volume_bytes, total_bytes: ranges::total(&ranges), ranges }
}

fn show(session: &Session, form: &Form, changes: &Changes, what: &str) -> Result<()> {
    let of = match changes.volume_bytes {
        0 => String::new(),
        all => format!(" of {}", Bytes(all)),
    };
    let count = changes.ranges.len();
    let total = format!("{what}: {}{of}, in {count} ranges", Bytes(changes.total_bytes));
    let text = if form.bar {
        // A plugin may omit the size if it lists nothing.
        let end = changes.ranges.last().map_or(0, |range| range.end());
        let bar = ranges::bar(&changes.ranges, changes.volume_bytes.max(end), form.width);
        format!("[{bar}]\n{total}")
    } else {
        let mut table = Table::new(&["FROM", "TO", "BYTES", "SIZE"]);
        for range in &changes.ranges {
            table.row([
                range.offset.to_string(),
                range.end().to_string(),
                range.size_bytes.to_string(),
                Bytes(range.size_bytes).to_string(),
            ]);
        }
        match changes.ranges.is_empty() {
            true => total,
            false => format!("{}\n{total}", table.rendered(session.output.style, "")),
        }
    };
    session.show(&Answer::new(vec![changes.snapshot.clone()], changes, text)?)
}
