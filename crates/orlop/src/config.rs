//! Configuration: a TOML file if one is named, ORLOP_* variables on top, checked as a whole
//! before anything starts. A setting that nobody reads is a mistake, so unknown ones are errors.

use std::path::{Path, PathBuf};
use std::time::Duration;

use orlop_csi::Mode;
use orlop_model::{FsType, NodeId, Topology};

mod endpoint;
mod file;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod names;
mod pools;
mod settle;
mod size;
mod variables;

pub(crate) use file::LogFormat;
pub(crate) use pools::PoolConfig;

/// What is wrong, and where it was said.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {problem}")]
pub(crate) struct ConfigError {
    setting: String,
    problem: String,
}

impl ConfigError {
    pub(crate) fn new(setting: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { setting: setting.into(), problem: problem.into() }
    }
}

/// Settings that fit together.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) socket: PathBuf,
    pub(crate) addons_socket: Option<PathBuf>,
    pub(crate) mode: Mode,
    pub(crate) driver_name: String,
    pub(crate) node_id: NodeId,
    pub(crate) place: Topology,
    pub(crate) attach: bool,
    pub(crate) max_volumes: u32,
    pub(crate) default_capacity: u64,
    pub(crate) default_fs: Option<FsType>,
    pub(crate) filesystems: Option<Vec<FsType>>,
    pub(crate) run_dir: PathBuf,
    pub(crate) workload_cgroup: String,
    pub(crate) freeze_limit: Duration,
    pub(crate) pools: Vec<PoolConfig>,
    pub(crate) log: LogConfig,
}

#[derive(Debug)]
pub(crate) struct LogConfig {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

pub(crate) fn load(endpoint: Option<&str>, file: Option<&Path>) -> Result<Config, ConfigError> {
    let mut settings = match file {
        Some(path) => file::read(path)?,
        None => file::Settings::default(),
    };
    variables::apply(&mut settings, std::env::vars())?;
    settle::settle(settings, endpoint)
}

#[cfg(test)]
mod tests;
