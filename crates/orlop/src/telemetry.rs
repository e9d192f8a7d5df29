//! Logs: to stderr only (OP-12), as text for people or JSON for collectors.
//!
//! A log that is not read must not stop the daemon: its stderr is a pipe in most installations, and a
//! call, a thaw or the end of the process would wait for the pipe's reader. So lines are queued, a
//! thread writes them, and lines that find no room are counted and dropped. What is queued when the
//! process is killed is lost.

mod queue;

use std::cell::Cell;
use std::io::{ErrorKind, IsTerminal, Write};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

#[cfg(feature = "otel")]
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::config::{ConfigError, LogConfig, LogFormat};
use crate::events;
use queue::{Entry, LogQueue};

/// Some thousand lines.
const LIMIT: usize = 1 << 20;
/// How long the end of the process waits for lines that are still to be written.
const EXIT_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// A thread that panics may hold a filesystem frozen, and thaws it afterwards.
const PANIC_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// For a stderr that another process has made non-blocking.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

static QUEUE: LogQueue = LogQueue::new(LIMIT);
static HAS_WRITER: AtomicBool = AtomicBool::new(false);

thread_local! {
    static IS_WRITER: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn check(config: &LogConfig) -> Result<(), ConfigError> {
    filter(config).map(drop)
}

fn filter(config: &LogConfig) -> Result<EnvFilter, ConfigError> {
    EnvFilter::try_new(&config.filter).map_err(|error| {
        ConfigError::new("ORLOP_LOG", format!("is not a log level or filter: {error}"))
    })
}

/// From now on lines are queued; [`start_writer`] comes next, or [`flush`].
pub(crate) fn start(config: &LogConfig) -> Result<(), ConfigError> {
    let filter = filter(config)?;
    // By default, a line that cannot be written is reported on stderr, which cannot be written either,
    // with a macro that then panics: calls would end with the log.
    let lines =
        tracing_subscriber::fmt::layer().with_writer(|| QueuedLine).log_internal_errors(false);
    let lines = match config.format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().with_current_span(true).with_span_list(false).boxed(),
    };
    // Each by its own filter: events are kept also where fewer lines are wanted.
    let subscriber =
        tracing_subscriber::registry().with(lines.with_filter(filter)).with(events::layer());
    #[cfg(feature = "otel")]
    let subscriber =
        subscriber.with(crate::span_export::SpanCollector.with_filter(LevelFilter::INFO));
    subscriber.init();
    std::panic::set_hook(Box::new(report_panic));
    Ok(())
}

/// Not before the process has given up its privileges, which belong to threads.
pub(crate) fn start_writer() -> std::io::Result<()> {
    if HAS_WRITER.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    let spawned = thread::Builder::new().name("log".to_owned()).spawn(write_queued);
    if spawned.is_err() {
        HAS_WRITER.store(false, Ordering::Release);
    }
    spawned.map(drop)
}

/// Lines that found no room since the start.
pub(crate) fn dropped_lines() -> u64 {
    QUEUE.dropped_ever()
}

/// The reason why the process ends stands on a separate line at the end of stderr, whatever the log
/// format.
pub(crate) fn set_reason(error: &dyn std::error::Error) {
    QUEUE.set_reason(format!("orlop: {error}\n").as_bytes());
}

/// Before the process ends. A log that is not read is waited for only a moment.
pub(crate) fn flush() {
    match start_writer() {
        Ok(()) => _ = QUEUE.wait_until_written(EXIT_FLUSH_TIMEOUT),
        Err(_) => std::iter::from_fn(|| QUEUE.try_next()).for_each(write),
    }
}

fn write_queued() {
    IS_WRITER.set(true);
    loop {
        write(QUEUE.next());
        QUEUE.written();
    }
}

fn write(entry: Entry) {
    match entry {
        Entry::Line(line) => write_line(&line),
        Entry::Dropped(lines) => {
            IS_WRITER.set(true);
            tracing::error!(lines, "dropped log lines, because the log was not read in time");
        }
    }
}

/// Waits as long as it takes. A line that cannot be written is lost, as with a closed stderr.
fn write_line(mut line: &[u8]) {
    while !line.is_empty() {
        match std::io::stderr().write(line) {
            Ok(0) => return,
            Ok(written) => line = line.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(RETRY_INTERVAL),
            Err(_) => return,
        }
    }
}

/// The subscriber writes each line at once.
struct QueuedLine;

impl Write for QueuedLine {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        if IS_WRITER.get() {
            write_line(line);
        } else {
            QUEUE.push(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// In place of the default, which writes to stderr itself. The process may be about to end.
fn report_panic(panic: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let backtrace = std::backtrace::Backtrace::capture();
    let mut text = format!("thread '{name}' {panic}\n");
    if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
        text.push_str(&format!("{backtrace}\n"));
    }
    QUEUE.push(text.as_bytes());
    if HAS_WRITER.load(Ordering::Acquire) && !IS_WRITER.get() {
        QUEUE.wait_until_written(PANIC_FLUSH_TIMEOUT);
    }
}
