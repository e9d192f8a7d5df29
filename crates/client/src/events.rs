//! `orlop events`: the events that the daemon has in memory.

mod filter;
mod line;

use std::collections::BTreeMap;
use std::time::Duration;

use orlop_csi::proto::monitor;
use orlop_csi::proto::monitor::monitor_client::MonitorClient;
use serde::Serialize;

use crate::failure::{EXIT_CODES, Failure, Result};
use crate::output::{Answer, Format};
use crate::session::{Common, FindSettings, Session};
use crate::signals::Signals;
use crate::terminal::note;
use filter::{Filter, Level, Since};

/// How often `--follow` asks for new events.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
#[command(after_help = format!(
    "Needs the socket of an Orlop daemon. The daemon has the last few thousand events in memory, and none from before its \
     start: those are in its log.\n\n{EXIT_CODES} Ctrl-C ends --follow with 0."
))]
pub struct EventsArguments {
    #[command(flatten)]
    common: Common,

    /// Go on with what happens from now on, until Ctrl-C
    #[arg(long, short)]
    follow: bool,

    /// Only what happened since then: 90s, 10m, 2h, 1d ago, or a time in UTC such as 2026-11-18T11:43:01Z
    #[arg(long, value_name = "TIME", value_parser = filter::since)]
    since: Option<Since>,

    /// Only what is about this volume: its id or name, also of one that is deleted
    #[arg(long, value_name = "VOLUME")]
    volume: Option<String>,

    /// Only events of this kind: call, pool, volume, node, peer or daemon; may be given more than once
    #[arg(long, value_name = "KIND", value_parser = ["call", "pool", "volume", "node", "peer", "daemon"])]
    kind: Vec<String>,

    /// Only events that are at least as bad
    #[arg(long, value_enum, default_value_t, value_name = "LEVEL")]
    level: Level,
}

#[derive(Debug, Serialize)]
struct Event {
    /// Counts from 1 at each start of the daemon.
    sequence: u64,
    /// RFC 3339.
    time: String,
    level: String,
    kind: String,
    message: String,
    fields: BTreeMap<String, String>,
}

/// The last event that was read, and the daemon instance that it is from.
#[derive(Default)]
struct Position {
    instance: String,
    sequence: u64,
}

pub(crate) async fn run(arguments: &EventsArguments, find: FindSettings<'_>) -> Result<()> {
    let session = Session::open(&arguments.common, find).await?;
    let filter = Filter::of(&session, arguments).await?;
    let mut position = Position::default();
    if !arguments.follow {
        let events = new_events(&session, &filter, &mut position).await?;
        return show_all(&session, &events);
    }
    let mut signals = Signals::listen()?;
    tokio::select! {
        followed = follow(&session, &filter, &mut position) => followed,
        () = signals.received() => Ok(()),
    }
}

/// Runs until it is dropped. It waits for a daemon that does not answer.
async fn follow(session: &Session, filter: &Filter, position: &mut Position) -> Result<()> {
    let mut is_unreachable = false;
    loop {
        match new_events(session, filter, position).await {
            Ok(events) => {
                if is_unreachable {
                    note(&"the daemon answers again");
                    is_unreachable = false;
                }
                for event in &events {
                    show_one(session, event)?;
                }
            }
            Err(failure @ (Failure::Refused(_) | Failure::Usage(_) | Failure::OutputClosed)) => {
                return Err(failure);
            }
            // The daemon has never answered, so it is not waited for.
            Err(failure) if position.instance.is_empty() => return Err(failure),
            Err(_) => {
                if !is_unreachable {
                    let socket = session.plugin.socket.display();
                    note(&format_args!("the daemon at {socket} does not answer; waiting for it"));
                    is_unreachable = true;
                }
            }
        }
        tokio::time::sleep(FOLLOW_INTERVAL).await;
    }
}

/// All events since `position`, page by page.
async fn new_events(
    session: &Session,
    filter: &Filter,
    position: &mut Position,
) -> Result<Vec<Event>> {
    let mut found = Vec::new();
    loop {
        let request = monitor::ListEventsRequest {
            after: position.sequence,
            instance: position.instance.clone(),
            max_entries: 0,
        };
        let send = |channel, request| async move {
            MonitorClient::new(channel).list_events(request).await
        };
        let asked = session.plugin.ask(&"list events", request, send).await;
        let answer =
            asked.map_err(|failure| session.plugin.explain_missing_monitor(failure))?.into_inner();
        position.advance(&answer);
        found.extend(answer.events.into_iter().filter(|event| filter.admits(event)).map(Event::of));
        if !answer.more {
            return Ok(found);
        }
    }
}

impl Position {
    /// Prints a note, once, if events were missed.
    fn advance(&mut self, answer: &monitor::ListEventsResponse) {
        let is_first = self.instance.is_empty();
        if self.instance != answer.instance {
            if !is_first {
                note(&"the daemon was restarted; events before its start are in its log");
            }
            *self = Self { instance: answer.instance.clone(), sequence: 0 };
        } else if answer.forgotten > 0 {
            let count = answer.forgotten;
            note(&format_args!(
                "{count} events were dropped before they were read; the daemon's log has them"
            ));
        }
        self.sequence = answer.events.last().map_or(self.sequence, |event| event.sequence);
    }
}

impl Event {
    fn of(event: monitor::Event) -> Self {
        Self {
            sequence: event.sequence,
            time: event.time.map(|time| time.to_string()).unwrap_or_default(),
            level: event.level,
            kind: event.kind,
            message: event.message,
            fields: event.fields,
        }
    }
}

fn show_all(session: &Session, events: &[Event]) -> Result<()> {
    let lines: Vec<String> =
        events.iter().map(|event| line::of(event, session.output.style)).collect();
    let text = match lines.is_empty() {
        true => "the daemon has no such events in memory".to_owned(),
        false => lines.join("\n"),
    };
    session.show(&Answer::new(numbers(events), &events, text)?)
}

/// One document for each event; in JSON, one line for each.
fn show_one(session: &Session, event: &Event) -> Result<()> {
    let answer = Answer::new(
        numbers(std::slice::from_ref(event)),
        event,
        line::of(event, session.output.style),
    )?;
    match session.output.format {
        Format::Json => session.output.write(&format!("{}\n", answer.value)),
        Format::Yaml => session.output.write(&format!("---\n{}", answer.rendered(Format::Yaml))),
        Format::Table | Format::Name => session.show(&answer),
    }
}

fn numbers(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| event.sequence.to_string()).collect()
}
