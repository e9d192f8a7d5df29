//! The command line.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use csi_conformance::internal_tests::InternalTests;
use csi_conformance::known_deviations::KnownDeviations;
use csi_conformance::options::{Access, Action, Hooks, Options, Pairs};

/// Checks a CSI plugin against the specification, over its socket.
#[derive(Debug, Parser)]
#[command(version, about)]
pub(crate) struct Arguments {
    /// Where the plugin answers: unix:///path/of.sock
    #[arg(long, env = "CSI_ENDPOINT", required_unless_present = "list")]
    endpoint: Option<String>,

    /// Where its node service answers, if elsewhere
    #[arg(long)]
    node_endpoint: Option<String>,

    /// Only these: ids or prefixes of rows, services, calls, or names of checks
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,

    /// All but these
    #[arg(long, value_delimiter = ',')]
    skip: Vec<String>,

    /// Say which checks there are, and what each proves
    #[arg(long)]
    pub(crate) list: bool,

    /// Directory for staging paths; the plugin must see it under the same path
    #[arg(long)]
    staging_dir: Option<PathBuf>,

    /// Directory for target paths; the plugin must see it under the same path
    #[arg(long)]
    target_dir: Option<PathBuf>,

    /// The plugin's paths cannot be seen from here: leave out what looks at files and mounts
    #[arg(long)]
    remote: bool,

    /// Which volumes to use
    #[arg(long, value_enum, default_value_t = UseOf::Both)]
    access: UseOf,

    /// Bytes of a volume; the largest that checks ask for is four times this
    #[arg(long, default_value_t = 1 << 30)]
    size: i64,

    /// Filesystem of mounted volumes; the plugin's default if not given
    #[arg(long, default_value = "")]
    fs_type: String,

    /// KEY=VALUE for CreateVolume; may be repeated
    #[arg(long = "parameter", value_name = "KEY=VALUE", value_parser = pair)]
    parameters: Vec<(String, String)>,

    /// KEY=VALUE that makes volumes which cannot be grouped with others; may be repeated
    #[arg(long = "other-parameter", value_name = "KEY=VALUE", value_parser = pair)]
    other_parameters: Vec<(String, String)>,

    /// Volumes made with --other-parameter can be snapshotted together with others
    #[arg(long)]
    snapshots_across: bool,

    /// KEY=VALUE that makes a volume take all of its space when it is created; may be repeated
    #[arg(long = "filling-parameter", value_name = "KEY=VALUE", value_parser = pair)]
    filling_parameters: Vec<(String, String)>,

    /// KEY=VALUE for CreateSnapshot; may be repeated
    #[arg(long = "snapshot-parameter", value_name = "KEY=VALUE", value_parser = pair)]
    snapshot_parameters: Vec<(String, String)>,

    /// KEY=VALUE=OTHER: a mutable parameter and two values that it can have; may be repeated
    #[arg(long = "mutable-parameter", value_name = "KEY=VALUE=OTHER", value_parser = triple)]
    mutable_parameters: Vec<(String, String, String)>,

    /// KEY=VALUE=OTHER: a parameter of volume groups and two values that it can have; may be
    /// repeated
    #[arg(long = "group-parameter", value_name = "KEY=VALUE=OTHER", value_parser = triple)]
    group_parameters: Vec<(String, String, String)>,

    /// How many volumes fit into a group with the first values
    #[arg(long)]
    largest_group: Option<usize>,

    /// KEY=VALUE, sent with every call that takes secrets; may be repeated
    #[arg(long = "secret", value_name = "KEY=VALUE", value_parser = pair)]
    secrets: Vec<(String, String)>,

    /// KEY=VALUE: secrets of a user who may not create volumes; may be repeated
    #[arg(long = "weak-secret", value_name = "KEY=VALUE", value_parser = pair)]
    weak_secrets: Vec<(String, String)>,

    /// KEY=VALUE: topology of a second place where volumes can be made; may be repeated
    #[arg(long = "other-place", value_name = "KEY=VALUE", value_parser = pair)]
    other_place: Vec<(String, String)>,

    /// The id of a second node that the controller knows
    #[arg(long)]
    other_node: Option<String>,

    /// Seconds that one call may take
    #[arg(long, default_value_t = 60)]
    timeout: u64,

    /// Checks at a time
    #[arg(long, default_value_t = 4)]
    jobs: usize,

    /// Shell command that takes the storage away from under the plugin
    #[arg(long, requires = "mend_command")]
    break_command: Option<String>,

    /// Shell command that brings it back
    #[arg(long, requires = "break_command")]
    mend_command: Option<String>,

    /// Shell command that kills the plugin and starts it again, until its socket answers
    #[arg(long)]
    restart_command: Option<String>,

    /// File that holds what the plugin logs
    #[arg(long)]
    logs: Option<PathBuf>,

    /// File that names the plugin's own tests for rows that cannot be seen from outside
    #[arg(long)]
    inside: Option<PathBuf>,

    /// File that names rows which the plugin is known to break, and why; others are failures,
    /// and so are those which it does not break any more
    #[arg(long)]
    known: Option<PathBuf>,

    /// Write a report for programs
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,

    /// Write a table of all rows
    #[arg(long)]
    pub(crate) markdown: Option<PathBuf>,

    /// Title of that table
    #[arg(long, default_value = "Conformance")]
    pub(crate) title: String,

    /// File with the text that stands before that table
    #[arg(long)]
    about: Option<PathBuf>,

    /// Tell only of failures
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Only ask whether the plugin is ready, for use in a restart command
    #[arg(long)]
    pub(crate) ready: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum UseOf {
    Mount,
    Block,
    Both,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("not of the form KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn triple(text: &str) -> Result<(String, String, String), String> {
    let mut parts = text.splitn(3, '=').map(str::to_owned);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(key), Some(value), Some(other)) => Ok((key, value, other)),
        _ => Err("not of the form KEY=VALUE=OTHER".to_owned()),
    }
}

/// `unix:///a/b.sock` or a plain path.
fn socket(endpoint: &str) -> PathBuf {
    let path = endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:"));
    PathBuf::from(path.unwrap_or(endpoint))
}

impl Arguments {
    pub(crate) fn options(&self) -> Result<Options, String> {
        let endpoint = self.endpoint.as_deref().ok_or("--endpoint is missing")?;
        let mut options = Options::new(socket(endpoint));
        options.node_socket = self.node_endpoint.as_deref().map(socket);
        options.only.clone_from(&self.only);
        options.skip.clone_from(&self.skip);
        if let Some(directory) = &self.staging_dir {
            options.staging_dir.clone_from(directory);
        }
        if let Some(directory) = &self.target_dir {
            options.target_dir.clone_from(directory);
        }
        options.local_files = !self.remote;
        options.access = match self.access {
            UseOf::Mount => Access::Mount,
            UseOf::Block => Access::Block,
            UseOf::Both => Access::Both,
        };
        options.size = self.size;
        options.fs_type.clone_from(&self.fs_type);
        options.parameters = pairs(&self.parameters);
        options.other_parameters = pairs(&self.other_parameters);
        options.snapshots_across = self.snapshots_across;
        options.filling_parameters = pairs(&self.filling_parameters);
        options.snapshot_parameters = pairs(&self.snapshot_parameters);
        options.secrets = pairs(&self.secrets);
        options.weak_secrets = pairs(&self.weak_secrets);
        options.other_place = pairs(&self.other_place);
        for (key, value, other) in &self.mutable_parameters {
            options.mutable_parameters.insert(key.clone(), value.clone());
            options.changed_parameters.insert(key.clone(), other.clone());
        }
        for (key, value, other) in &self.group_parameters {
            options.group_parameters.insert(key.clone(), value.clone());
            options.other_group_parameters.insert(key.clone(), other.clone());
        }
        options.largest_group = self.largest_group;
        options.other_node.clone_from(&self.other_node);
        options.timeout = Duration::from_secs(self.timeout);
        options.jobs = self.jobs;
        options.hooks = self.hooks();
        Ok(options)
    }

    fn hooks(&self) -> Hooks {
        let action = |command: &Option<String>| -> Option<Action> {
            let command = command.clone()?;
            Some(Arc::new(move || shell(&command)))
        };
        Hooks {
            breaks: action(&self.break_command),
            mends: action(&self.mend_command),
            restarts: action(&self.restart_command),
            logs: self.logs.clone().map(|path| Arc::new(move || read(&path)) as Arc<_>),
        }
    }

    /// Paths in the file are relative to the directory where the suite is run.
    pub(crate) fn inside(&self) -> Result<InternalTests, String> {
        match &self.inside {
            Some(file) => InternalTests::read(file, Path::new(".")),
            None => Ok(InternalTests::default()),
        }
    }

    pub(crate) fn known(&self) -> Result<Option<KnownDeviations>, String> {
        self.known.as_deref().map(KnownDeviations::read).transpose()
    }

    pub(crate) fn about(&self) -> Result<String, String> {
        match &self.about {
            Some(path) => Ok(read(path)?.trim_end().to_owned()),
            None => {
                Ok("What each requirement row came to in a run of `csi-conformance`.".to_owned())
            }
        }
    }
}

fn pairs(given: &[(String, String)]) -> Pairs {
    given.iter().cloned().collect()
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[allow(clippy::disallowed_methods, reason = "the person who runs the suite gave the command")]
fn shell(command: &str) -> Result<(), String> {
    let status = Command::new("sh").arg("-c").arg(command).status();
    let status = status.map_err(|error| format!("{command}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command}: {status}")) }
}
