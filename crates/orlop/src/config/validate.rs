//! From what was written to what holds: defaults, and checks that settings fit together.

use std::path::{Path, PathBuf};
use std::time::Duration;

use orlop_csi::Mode;
use orlop_model::{ALLOCATION_UNIT, FsType, parse_size};

use super::file::Settings;
use super::pools::{self, Surroundings};
use super::{Config, ConfigError, LogConfig, Origin, encryption, names, peers};

pub(super) const DEFAULT_LEVEL: &str = "info";
pub(crate) const DEFAULT_RUN_DIR: &str = "/run/orlop";
const DEFAULT_SIZE: u64 = 1 << 30;
/// Loop devices stay as quick with this many as with one.
const DEFAULT_MAX_VOLUMES: u32 = 1000;
const DEFAULT_FREEZE_LIMIT_SECONDS: u32 = 60;

pub(super) fn validate(settings: Settings) -> Result<Config, ConfigError> {
    let driver_name = names::driver_name(settings.driver_name)?;
    let node_id = names::node_id(settings.node_id)?;
    let topology = names::topology(&driver_name, &node_id, settings.topology)?;
    let filesystems = settings.filesystems.map(|list| filesystems(&list)).transpose()?;
    let default_fs =
        settings.default_fs.map(|fs| filesystem("ORLOP_DEFAULT_FS", &fs)).transpose()?;
    if let (Some(list), Some(default)) = (&filesystems, default_fs)
        && !list.contains(&default)
    {
        return Err(ConfigError::new(
            "ORLOP_DEFAULT_FS",
            format!("{default} is not among ORLOP_FILESYSTEMS"),
        ));
    }
    let (mode, is_router) = mode(settings.mode.as_deref())?;
    if is_router && !settings.pools.is_empty() {
        return Err(ConfigError::new(
            "ORLOP_MODE",
            "is router, which has no pool; take the pool out, or choose all or controller",
        ));
    }
    let peers = peers::validate(settings.peers, &node_id, is_router)?;
    let run_dir = settings.run_dir.unwrap_or_else(|| PathBuf::from(DEFAULT_RUN_DIR));
    let attach = settings.attach.unwrap_or(true);
    let log = LogConfig {
        filter: log_filter(settings.log.level.as_deref())?,
        format: settings.log.format.unwrap_or_default(),
    };
    check_run_dir(&run_dir)?;
    let surroundings = Surroundings {
        topology: &topology,
        node_id: &node_id,
        mode,
        attach,
        run_dir: run_dir.join(&driver_name),
    };
    let encryption = encryption::validate(settings.encryption, &settings.pools, mode)?;
    let config = Config {
        mode,
        is_router,
        peers,
        pools: pools::validate(settings.pools, &surroundings)?,
        driver_name,
        node_id,
        topology,
        attach,
        introspection: settings.introspection.unwrap_or(true),
        max_volumes: settings.max_volumes_per_node.unwrap_or(DEFAULT_MAX_VOLUMES),
        default_capacity: default_capacity(settings.default_size.as_deref())?,
        default_fs,
        filesystems,
        run_dir,
        workload_cgroup: settings.workload_cgroup.unwrap_or_else(|| "/".to_owned()),
        freeze_limit: freeze_limit(settings.freeze_limit_seconds)?,
        encryption,
        keep_capabilities: settings.keep_capabilities.unwrap_or(false),
        metrics_volumes: settings.metrics_volumes.unwrap_or(false),
        log,
        otlp_endpoint: otlp_endpoint(settings.otlp_endpoint)?,
        origin: Origin::default(),
    };
    check_apart(&config)?;
    Ok(config)
}

/// And whether it is a router: a controller without a pool.
pub(super) fn mode(given: Option<&str>) -> Result<(Mode, bool), ConfigError> {
    match given {
        None | Some("all") => Ok((Mode::All, false)),
        Some("controller") => Ok((Mode::Controller, false)),
        Some("node") => Ok((Mode::Node, false)),
        Some("router") => Ok((Mode::Controller, true)),
        Some(other) => {
            let problem = format!("{other:?} is not all, controller, node or router");
            Err(ConfigError::new("ORLOP_MODE", problem))
        }
    }
}

/// On top of `info`: more or less of one part of the daemon is no reason to hear nothing of the rest.
/// A word that is no level would be taken for such a part.
fn log_filter(given: Option<&str>) -> Result<String, ConfigError> {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    let given = given.unwrap_or_default().trim();
    let is_level = |text: &str| LEVELS.contains(&text.trim().to_ascii_lowercase().as_str());
    let wrong = given.split(',').find(|part| !part.contains('=') && !is_level(part));
    match wrong {
        _ if given.is_empty() || given == DEFAULT_LEVEL => Ok(DEFAULT_LEVEL.to_owned()),
        Some(part) => Err(ConfigError::new(
            "ORLOP_LOG",
            format!(
                "{part:?} is not error, warn, info, debug, trace or off; a filter of one part is \
                 written as in info,orlop_engine=debug"
            ),
        )),
        None => Ok(format!("{DEFAULT_LEVEL},{given}")),
    }
}

/// A setting that is never read is a mistake, so a build without the export refuses it.
fn otlp_endpoint(given: Option<String>) -> Result<Option<String>, ConfigError> {
    let Some(text) = given.filter(|text| !text.is_empty()) else { return Ok(None) };
    let wrong = |problem: &str| Err(ConfigError::new("ORLOP_OTLP_ENDPOINT", problem));
    if !cfg!(feature = "otel") {
        return wrong(
            "is set, but this build does not export spans; build it with --features otel, or take it out",
        );
    }
    let address = text.strip_prefix("http://").unwrap_or_default();
    let parts = address.rsplit_once(':');
    let is_good = parts.is_some_and(|(host, port)| {
        !host.is_empty()
            && !host.contains(['/', '@', ' '])
            && port.parse::<u16>().is_ok_and(|it| it > 0)
    });
    if !is_good {
        return wrong(
            "is not of the form http://HOST:PORT; name a collector for OTLP over gRPC, such as an agent on \
             this node: http://127.0.0.1:4317",
        );
    }
    Ok(Some(text))
}

fn check_run_dir(path: &Path) -> Result<(), ConfigError> {
    let wrong = |problem| Err(ConfigError::new("ORLOP_RUN_DIR", problem));
    if !path.is_absolute() {
        return wrong("is not the absolute path of a directory");
    }
    if path.parent().is_none() {
        return wrong("is the root directory; choose another one, such as /run/orlop");
    }
    Ok(())
}

/// A new pool is made only where nothing else is, and what is in the run directory is swept.
fn check_apart(config: &Config) -> Result<(), ConfigError> {
    let own = config.run_dir.join(&config.driver_name);
    for directory in config.pools.iter().filter_map(pools::PoolConfig::directory) {
        if config.run_dir.starts_with(&directory) || directory.starts_with(&own) {
            return Err(ConfigError::new(
                "ORLOP_RUN_DIR",
                format!(
                    "{} overlaps with the pool at {}; give each a separate directory",
                    config.run_dir.display(),
                    directory.display()
                ),
            ));
        }
    }
    Ok(())
}

fn filesystem(setting: &str, name: &str) -> Result<FsType, ConfigError> {
    name.parse()
        .map_err(|_| ConfigError::new(setting, format!("{name:?} is not one of xfs, ext4, btrfs")))
}

fn filesystems(names: &[String]) -> Result<Vec<FsType>, ConfigError> {
    names.iter().map(|name| filesystem("ORLOP_FILESYSTEMS", name)).collect()
}

fn default_capacity(given: Option<&str>) -> Result<u64, ConfigError> {
    let Some(text) = given else {
        return Ok(DEFAULT_SIZE);
    };
    bytes("ORLOP_DEFAULT_SIZE", text)
}

fn freeze_limit(given: Option<u32>) -> Result<Duration, ConfigError> {
    match given.unwrap_or(DEFAULT_FREEZE_LIMIT_SECONDS) {
        0 => Err(ConfigError::new(
            "ORLOP_FREEZE_LIMIT_SECONDS",
            "is 0, so no snapshot could be taken; give at least 1",
        )),
        seconds => Ok(Duration::from_secs(u64::from(seconds))),
    }
}

pub(super) fn bytes(setting: &str, text: &str) -> Result<u64, ConfigError> {
    let parsed = parse_size(text).filter(|bytes| *bytes >= ALLOCATION_UNIT);
    parsed.ok_or_else(|| {
        let problem = format!(
            "{text:?} is not a size of at least 1MiB, such as 10GiB: a whole number with a unit \
             such as MiB, Gi or T"
        );
        ConfigError::new(setting, problem)
    })
}
