//! What every command needs: the connection to the plugin, the output, and the directory of the client's notes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::{EXIT_CODES, Failure, Result};
use crate::output::{Answer, Format, Output};
use crate::plugin::Plugin;
use crate::screen::Screen;
use crate::secrets;
use crate::signals::Signals;
use crate::terminal::{Style, printable};

/// The socket of the daemon if nothing names one.
const DEFAULT_SOCKET: &str = "/run/orlop/csi.sock";
/// Beside the directories of drivers, none of which can have such a name.
const CLIENT_DIR: &str = ".client";

/// The settings of the daemon that the client needs.
pub struct Settings {
    /// Its socket, if the settings name it.
    pub socket: Option<PathBuf>,
    pub run_dir: PathBuf,
}

/// Reads the settings, from the given file if there is one.
pub type FindSettings<'a> = &'a dyn Fn(Option<&Path>) -> std::result::Result<Settings, String>;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Common {
    /// The socket of any CSI plugin, as unix:///path or /path; by default that of the daemon of this machine
    #[arg(long, env = "CSI_ENDPOINT", value_name = "URL", global = true)]
    endpoint: Option<OsString>,

    /// The TOML file of the daemon; without it and ORLOP_* variables /etc/orlop/orlop.toml, if it is there
    #[arg(long, env = "ORLOP_CONFIG", value_name = "FILE", global = true)]
    config: Option<PathBuf>,

    /// How long to wait for each answer
    #[arg(long, value_name = "SECONDS", default_value_t = 120, global = true,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,

    /// Secrets for the plugin: a JSON object, or lines of key=value
    #[arg(long, value_name = "FILE", global = true)]
    secrets_file: Option<PathBuf>,

    /// How to show the result
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t, global = true)]
    output: Format,
}

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Watch {
    /// Show it again every 2 seconds, or as often as given, until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
        default_missing_value = "2", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    watch: Option<u64>,
}

/// Of commands that change something.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Change {
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Of commands that destroy something.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Destroy {
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,

    /// Say what would be destroyed, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

pub(crate) struct Session {
    pub(crate) plugin: Plugin,
    pub(crate) output: Output,
    /// For notes of this client. A reboot clears it, as it does the mounts.
    pub(crate) directory: PathBuf,
}

impl Session {
    pub(crate) async fn open(common: &Common, find: FindSettings<'_>) -> Result<Self> {
        let given = common.endpoint.as_ref().filter(|given| !given.is_empty());
        let found = find(common.config.as_deref());
        let (socket, run_dir) = match given {
            // The daemon's settings do not matter for another plugin, except its run directory.
            Some(given) => (parse_endpoint(given)?, found.ok().map(|settings| settings.run_dir)),
            None => {
                let settings = found.map_err(Failure::usage)?;
                (settings.socket.map_or_else(default_socket, Ok)?, Some(settings.run_dir))
            }
        };
        let secrets =
            common.secrets_file.as_deref().map(secrets::read).transpose()?.unwrap_or_default();
        let timeout = Duration::from_secs(common.timeout);
        let plugin = Plugin::connect(&socket, timeout, secrets).await?;
        let run_dir = run_dir.unwrap_or_else(|| PathBuf::from("/run/orlop"));
        let output = Output { format: common.output, style: Style::of_stdout() };
        Ok(Self { plugin, output, directory: run_dir.join(CLIENT_DIR) })
    }

    pub(crate) fn show(&self, answer: &Answer) -> Result<()> {
        self.output.show(answer)
    }

    /// The result of `--dry-run`.
    pub(crate) fn would(&self, what: &str) -> Result<()> {
        self.show(&Answer::new(
            Vec::new(),
            &serde_json::json!({ "would": what }),
            format!("would {}", printable(what)),
        )?)
    }

    /// Shows the answer once, or with `--watch` at intervals until a signal.
    pub(crate) async fn watch(
        &self,
        watch: Watch,
        read: impl AsyncFn() -> Result<Answer>,
    ) -> Result<()> {
        let Some(seconds) = watch.watch else {
            return self.show(&read().await?);
        };
        let mut signals = Signals::listen()?;
        tokio::select! {
            shown = self.repeat(Duration::from_secs(seconds), read) => shown,
            () = signals.received() => Ok(()),
        }
    }

    /// A plugin that has answered once is waited for when it restarts.
    async fn repeat(&self, pause: Duration, read: impl AsyncFn() -> Result<Answer>) -> Result<()> {
        let mut answer = Ok(read().await?);
        let screen = Screen::open(&self.output, true);
        let mut is_unreachable = false;
        loop {
            match answer {
                Ok(answer) => {
                    screen.show(&answer)?;
                    is_unreachable = false;
                }
                Err(Failure::Failed(why)) if !is_unreachable => {
                    screen.say(&format!("{why}; waiting for it"));
                    is_unreachable = true;
                }
                Err(Failure::Failed(_)) => {}
                Err(failure) => return Err(failure),
            }
            tokio::time::sleep(pause).await;
            answer = read().await;
        }
    }
}

/// Other plugins have other names for their sockets than the daemon here allows.
fn parse_endpoint(given: &OsString) -> Result<PathBuf> {
    let wrong = || {
        Failure::usage(format!(
            "--endpoint or CSI_ENDPOINT: {given:?} is not a UNIX socket; write unix:///absolute/path or \
             /absolute/path"
        ))
    };
    let text = given.to_str().ok_or_else(wrong)?;
    let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")).unwrap_or(text);
    let path = Path::new(path);
    if path.is_absolute() { Ok(path.to_owned()) } else { Err(wrong()) }
}

fn default_socket() -> Result<PathBuf> {
    let usual = PathBuf::from(DEFAULT_SOCKET);
    // A directory that is closed to this user may well have one.
    match usual.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Failure::usage(format!(
            "cannot find a plugin: no socket is named, and there is none at {DEFAULT_SOCKET}; name one with \
             --endpoint or CSI_ENDPOINT, or the daemon's file with --config"
        ))),
        _ => Ok(usual),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_socket_may_be_written_in_three_ways() {
        for good in ["unix:///a/csi.sock", "unix:/a/csi.sock", "/a/csi.sock"] {
            assert_eq!(parse_endpoint(&good.into()).unwrap(), PathBuf::from("/a/csi.sock"));
        }
        for bad in ["csi.sock", "tcp://127.0.0.1:1", "unix://csi.sock", "dns:///x"] {
            assert_eq!(parse_endpoint(&bad.into()).unwrap_err().exit_code(), 2, "{bad}");
        }
    }
}
