//! The pools: which kind each is, and whether all that is said fits that kind.

use std::path::PathBuf;
use std::time::Duration;

use orlop_csi::Mode;
use orlop_model::{FsType, NodeId, Topology, parse_size};
use orlop_pools::image::{Floor, ImagePoolConfig};
use orlop_pools::lvm::LvmPoolConfig;
use orlop_pools::rbd::RbdPoolConfig;

use super::ConfigError;
use super::file::PoolSettings;
use super::lvm::{lvm, refuse_lvm};
use super::validate::bytes;

const DEFAULT_NAME: &str = "default";
const DEFAULT_FLOOR: Floor = Floor::Percent(5);
const DEFAULT_CEPH_POOL: &str = "rbd";
const DEFAULT_CEPH_USER: &str = "orlop";
const LONGEST_TIMEOUT_SECONDS: u32 = 60;

#[derive(Debug, Clone)]
pub(crate) enum PoolConfig {
    Image(ImagePoolConfig),
    Lvm(LvmPoolConfig),
    Rbd(RbdPoolConfig),
}

impl PoolConfig {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Image(config) => &config.name,
            Self::Lvm(config) => &config.name,
            Self::Rbd(config) => &config.name,
        }
    }

    /// As in the settings.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Image(_) => "image",
            Self::Lvm(_) => "lvm",
            Self::Rbd(_) => "rbd",
        }
    }

    /// Where on this machine it is, if it is.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        match self {
            Self::Image(config) => Some(config.path.clone()),
            Self::Lvm(_) | Self::Rbd(_) => None,
        }
    }

    /// The same in words, wherever it is.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Image(config) => config.path.display().to_string(),
            Self::Lvm(config) => format!("{}/{}", config.group, config.thin_pool),
            Self::Rbd(config) => config.pool.clone(),
        }
    }

    /// Are its volumes on disks of this machine, which its daemon alone uses?
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Image(_) | Self::Lvm(_) => true,
            Self::Rbd(_) => false,
        }
    }

    pub(crate) fn as_lvm(&self) -> Option<&LvmPoolConfig> {
        match self {
            Self::Lvm(config) => Some(config),
            Self::Image(_) | Self::Rbd(_) => None,
        }
    }
}

/// What else was settled that pools depend on.
pub(super) struct Surroundings<'a> {
    pub(super) topology: &'a Topology,
    pub(super) node_id: &'a NodeId,
    pub(super) mode: Mode,
    pub(super) attach: bool,
    pub(super) run_dir: PathBuf,
}

pub(super) fn require_one(given: &[PoolSettings]) -> Result<(), ConfigError> {
    if given.is_empty() { Err(none_is_given()) } else { Ok(()) }
}

pub(super) fn none_is_given() -> ConfigError {
    let problem = "is not set; name the directory that is to hold the volumes";
    ConfigError::new("ORLOP_POOL", problem)
}

pub(super) fn validate(
    given: Vec<PoolSettings>,
    around: &Surroundings<'_>,
) -> Result<Vec<PoolConfig>, ConfigError> {
    let mut pools: Vec<PoolConfig> = Vec::new();
    for settings in given {
        let name = settings.name.clone().unwrap_or_else(|| DEFAULT_NAME.to_owned());
        let config = pool(settings, around).map_err(|error| error.of_pool(&name))?;
        if pools.iter().any(|other| other.name() == config.name()) {
            return Err(ConfigError::new(
                "pool.name",
                format!("two pools are named {:?}; give each a different name", config.name()),
            ));
        }
        if let Some(directory) = config.directory()
            && pools.iter().any(|other| other.directory().as_ref() == Some(&directory))
        {
            return Err(ConfigError::new(
                "pool.path",
                format!(
                    "two pools are at {}; give each a different directory",
                    directory.display()
                ),
            ));
        }
        check_thin_pool_is_free(&config, &pools)?;
        pools.push(config);
    }
    Ok(pools)
}

fn check_thin_pool_is_free(config: &PoolConfig, others: &[PoolConfig]) -> Result<(), ConfigError> {
    let place = |lvm: &LvmPoolConfig| (lvm.group.clone(), lvm.thin_pool.clone());
    let Some((group, thin_pool)) = config.as_lvm().map(place) else { return Ok(()) };
    let is_same = |other: &&PoolConfig| {
        other.as_lvm().map(place).is_some_and(|other| other == (group.clone(), thin_pool.clone()))
    };
    match others.iter().find(is_same) {
        None => Ok(()),
        Some(other) => {
            let problem = format!(
                "pool {:?} has the thin pool {group}/{thin_pool} too; give each pool a separate one",
                other.name()
            );
            Err(ConfigError::new("ORLOP_LVM_THIN_POOL", problem).of_pool(config.name()))
        }
    }
}

fn pool(mut settings: PoolSettings, around: &Surroundings<'_>) -> Result<PoolConfig, ConfigError> {
    let name = name(settings.name.take())?;
    match settings.kind.as_deref() {
        None | Some("image") => image(settings, name, around).map(PoolConfig::Image),
        Some("lvm") => lvm(settings, name, around).map(PoolConfig::Lvm),
        Some("rbd") => rbd(settings, name, around).map(PoolConfig::Rbd),
        Some(other) => {
            Err(ConfigError::new("ORLOP_POOL_KIND", format!("{other:?} is not image, lvm or rbd")))
        }
    }
}

/// What it is called, whether or not that is a name.
pub(super) fn name_of(settings: &PoolSettings) -> &str {
    settings.name.as_deref().unwrap_or(DEFAULT_NAME)
}

fn name(given: Option<String>) -> Result<String, ConfigError> {
    let name = given.unwrap_or_else(|| DEFAULT_NAME.to_owned());
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if name.is_empty() || name.len() > 63 || name.starts_with('-') || !name.bytes().all(plain) {
        return Err(ConfigError::new(
            "ORLOP_POOL_NAME",
            format!("{name:?} is not a name of at most 63 letters, digits, '-', '_', '.'"),
        ));
    }
    Ok(name)
}

fn image(
    settings: PoolSettings,
    name: String,
    around: &Surroundings<'_>,
) -> Result<ImagePoolConfig, ConfigError> {
    refuse_rbd(&settings)?;
    refuse_lvm(&settings)?;
    let path = settings.path.filter(|path| path.is_absolute()).ok_or_else(|| {
        ConfigError::new(
            "ORLOP_POOL",
            "is not the absolute path of a directory, which a pool needs",
        )
    })?;
    Ok(ImagePoolConfig {
        path,
        name,
        topology: around.topology.clone(),
        floor: floor(settings.floor.as_deref())?,
        overcommit_percent: overcommit(settings.overcommit)?,
        managed_size: settings.image_size.as_deref().map(image_size).transpose()?,
        create: settings.create.unwrap_or(true),
        // Filled in by `remember_served_pools`.
        served_before: Vec::new(),
        // The daemon that serves it starts one.
        thaw_helper: None,
    })
}

/// Settings that pools of other kinds do not have.
pub(super) fn refuse_rbd(settings: &PoolSettings) -> Result<(), ConfigError> {
    refuse(
        "is for pools of kind rbd",
        &[
            ("ORLOP_RBD_MONITORS", settings.monitors.is_some()),
            ("ORLOP_RBD_POOL", settings.pool.is_some()),
            ("ORLOP_RBD_NAMESPACE", settings.namespace.is_some()),
            ("ORLOP_RBD_USER", settings.user.is_some()),
            ("ORLOP_RBD_KEYRING", settings.keyring.is_some()),
            ("ORLOP_RBD_TIMEOUT_SECONDS", settings.timeout_seconds.is_some()),
        ],
    )
}

fn image_size(text: &str) -> Result<u64, ConfigError> {
    const SETTING: &str = "ORLOP_POOL_IMAGE_SIZE";
    let smallest = FsType::Xfs.smallest_volume();
    match bytes(SETTING, text)? {
        size if size < smallest => {
            let problem =
                format!("{text:?} is too small for XFS, which needs {} MiB", smallest >> 20);
            Err(ConfigError::new(SETTING, problem))
        }
        size => Ok(size),
    }
}

fn rbd(
    settings: PoolSettings,
    name: String,
    around: &Surroundings<'_>,
) -> Result<RbdPoolConfig, ConfigError> {
    refuse_lvm(&settings)?;
    refuse(
        "is not for pools of kind rbd: the cluster manages its own space",
        &[
            ("ORLOP_POOL", settings.path.is_some()),
            ("ORLOP_POOL_FLOOR", settings.floor.is_some()),
            ("ORLOP_POOL_OVERCOMMIT", settings.overcommit.is_some()),
            ("ORLOP_POOL_IMAGE_SIZE", settings.image_size.is_some()),
        ],
    )?;
    if !around.attach {
        return Err(ConfigError::new(
            "ORLOP_ATTACH",
            "is false, but a pool of kind rbd needs it: which node has a volume, and which is \
             fenced from it, is decided by attaching",
        ));
    }
    let user = ceph_name("ORLOP_RBD_USER", settings.user.as_deref().unwrap_or(DEFAULT_CEPH_USER))?;
    let keyring = settings
        .keyring
        .unwrap_or_else(|| PathBuf::from(format!("/etc/ceph/ceph.client.{user}.keyring")));
    if !keyring.is_absolute() || !keyring.to_str().is_some_and(is_one_value) {
        return Err(ConfigError::new(
            "ORLOP_RBD_KEYRING",
            "is not the absolute path of a keyring, without spaces, ';' or '#'",
        ));
    }
    Ok(RbdPoolConfig {
        name,
        monitors: monitors(settings.monitors)?,
        pool: ceph_name("ORLOP_RBD_POOL", settings.pool.as_deref().unwrap_or(DEFAULT_CEPH_POOL))?,
        namespace: match settings.namespace.as_deref() {
            None | Some("") => String::new(),
            Some(namespace) => ceph_name("ORLOP_RBD_NAMESPACE", namespace)?,
        },
        user,
        keyring,
        timeout: timeout(settings.timeout_seconds)?,
        create: settings.create.unwrap_or(true),
        collects_garbage: around.mode.serves_controller(),
        node_id: around.node_id.clone(),
        serves_node: around.mode.serves_node(),
        takes_unrestorable_groups: false,
        run_dir: around.run_dir.clone(),
    })
}

pub(super) fn refuse(problem: &str, given: &[(&str, bool)]) -> Result<(), ConfigError> {
    match given.iter().find(|(_, given)| *given) {
        Some((setting, _)) => Err(ConfigError::new(*setting, problem)),
        None => Ok(()),
    }
}

/// The longest is a minute: an orchestrator gives up before that, and tries again.
fn timeout(given: Option<u32>) -> Result<Duration, ConfigError> {
    match given.unwrap_or(LONGEST_TIMEOUT_SECONDS) {
        seconds @ 1..=LONGEST_TIMEOUT_SECONDS => Ok(Duration::from_secs(u64::from(seconds))),
        other => Err(ConfigError::new(
            "ORLOP_RBD_TIMEOUT_SECONDS",
            format!("{other} is not between 1 and {LONGEST_TIMEOUT_SECONDS}"),
        )),
    }
}

/// As `mon_host` in a ceph.conf.
fn monitors(given: Option<String>) -> Result<String, ConfigError> {
    let wrong = |problem: &str| Err(ConfigError::new("ORLOP_RBD_MONITORS", problem));
    match given {
        None => wrong("is not set; give the monitors as mon_host in ceph.conf has them"),
        Some(text) if text.is_empty() || !is_one_value(&text) => {
            wrong("is not a list of addresses, separated by commas and without spaces")
        }
        Some(text) => Ok(text),
    }
}

/// What Ceph takes for a name and no command line or specification takes for more than one.
fn ceph_name(setting: &str, text: &str) -> Result<String, ConfigError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if !text.is_empty() && !text.starts_with('-') && text.bytes().all(plain) {
        return Ok(text.to_owned());
    }
    Err(ConfigError::new(
        setting,
        format!("{text:?} is not a name of letters, digits, '-', '_', '.'"),
    ))
}

/// In a ceph.conf the rest would be a comment or another setting.
fn is_one_value(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_graphic() && !b"#;".contains(&b))
}

pub(super) fn floor(given: Option<&str>) -> Result<Floor, ConfigError> {
    let Some(text) = given else {
        return Ok(DEFAULT_FLOOR);
    };
    let wrong = |problem: String| Err(ConfigError::new("ORLOP_POOL_FLOOR", problem));
    let parsed = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse().ok().filter(|p| *p < 100).map(Floor::Percent),
        None => parse_size(text).map(Floor::Bytes),
    };
    match parsed {
        // Some bytes are no floor; most likely it was to be a percentage.
        Some(Floor::Bytes(1..)) if text.ends_with(|c: char| c.is_ascii_digit()) => {
            wrong(format!("{text:?} has no unit; write {text}% or, for a size, {text}GiB"))
        }
        Some(floor) => Ok(floor),
        None => wrong(format!("{text:?} is neither a percentage below 100% nor a size")),
    }
}

/// Kept as whole percent, so that capacity is exact arithmetic.
pub(super) fn overcommit(given: Option<f64>) -> Result<u32, ConfigError> {
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
