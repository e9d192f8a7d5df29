//! Logs: to stderr only (OP-12), as text for people or JSON for collectors.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{ConfigError, LogConfig, LogFormat};

pub(crate) fn check(config: &LogConfig) -> Result<(), ConfigError> {
    filter(config).map(drop)
}

fn filter(config: &LogConfig) -> Result<EnvFilter, ConfigError> {
    EnvFilter::try_new(&config.filter).map_err(|error| {
        ConfigError::new("ORLOP_LOG", format!("is not a log level or filter: {error}"))
    })
}

pub(crate) fn start(config: &LogConfig) -> Result<(), ConfigError> {
    let filter = filter(config)?;
    // By default, a line that cannot be written is reported on stderr, which cannot be written either,
    // with a macro that then panics: calls would end with the log.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    match config.format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => builder.json().with_current_span(true).with_span_list(false).init(),
    }
    Ok(())
}
