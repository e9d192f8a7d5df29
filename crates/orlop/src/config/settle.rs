//! From what was written to what holds: defaults, and checks that settings fit together.

use std::path::PathBuf;
use std::time::Duration;

use orlop_csi::Mode;
use orlop_model::{ALLOCATION_UNIT, FsType, Topology};
use orlop_pools::image::{Floor, ImagePoolConfig};

use super::file::{PoolSettings, Settings};
use super::{Config, ConfigError, LogConfig, endpoint, names, size};

const DEFAULT_RUN_DIR: &str = "/run/orlop";
const DEFAULT_SIZE: u64 = 1 << 30;
/// Loop devices stay as quick with this many as with one.
const DEFAULT_MAX_VOLUMES: u32 = 1000;
const DEFAULT_FLOOR: Floor = Floor::Percent(5);
const DEFAULT_FREEZE_LIMIT_SECONDS: u32 = 60;

pub(super) fn settle(settings: Settings, flag: Option<&str>) -> Result<Config, ConfigError> {
    let socket = endpoint::required(flag.or(settings.endpoint.as_deref()))?;
    let addons_socket = endpoint::addons(settings.addons_endpoint.as_deref(), &socket)?;
    let driver_name = names::driver_name(settings.driver_name)?;
    let node_id = names::node_id(settings.node_id)?;
    let place = names::place(&driver_name, &node_id, settings.topology)?;
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
    Ok(Config {
        socket,
        addons_socket,
        mode: mode(settings.mode.as_deref())?,
        pools: pools(settings.pools, &place)?,
        driver_name,
        node_id,
        place,
        attach: settings.attach.unwrap_or(true),
        max_volumes: settings.max_volumes_per_node.unwrap_or(DEFAULT_MAX_VOLUMES),
        default_capacity: default_capacity(settings.default_size.as_deref())?,
        default_fs,
        filesystems,
        run_dir: settings.run_dir.unwrap_or_else(|| PathBuf::from(DEFAULT_RUN_DIR)),
        workload_cgroup: settings.workload_cgroup.unwrap_or_else(|| "/".to_owned()),
        freeze_limit: freeze_limit(settings.freeze_limit_seconds)?,
        log: LogConfig {
            level: settings.log.level.unwrap_or_else(|| "info".to_owned()),
            format: settings.log.format.unwrap_or_default(),
        },
    })
}

fn mode(given: Option<&str>) -> Result<Mode, ConfigError> {
    match given {
        None | Some("all") => Ok(Mode::All),
        Some("controller") => Ok(Mode::Controller),
        Some("node") => Ok(Mode::Node),
        Some(other) => {
            Err(ConfigError::new("ORLOP_MODE", format!("{other:?} is not all, controller or node")))
        }
    }
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
        0 => Err(ConfigError::new("ORLOP_FREEZE_LIMIT_SECONDS", "is 0; nothing could be copied")),
        seconds => Ok(Duration::from_secs(u64::from(seconds))),
    }
}

fn bytes(setting: &str, text: &str) -> Result<u64, ConfigError> {
    let parsed = size::parse(text).filter(|bytes| *bytes >= ALLOCATION_UNIT);
    parsed.ok_or_else(|| {
        ConfigError::new(setting, format!("{text:?} is not a size of at least 1MiB, such as 10GiB"))
    })
}

fn pools(given: Vec<PoolSettings>, place: &Topology) -> Result<Vec<ImagePoolConfig>, ConfigError> {
    if given.is_empty() {
        return Err(ConfigError::new(
            "ORLOP_POOL",
            "is not set; name the directory that is to hold the volumes",
        ));
    }
    let mut pools: Vec<ImagePoolConfig> = Vec::new();
    for settings in given {
        let config = pool(settings, place)?;
        if pools.iter().any(|other| other.name == config.name) {
            return Err(ConfigError::new(
                "pool.name",
                format!("two pools are named {:?}; give each a name of its own", config.name),
            ));
        }
        pools.push(config);
    }
    Ok(pools)
}

fn pool(settings: PoolSettings, place: &Topology) -> Result<ImagePoolConfig, ConfigError> {
    let path = settings.path.filter(|path| path.is_absolute()).ok_or_else(|| {
        ConfigError::new("ORLOP_POOL", "a pool needs the absolute path of a directory")
    })?;
    let name = settings.name.unwrap_or_else(|| "default".to_owned());
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if name.is_empty() || name.len() > 63 || name.starts_with('-') || !name.bytes().all(plain) {
        return Err(ConfigError::new(
            "ORLOP_POOL_NAME",
            format!("{name:?} is not a name of at most 63 letters, digits, '-', '_', '.'"),
        ));
    }
    Ok(ImagePoolConfig {
        path,
        name,
        place: place.clone(),
        floor: floor(settings.floor.as_deref())?,
        overcommit_percent: overcommit(settings.overcommit)?,
        managed_size: settings
            .image_size
            .map(|text| bytes("ORLOP_POOL_IMAGE_SIZE", &text))
            .transpose()?,
        create: settings.create.unwrap_or(true),
    })
}

fn floor(given: Option<&str>) -> Result<Floor, ConfigError> {
    let Some(text) = given else {
        return Ok(DEFAULT_FLOOR);
    };
    let parsed = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse().ok().filter(|p| *p < 100).map(Floor::Percent),
        None => size::parse(text).map(Floor::Bytes),
    };
    parsed.ok_or_else(|| {
        ConfigError::new("ORLOP_POOL_FLOOR", format!("{text:?} is neither a percentage nor a size"))
    })
}

/// Kept as whole percent, so that capacity is exact arithmetic.
fn overcommit(given: Option<f64>) -> Result<u32, ConfigError> {
    let factor = given.unwrap_or(1.0);
    if !(1.0..=1000.0).contains(&factor) {
        return Err(ConfigError::new(
            "ORLOP_POOL_OVERCOMMIT",
            format!("{factor} is not a factor between 1 (none) and 1000"),
        ));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 100 and 100000, checked above"
    )]
    let percent = (factor * 100.0).round() as u32;
    Ok(percent)
}
