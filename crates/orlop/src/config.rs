//! Configuration: a TOML file if one is named or in its usual place, ORLOP_* variables on top, checked as a whole
//! before anything starts. A setting that is never read is a mistake, so unknown ones are errors.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use orlop_csi::Mode;
use orlop_host::EncryptionConfig;
use orlop_model::{FsType, NodeId, Topology};

mod effective;
mod encryption;
mod endpoint;
mod file;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod lvm;
mod names;
mod origin;
mod peers;
mod pools;
mod registration;
mod validate;
mod variables;

pub(crate) use effective::effective;
pub(crate) use file::LogFormat;
pub(crate) use lvm::thin_pool_at;
pub(crate) use origin::Origin;
pub(crate) use peers::PeerConfig;
pub(crate) use pools::PoolConfig;
pub(crate) use registration::{DEFAULT_REGISTRY, RegistrationSocket};
pub(crate) use validate::DEFAULT_RUN_DIR;

/// Where the package puts the settings. Read where nothing else says any.
const USUAL_FILE: &str = "/etc/orlop/orlop.toml";

/// What is wrong, and where it was said.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {problem}")]
pub(crate) struct ConfigError {
    setting: String,
    problem: String,
    /// The one of several that it is about.
    pool: Option<String>,
}

impl ConfigError {
    pub(crate) fn new(setting: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { setting: setting.into(), problem: problem.into(), pool: None }
    }

    #[must_use]
    pub(crate) fn of_pool(self, name: &str) -> Self {
        Self { pool: Some(name.to_owned()), ..self }
    }
}

/// Settings that fit together.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) mode: Mode,
    /// A controller without pools, which forwards every call to its peers.
    pub(crate) is_router: bool,
    pub(crate) peers: Option<PeerConfig>,
    pub(crate) driver_name: String,
    pub(crate) node_id: NodeId,
    pub(crate) topology: Topology,
    pub(crate) attach: bool,
    /// Offer gRPC's reflection and health.
    pub(crate) introspection: bool,
    pub(crate) max_volumes: u32,
    pub(crate) default_capacity: u64,
    pub(crate) default_fs: Option<FsType>,
    pub(crate) filesystems: Option<Vec<FsType>>,
    pub(crate) run_dir: PathBuf,
    pub(crate) workload_cgroup: String,
    pub(crate) freeze_limit: Duration,
    pub(crate) encryption: EncryptionConfig,
    pub(crate) pools: Vec<PoolConfig>,
    /// Do not give up the rights that this mode does not need.
    pub(crate) keep_capabilities: bool,
    /// May metrics name the volumes?
    pub(crate) metrics_volumes: bool,
    pub(crate) log: LogConfig,
    /// Where spans are sent to; only in builds that have that.
    pub(crate) otlp_endpoint: Option<String>,
    pub(crate) origin: Origin,
}

impl Config {
    pub(crate) fn has_local_pool(&self) -> bool {
        self.pools.iter().any(PoolConfig::is_local)
    }

    /// Does it attach, mount or freeze anything here? A controller of Ceph pools does not: any
    /// number of them may run, also beside a node's daemon.
    pub(crate) fn uses_machine(&self) -> bool {
        self.mode.serves_node() || self.has_local_pool()
    }
}

/// Where to listen.
#[derive(Debug)]
pub(crate) struct Sockets {
    pub(crate) csi: PathBuf,
    /// A second one for CSI-Addons alone.
    pub(crate) addons: Option<PathBuf>,
    /// Where kubelet looks for plugins.
    pub(crate) registration: Option<RegistrationSocket>,
    pub(crate) health: Option<HttpAddress>,
    pub(crate) metrics: Option<HttpAddress>,
    pub(crate) page: Option<PageAddress>,
}

impl Sockets {
    pub(crate) fn page_address(&self) -> Option<&HttpAddress> {
        self.page.as_ref().map(|page| &page.address)
    }

    /// All that are files, each with its setting.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        fn file(address: Option<&HttpAddress>) -> Option<&PathBuf> {
            match address {
                Some(HttpAddress::Unix(path)) => Some(path),
                Some(HttpAddress::Tcp(_)) | None => None,
            }
        }
        let registration = self.registration.as_ref().map(|socket| &socket.path);
        let all = [
            ("CSI_ENDPOINT", Some(&self.csi)),
            ("ORLOP_ADDONS_ENDPOINT", self.addons.as_ref()),
            ("ORLOP_REGISTER", registration),
            ("ORLOP_HEALTH_LISTEN", file(self.health.as_ref())),
            // At the same address there is one listener for all of them.
            (
                "ORLOP_METRICS_LISTEN",
                file(self.metrics.as_ref().filter(|_| self.metrics != self.health)),
            ),
            (
                "ORLOP_PAGE_LISTEN",
                file(self.page_address().filter(|page| {
                    ![&self.metrics, &self.health].into_iter().flatten().any(|it| it == *page)
                })),
            ),
        ];
        all.into_iter().filter_map(|(setting, path)| Some((setting, path?.as_path())))
    }
}

/// Where the page is served, and who may change something by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageAddress {
    pub(crate) address: HttpAddress,
    /// `None`: it only shows.
    pub(crate) token_file: Option<PathBuf>,
}

/// Where HTTP is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HttpAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Settings from the command line, which win over variables and the file.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    pub(crate) endpoint: Option<OsString>,
    pub(crate) register: Option<OsString>,
    pub(crate) health_listen: Option<OsString>,
    pub(crate) metrics_listen: Option<OsString>,
    pub(crate) page_listen: Option<OsString>,
}

#[derive(Debug, Clone)]
pub(crate) struct LogConfig {
    pub(crate) filter: String,
    pub(crate) format: LogFormat,
}

/// For a daemon: all that it needs.
pub(crate) fn load(flags: Flags, file: Option<&Path>) -> Result<(Config, Sockets), ConfigError> {
    let (mut settings, mut origin) = read(file)?;
    let given = [
        ("ORLOP_REGISTER", flags.register, &mut settings.register),
        ("ORLOP_HEALTH_LISTEN", flags.health_listen, &mut settings.health_listen),
        ("ORLOP_METRICS_LISTEN", flags.metrics_listen, &mut settings.metrics_listen),
        ("ORLOP_PAGE_LISTEN", flags.page_listen, &mut settings.page_listen),
    ];
    for (name, flag, setting) in given {
        if let Some(value) = variables::text(name, flag)? {
            *setting = Some(value);
            origin = origin.with(name, true);
        }
    }
    let endpoint = variables::text("CSI_ENDPOINT", flags.endpoint)?;
    let origin = origin.with("CSI_ENDPOINT", endpoint.is_some());
    let (config, sockets) =
        fit(settings, endpoint.as_deref()).map_err(|error| origin.locate(error))?;
    Ok((Config { origin, ..config }, sockets))
}

fn fit(settings: file::Settings, endpoint: Option<&str>) -> Result<(Config, Sockets), ConfigError> {
    let sockets = endpoint::validate(&settings, endpoint)?;
    let has_pool = pools::require_one(&settings.pools);
    let config = validate::validate(settings)?;
    if !config.is_router {
        has_pool?;
    }
    endpoint::check_apart(&sockets, &config)?;
    Ok((config, sockets))
}

/// For commands other than `serve`: neither an endpoint nor a pool is required.
pub(crate) fn load_without_endpoint(
    file: Option<&Path>,
) -> Result<(Config, Option<Sockets>), ConfigError> {
    let (settings, origin) = read(file)?;
    let located = |error| origin.locate(error);
    let given = variables::text("CSI_ENDPOINT", std::env::var_os("CSI_ENDPOINT"))?;
    let sockets = match given.as_deref().or(settings.endpoint.as_deref()) {
        None | Some("") => None,
        Some(_) => Some(endpoint::validate(&settings, given.as_deref()).map_err(located)?),
    };
    let config = validate::validate(settings).map_err(located)?;
    Ok((Config { origin, ..config }, sockets))
}

/// The socket of a daemon that runs with these settings.
pub(crate) fn socket_of_daemon(
    endpoint: Option<OsString>,
    file: Option<&Path>,
) -> Result<PathBuf, ConfigError> {
    let (settings, origin) = read(file)?;
    let endpoint = variables::text("CSI_ENDPOINT", endpoint)?;
    let origin = origin.with("CSI_ENDPOINT", endpoint.is_some());
    let sockets = endpoint::validate(&settings, endpoint.as_deref());
    sockets.map(|sockets| sockets.csi).map_err(|error| origin.locate(error))
}

/// For a client: the socket of the daemon, if the settings name one, and its run directory.
pub(crate) fn surroundings(file: Option<&Path>) -> Result<(Option<PathBuf>, PathBuf), ConfigError> {
    let (settings, origin) = read(file)?;
    let endpoint = settings.endpoint.as_deref().filter(|endpoint| !endpoint.is_empty());
    let socket = endpoint.map(|endpoint| endpoint::parse("CSI_ENDPOINT", endpoint)).transpose();
    let socket = socket.map_err(|error| origin.locate(error))?;
    let run_dir = settings.run_dir.unwrap_or_else(|| PathBuf::from(validate::DEFAULT_RUN_DIR));
    Ok((socket, run_dir))
}

pub(crate) fn require_pool(config: &Config) -> Result<(), ConfigError> {
    match config.pools.is_empty() {
        true => Err(config.origin.locate(pools::none_is_given())),
        false => Ok(()),
    }
}

fn read(file: Option<&Path>) -> Result<(file::Settings, Origin), ConfigError> {
    let variables = variables::own(std::env::vars_os())?;
    let file = file_to_read(file, &variables, Path::new(USUAL_FILE));
    let mut settings = match file {
        Some(path) => file::read(path)?,
        None => file::Settings::default(),
    };
    let names: Vec<String> = variables.iter().map(|(name, _)| name.clone()).collect();
    variables::apply(&mut settings, variables.into_iter())?;
    Ok((settings, Origin::new(file, names.into_iter())))
}

/// Variables describe a daemon of their own, which the usual file must not change.
fn file_to_read<'a>(
    given: Option<&'a Path>,
    variables: &[(String, String)],
    usual: &'a Path,
) -> Option<&'a Path> {
    let is_alone = || variables.iter().all(|(name, _)| !variables::is_setting(name));
    // Where it cannot be known whether the file is there, reading it says why.
    let is_there = || usual.try_exists().unwrap_or(true);
    given.or_else(|| (is_alone() && is_there()).then_some(usual))
}

#[cfg(test)]
mod tests;
