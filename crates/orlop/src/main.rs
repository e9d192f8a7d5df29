//! The `orlop` command.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use orlop_sys::{inherited, malloc};

mod check;
mod client_command;
mod cluster;
mod config;
mod demo;
mod doctor;
mod events;
mod generated;
mod http;
mod inspection;
mod metrics;
mod node_command;
mod open_pools;
mod page;
mod pool_command;
mod pool_startup;
mod privileges;
mod probe_command;
mod reading;
mod registration;
mod serve;
mod served_before;
mod signals;
#[cfg(feature = "otel")]
mod span_export;
mod telemetry;
mod thaw_helper;

/// Exit codes of `serve`: 2 for a configuration that cannot work, 1 for anything that fails later.
/// Those of `doctor` and `pool` are in `doctor/report.rs`.
const MISCONFIGURED: u8 = 2;

#[derive(Parser)]
#[command(name = "orlop", version, about = "A Container Storage Interface plugin for volumes in \
    a machine's directory or a Ceph cluster", long_about = None)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve CSI on a UNIX socket until SIGTERM
    Serve(ServeArguments),

    /// Show what Orlop does, on a throw-away pool that is removed at the end; needs root
    Demo(demo::DemoArguments),

    /// Find inconsistent records, data, devices and mounts; changes nothing without --repair
    Doctor(doctor::DoctorArguments),

    /// Volumes: list, show, create, delete, grow, limit, mount, import, export
    Volume(orlop_client::VolumeArguments),

    /// Snapshots: list, show, create, delete, restore, mount, export, compare
    Snapshot(orlop_client::SnapshotArguments),

    /// Group snapshots: list, show, create, delete
    Group(orlop_client::GroupArguments),

    /// What the volumes of this node do now: IOPS, throughput, latency, limits
    Top(orlop_client::TopArguments),

    /// What happened: calls that changed something, health, pools, peers; with -f as it happens
    Events(orlop_client::EventsArguments),

    /// Pools: their state and space, what is on them, or take over one that comes from another machine
    #[command(subcommand)]
    Pool(pool_command::PoolCommand),

    /// Look at this node or the daemons of a cluster, or give one up that is gone for good
    #[command(subcommand)]
    Node(node_command::NodeCommand),

    /// Ask the daemon whether it answers, or is ready
    Probe(probe_command::ProbeArguments),

    /// Print a completion script for a shell
    Completion {
        #[arg(value_enum)]
        shell: generated::Shell,
    },

    /// Write the man pages into a directory
    Man { directory: std::path::PathBuf },

    /// Write to a file for `orlop demo`, which starts it
    #[command(hide = true, name = demo::LIMITED_WRITER)]
    DemoWriter(demo::LimitedWriterArguments),

    /// Thaw what a killed `orlop serve` left frozen; `orlop serve` starts it
    #[command(hide = true, name = thaw_helper::SUBCOMMAND)]
    ThawHelper {
        #[arg(long = thaw_helper::JSON)]
        json: bool,
    },
}

/// Everything else is configured by ORLOP_* variables or a TOML file.
#[derive(clap::Args)]
#[command(
    after_help = "It cannot start without two settings, which a file has as the keys in brackets:\n\
    - CSI_ENDPOINT or --endpoint (endpoint): the socket\n\
    - where the volumes are: ORLOP_POOL (pool.path), a directory; for a Ceph cluster ORLOP_POOL_KIND=rbd\n  \
      (pool.kind) and ORLOP_RBD_MONITORS (pool.monitors); for ORLOP_MODE=router (mode) ORLOP_PEERS\n  \
      (peers.addresses) and the certificates ORLOP_PEER_*\n\
    Other settings are ORLOP_* variables or keys of the file; docs/configuration.md lists all.\n\n\
    Exit codes: 0 stopped by a signal, or --check found no problem; 1 the start or something\n\
    after it failed; 2 the configuration cannot work."
)]
struct ServeArguments {
    /// Where to listen, as unix:///absolute/path.sock
    #[arg(long, env = "CSI_ENDPOINT", value_name = "URL")]
    endpoint: Option<OsString>,

    /// A TOML file with settings; variables win over it. Without both /etc/orlop/orlop.toml, if it is there
    #[arg(long, env = "ORLOP_CONFIG", value_name = "FILE")]
    config: Option<std::path::PathBuf>,

    /// Register with kubelet, by a socket in its directory for plugins; without a value the directory is
    /// /var/lib/kubelet/plugins_registry
    #[arg(long, env = "ORLOP_REGISTER", value_name = "DIRECTORY", num_args = 0..=1,
        require_equals = true, default_missing_value = config::DEFAULT_REGISTRY)]
    register: Option<OsString>,

    /// Serve /healthz and /readyz at this address, as 0.0.0.0:7421 or unix:///absolute/path.sock
    #[arg(long, env = "ORLOP_HEALTH_LISTEN", value_name = "ADDRESS:PORT")]
    health_listen: Option<OsString>,

    /// Serve /metrics at this address, with /healthz and /readyz, as 0.0.0.0:7422 or unix:///absolute/path.sock
    #[arg(long, env = "ORLOP_METRICS_LISTEN", value_name = "ADDRESS:PORT")]
    metrics_listen: Option<OsString>,

    /// Serve a page for people at this address of this machine, as 127.0.0.1:7423 or unix:///absolute/path.sock
    #[arg(long, env = "ORLOP_PAGE_LISTEN", value_name = "ADDRESS:PORT")]
    page_listen: Option<OsString>,

    /// Print the settings in effect, check whether the daemon would start, change nothing, and exit
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    if let Err(error) = inherited::mend() {
        return complain(1, &error);
    }
    match Arguments::parse().command {
        Command::Serve(arguments) => serve(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::DemoWriter(arguments) => demo::limited_writer(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Volume(arguments) => client_command::run(orlop_client::Command::Volume(arguments)),
        Command::Snapshot(arguments) => {
            client_command::run(orlop_client::Command::Snapshot(arguments))
        }
        Command::Group(arguments) => client_command::run(orlop_client::Command::Group(arguments)),
        Command::Top(arguments) => client_command::run(orlop_client::Command::Top(arguments)),
        Command::Events(arguments) => client_command::run(orlop_client::Command::Events(arguments)),
        Command::Pool(pool_command::PoolCommand::Status(arguments)) => {
            client_command::run(orlop_client::Command::PoolStatus(arguments))
        }
        Command::Pool(pool_command::PoolCommand::Directory(command)) => pool_command::run(command),
        Command::Node(node_command::NodeCommand::Info(arguments)) => {
            client_command::run(orlop_client::Command::NodeInfo(arguments))
        }
        Command::Node(node_command::NodeCommand::Cluster(command)) => node_command::run(command),
        Command::Probe(arguments) => probe_command::run(arguments),
        Command::Completion { shell } => generated::print_completion(shell),
        Command::Man { directory } => generated::write_man_pages(&directory),
        Command::ThawHelper { json } => {
            thaw_helper::run(json);
            ExitCode::SUCCESS
        }
    }
}

fn serve(arguments: &ServeArguments) -> ExitCode {
    malloc::limit_arenas();
    let flags = config::Flags {
        endpoint: arguments.endpoint.clone(),
        register: arguments.register.clone(),
        health_listen: arguments.health_listen.clone(),
        metrics_listen: arguments.metrics_listen.clone(),
        page_listen: arguments.page_listen.clone(),
    };
    let loaded = config::load(flags, arguments.config.as_deref());
    let (mut config, sockets) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return complain(MISCONFIGURED, &error),
    };
    // Where the run directory cannot be read, or is a mistake, the checks say so.
    let remembered = served_before::remember_served_pools(&mut config);
    if arguments.check {
        return check(&config, &sockets, remembered);
    }
    if let Err(error) = check::check_machine(&config, &sockets) {
        let code = if check::is_shortage(&error) { 1 } else { MISCONFIGURED };
        return complain(code, error.as_ref());
    }
    if let Err(error) = telemetry::start(&config.log) {
        return complain(MISCONFIGURED, &config.origin.locate(error));
    }
    if let Err(error) = remembered {
        return complain(1, &error);
    }
    let code = match serve::serve(config, sockets) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            telemetry::set_reason(&error);
            ExitCode::from(if error.is_misconfiguration() { MISCONFIGURED } else { 1 })
        }
    };
    telemetry::flush();
    code
}

/// Prints the settings in effect, also where they are refused.
fn check(
    config: &config::Config,
    sockets: &config::Sockets,
    remembered: orlop_model::Result<()>,
) -> ExitCode {
    let effective = config::effective(config, Some(sockets));
    tell(&["# The settings in effect, with all defaults".to_owned()], &effective);
    match (check::check(config, sockets), remembered) {
        (Err(error), _) => complain(MISCONFIGURED, error.as_ref()),
        (Ok(_), Err(error)) => complain(1, &error),
        (Ok(plan), Ok(())) => tell(&plan, "the daemon would start"),
    }
}

/// Prints that nothing is wrong, and what a start would create: a new pool may not be intended.
fn tell(plan: &[String], verdict: &str) -> ExitCode {
    let mut out = std::io::stdout();
    for line in plan.iter().map(String::as_str).chain([verdict]) {
        // A closed stdout is no reason to change the exit code.
        let _ = writeln!(out, "{line}");
    }
    ExitCode::SUCCESS
}

/// The reason stands on a separate line at the end of stderr, whatever the log format.
fn complain(code: u8, error: &dyn std::error::Error) -> ExitCode {
    // A closed stderr is no reason to change the exit code.
    let _ = writeln!(std::io::stderr(), "orlop: {error}");
    ExitCode::from(code)
}
