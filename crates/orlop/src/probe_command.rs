//! `orlop probe`: asks the daemon how it is; for probes that run a program in its container.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use orlop_csi::self_check;

use crate::{MISCONFIGURED, complain, config, tell};

#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 yes; 1 no, with the reason on stderr; 2 the settings do not say \
    where the daemon is."
)]
pub(crate) struct ProbeArguments {
    /// Ask whether the daemon is ready, as Probe says; without this, only whether it answers
    #[arg(long)]
    ready: bool,

    /// How long to wait for the answer
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    timeout: u16,

    /// The socket of the daemon, as unix:///absolute/path.sock
    #[arg(long, env = "CSI_ENDPOINT", value_name = "URL")]
    endpoint: Option<OsString>,

    /// The TOML file of the daemon; without it and ORLOP_* variables /etc/orlop/orlop.toml, if it is there
    #[arg(long, env = "ORLOP_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn run(arguments: ProbeArguments) -> ExitCode {
    let found = config::socket_of_daemon(arguments.endpoint, arguments.config.as_deref());
    let socket = match found {
        Ok(socket) => socket,
        Err(error) => return complain(MISCONFIGURED, &error),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return complain(1, &error),
    };
    let timeout = Duration::from_secs(u64::from(arguments.timeout));
    let asked = runtime.block_on(async {
        match arguments.ready {
            true => self_check::check_ready(&socket, timeout).await,
            false => self_check::check_alive(&socket, timeout).await.map(|()| None),
        }
    });
    match (asked, arguments.ready) {
        (Ok(Some(warning)), _) => tell(&[], &format!("the daemon is ready; warning: {warning}")),
        (Ok(None), true) => tell(&[], "the daemon is ready"),
        (Ok(None), false) => tell(&[], "the daemon answers"),
        (Err(error), _) => complain(1, &error),
    }
}
