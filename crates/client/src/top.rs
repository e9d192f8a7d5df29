//! `orlop top`: the I/O of the volumes on a node.

mod activity;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use orlop_csi::proto::monitor;
use orlop_csi::proto::monitor::monitor_client::MonitorClient;
use orlop_model::Bytes;
use serde::Serialize;

use crate::failure::{EXIT_CODES, Result};
use crate::output::{Answer, Table};
use crate::screen::Screen;
use crate::session::{Common, FindSettings, Session};
use crate::signals::Signals;
use crate::terminal::printable;
use activity::{Activity, SortKey};

#[derive(Debug, clap::Args)]
#[command(after_help = format!(
    "Needs the socket of an Orlop daemon, and shows the volumes that are staged on its node. The figures are those of the \
     kernel for the volume's device: reads and writes that the page cache answers are not among them.\n\n{EXIT_CODES} \
     Ctrl-C ends it with 0."
))]
pub struct TopArguments {
    #[command(flatten)]
    common: Common,

    /// What comes first
    #[arg(long, value_enum, default_value_t, value_name = "KEY")]
    sort: SortKey,

    /// Show one interval, and end
    #[arg(long, conflicts_with = "count")]
    once: bool,

    /// Show so many intervals, and end
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// How long one interval is, such as 1 or 0.5
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
}

fn interval(text: &str) -> std::result::Result<Duration, String> {
    let allowed = Duration::from_millis(100)..=Duration::from_secs(3600);
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .filter(|interval| allowed.contains(interval))
        .ok_or_else(|| "it is not a number of seconds between 0.1 and 3600".to_owned())
}

/// The counters at one instant.
struct Sample {
    taken: Instant,
    node: String,
    volumes: BTreeMap<String, monitor::VolumeIo>,
    left_out: u64,
    silent_pools: Vec<String>,
}

#[derive(Serialize)]
struct View {
    node: String,
    interval_milliseconds: u64,
    volumes: Vec<Activity>,
    /// How many further volumes are staged here.
    left_out: u64,
    silent_pools: Vec<String>,
}

pub(crate) async fn run(arguments: &TopArguments, find: FindSettings<'_>) -> Result<()> {
    let session = Session::open(&arguments.common, find).await?;
    let mut signals = Signals::listen()?;
    tokio::select! {
        shown = show_all(&session, arguments) => shown,
        () = signals.received() => Ok(()),
    }
}

async fn show_all(session: &Session, arguments: &TopArguments) -> Result<()> {
    let mut before = sample(session).await?;
    let mut left = if arguments.once { Some(1) } else { arguments.count };
    let screen = Screen::open(&session.output, left.is_none());
    let mut is_unreachable = false;
    while left != Some(0) {
        tokio::time::sleep(arguments.interval).await;
        let now = match sample(session).await {
            Ok(now) => now,
            // A daemon that restarts is waited for. Scripts, which give a number of intervals, get an error.
            Err(_) if left.is_none() => {
                if !is_unreachable {
                    let socket = session.plugin.socket.display();
                    screen.say(&format!("the daemon at {socket} does not answer; waiting for it"));
                    is_unreachable = true;
                }
                continue;
            }
            Err(failure) => return Err(failure),
        };
        is_unreachable = false;
        let view = view(&before, &now, arguments.sort);
        let text = described(&view, session);
        screen.show(&Answer::new(ids(&view), &view, text)?)?;
        before = now;
        left = left.map(|left| left - 1);
    }
    Ok(())
}

async fn sample(session: &Session) -> Result<Sample> {
    let send =
        |channel, request| async move { MonitorClient::new(channel).list_volume_io(request).await };
    let doing = "read the I/O of volumes";
    let asked = session.plugin.ask(&doing, monitor::ListVolumeIoRequest {}, send).await;
    let answer =
        asked.map_err(|failure| session.plugin.explain_missing_monitor(failure))?.into_inner();
    let by_id = |volume: monitor::VolumeIo| (volume.volume_id.clone(), volume);
    Ok(Sample {
        taken: Instant::now(),
        node: answer.node_id,
        volumes: answer.volumes.into_iter().map(by_id).collect(),
        left_out: answer.left_out,
        silent_pools: answer.silent_pools,
    })
}

/// A volume that was staged during the interval is shown from the next one on.
fn view(before: &Sample, now: &Sample, sort: SortKey) -> View {
    let elapsed = now.taken - before.taken;
    let both = now.volumes.iter().filter_map(|(id, now)| Some((before.volumes.get(id)?, now)));
    let mut volumes: Vec<Activity> =
        both.map(|(before, now)| Activity::between(before, now, elapsed)).collect();
    activity::sort(&mut volumes, sort);
    View {
        node: now.node.clone(),
        interval_milliseconds: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        volumes,
        left_out: now.left_out,
        silent_pools: now.silent_pools.clone(),
    }
}

fn ids(view: &View) -> Vec<String> {
    view.volumes.iter().map(|volume| volume.id.clone()).collect()
}

fn described(view: &View, session: &Session) -> String {
    let iops: u64 = view.volumes.iter().map(Activity::iops).sum();
    let rate: u64 = view.volumes.iter().map(Activity::bytes_per_second).sum();
    let staged = match view.volumes.len() {
        1 => "1 volume".to_owned(),
        count => format!("{count} volumes"),
    };
    let node = printable(&view.node);
    let mut text = format!("node {node}: {staged} staged, {iops} IOPS, {}/s\n", Bytes(rate));
    let mut table = Table::new(&[
        "VOLUME",
        "POOL",
        "READS/S",
        "WRITES/S",
        "READ",
        "WRITTEN",
        "READ LAT",
        "WRITE LAT",
        "QUEUE",
        "BUSY",
        "LIMITS",
    ]);
    for volume in &view.volumes {
        table.row(volume.cells());
    }
    text.push_str(&table.rendered(session.output.style, "no volume is staged on this node"));
    if view.left_out > 0 {
        text.push_str(&format!("\nand {} more volumes, which are not shown", view.left_out));
    }
    if !view.silent_pools.is_empty() {
        let pools = printable(&view.silent_pools.join(", "));
        text.push_str(&format!("\nnot shown are volumes of pools that do not answer: {pools}"));
    }
    text
}
