//! Pools of kind `lvm`: a volume group, and a thin pool in it.

use std::ops::RangeInclusive;

use orlop_model::{Error, LvmLayout, Provisioning, VolumeParameters, parse_size};
use orlop_pools::Floor;
use orlop_pools::lvm::{Extension, LvmPoolConfig, NewThinPool, ThinPoolSize};

use super::file::PoolSettings;
use super::pools::{Surroundings, floor, overcommit, refuse, refuse_rbd};
use super::validate::bytes;
use super::{Config, ConfigError, PoolConfig};

const DEFAULT_THIN_POOL: &str = "orlop";
/// Of the present size.
const DEFAULT_STEP: ThinPoolSize = ThinPoolSize::Percent(20);
/// In percent. Later, a burst of writes would be faster than LVM.
const EXTENDED_AT: RangeInclusive<u32> = 50..=95;
/// As LVM has them.
const SMALLEST_CHUNK: u64 = 64 << 10;
const LARGEST_CHUNK: u64 = 1 << 30;
const SMALLEST_METADATA: u64 = 2 << 20;
const LARGEST_METADATA: u64 = 16 << 30;
/// Of LVM's names.
const LONGEST_NAME: usize = 127;
/// In the names of LVM's own volumes.
const RESERVED: [&str; 6] = ["_tdata", "_tmeta", "_pmspare", "_mimage", "_rimage", "_rmeta"];

/// Settings that pools of other kinds do not have.
pub(super) fn refuse_lvm(settings: &PoolSettings) -> Result<(), ConfigError> {
    refuse(
        "is for pools of kind lvm",
        &[
            ("ORLOP_LVM_GROUP", settings.group.is_some()),
            ("ORLOP_LVM_THIN_POOL", settings.thin_pool.is_some()),
            ("ORLOP_LVM_SIZE", settings.size.is_some()),
            ("ORLOP_LVM_CHUNK_SIZE", settings.chunk_size.is_some()),
            ("ORLOP_LVM_METADATA_SIZE", settings.metadata_size.is_some()),
            ("ORLOP_LVM_RAID", settings.raid.is_some()),
            ("ORLOP_LVM_MIRRORS", settings.mirrors.is_some()),
            ("ORLOP_LVM_STRIPES", settings.stripes.is_some()),
            ("ORLOP_LVM_STRIPE_SIZE", settings.stripe_size.is_some()),
            ("ORLOP_LVM_EXTEND_AT", settings.extend_at.is_some()),
            ("ORLOP_LVM_EXTEND_BY", settings.extend_by.is_some()),
            ("ORLOP_LVM_EXTEND_LIMIT", settings.extend_limit.is_some()),
        ],
    )
}

pub(super) fn lvm(
    mut settings: PoolSettings,
    name: String,
    around: &Surroundings<'_>,
) -> Result<LvmPoolConfig, ConfigError> {
    refuse_rbd(&settings)?;
    refuse(
        "is for pools of kind image; a pool of kind lvm has ORLOP_LVM_GROUP and ORLOP_LVM_SIZE",
        &[
            ("ORLOP_POOL", settings.path.is_some()),
            ("ORLOP_POOL_IMAGE_SIZE", settings.image_size.is_some()),
        ],
    )?;
    let group = settings.group.take().ok_or_else(|| {
        let problem = "is not set; name the volume group, as `vgs` shows it";
        ConfigError::new("ORLOP_LVM_GROUP", problem)
    })?;
    let thin_pool = settings.thin_pool.take();
    let thin_pool = thin_pool.unwrap_or_else(|| DEFAULT_THIN_POOL.to_owned());
    let extension = extension([
        settings.extend_at.as_deref(),
        settings.extend_by.as_deref(),
        settings.extend_limit.as_deref(),
    ])?;
    let new_thin_pool = NewThinPool {
        layout: layout(&settings)?,
        size: size_or_share("ORLOP_LVM_SIZE", settings.size.as_deref(), ThinPoolSize::default())?,
        chunk_size: chunk_size(settings.chunk_size.as_deref())?,
        metadata_size: metadata_size(settings.metadata_size.as_deref())?,
    };
    Ok(LvmPoolConfig {
        name,
        group: lvm_name("ORLOP_LVM_GROUP", group)?,
        thin_pool: thin_pool_name("ORLOP_LVM_THIN_POOL", thin_pool)?,
        topology: around.topology.clone(),
        floor: floor(settings.floor.as_deref())?,
        overcommit_percent: overcommit(settings.overcommit)?,
        create: settings.create.unwrap_or(true),
        new_thin_pool,
        extension,
        // The daemon that serves it starts one.
        thaw_helper: None,
        suspend_limit: LvmPoolConfig::SUSPEND_LIMIT,
        lvm_settings: String::new(),
    })
}

/// That of the configuration at `GROUP/THIN-POOL` or, where it has none there, one with its defaults.
pub(crate) fn thin_pool_at(place: &str, config: &Config) -> Result<LvmPoolConfig, ConfigError> {
    let (group, thin_pool) = place.split_once('/').unwrap_or((place, DEFAULT_THIN_POOL));
    let is_it = |pool: &&LvmPoolConfig| pool.group == group && pool.thin_pool == thin_pool;
    if let Some(configured) = config.pools.iter().filter_map(PoolConfig::as_lvm).find(is_it) {
        return Ok(configured.clone());
    }
    Ok(LvmPoolConfig {
        name: "default".to_owned(),
        group: lvm_name("the volume group", group.to_owned())?,
        thin_pool: thin_pool_name("the thin pool", thin_pool.to_owned())?,
        topology: config.topology.clone(),
        floor: Floor::Percent(0),
        overcommit_percent: 100,
        create: false,
        new_thin_pool: NewThinPool::default(),
        extension: None,
        thaw_helper: None,
        suspend_limit: LvmPoolConfig::SUSPEND_LIMIT,
        lvm_settings: String::new(),
    })
}

/// What LVM takes for a name and no command line takes for anything else.
fn lvm_name(setting: &str, name: String) -> Result<String, ConfigError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"+_.-".contains(&b);
    let is_name = !name.is_empty()
        && name.len() <= LONGEST_NAME
        && !name.starts_with('-')
        && !matches!(name.as_str(), "." | "..")
        && name.bytes().all(plain);
    match is_name {
        true => Ok(name),
        false => Err(ConfigError::new(
            setting,
            format!("{name:?} is not a name of LVM's: letters, digits, '+', '_', '.', '-'"),
        )),
    }
}

fn thin_pool_name(setting: &str, name: String) -> Result<String, ConfigError> {
    let name = lvm_name(setting, name)?;
    let is_reserved = RESERVED.iter().any(|part| name.contains(part))
        || ["snapshot", "pvmove"].iter().any(|start| name.starts_with(start));
    match is_reserved {
        false => Ok(name),
        true => {
            let problem =
                format!("{name:?} is a name that LVM keeps for itself; choose another one");
            Err(ConfigError::new(setting, problem))
        }
    }
}

/// `80%` or `200GiB`; the share is at least 1% and at most all.
fn size_or_share(
    setting: &str,
    given: Option<&str>,
    default: ThinPoolSize,
) -> Result<ThinPoolSize, ConfigError> {
    let Some(text) = given else { return Ok(default) };
    let parsed = match text.strip_suffix('%') {
        Some(share) => {
            share.trim().parse().ok().filter(|it| (1..=100).contains(it)).map(ThinPoolSize::Percent)
        }
        None => parse_size(text)
            .filter(|bytes| *bytes > 0 && !text.ends_with(|c: char| c.is_ascii_digit()))
            .map(ThinPoolSize::Bytes),
    };
    parsed.ok_or_else(|| {
        let problem =
            format!("{text:?} is neither a percentage such as 80% nor a size such as 200GiB");
        ConfigError::new(setting, problem)
    })
}

fn chunk_size(given: Option<&str>) -> Result<Option<u64>, ConfigError> {
    let is_chunk = |bytes: &u64| {
        (SMALLEST_CHUNK..=LARGEST_CHUNK).contains(bytes) && bytes.is_multiple_of(SMALLEST_CHUNK)
    };
    given
        .map(|text| {
            parse_size(text).filter(is_chunk).ok_or_else(|| {
                let problem =
                    format!("{text:?} is not a multiple of 64KiB of at most 1GiB, such as 256KiB");
                ConfigError::new("ORLOP_LVM_CHUNK_SIZE", problem)
            })
        })
        .transpose()
}

fn metadata_size(given: Option<&str>) -> Result<Option<u64>, ConfigError> {
    let fits = |bytes: &u64| (SMALLEST_METADATA..=LARGEST_METADATA).contains(bytes);
    given
        .map(|text| {
            parse_size(text).filter(fits).ok_or_else(|| {
                let problem =
                    format!("{text:?} is not a size between 2MiB and 16GiB, such as 1GiB");
                ConfigError::new("ORLOP_LVM_METADATA_SIZE", problem)
            })
        })
        .transpose()
}

/// At which use it is extended, by how much, and up to which size.
fn extension([at, by, limit]: [Option<&str>; 3]) -> Result<Option<Extension>, ConfigError> {
    const AT: &str = "ORLOP_LVM_EXTEND_AT";
    const BY: &str = "ORLOP_LVM_EXTEND_BY";
    const LIMIT: &str = "ORLOP_LVM_EXTEND_LIMIT";
    let Some(text) = at else {
        let without = format!("is for a thin pool that is extended; set {AT} as well, such as 80%");
        return refuse(&without, &[(BY, by.is_some()), (LIMIT, limit.is_some())]).map(|()| None);
    };
    let at_percent = text.strip_suffix('%').and_then(|share| share.trim().parse().ok());
    let at_percent =
        at_percent.filter(|percent| EXTENDED_AT.contains(percent)).ok_or_else(|| {
            let problem = format!(
                "{text:?} is not a percentage between {}% and {}%, such as 80%",
                EXTENDED_AT.start(),
                EXTENDED_AT.end()
            );
            ConfigError::new(AT, problem)
        })?;
    Ok(Some(Extension {
        at_percent,
        by: size_or_share(BY, by, DEFAULT_STEP)?,
        limit: limit.map(|limit| bytes(LIMIT, limit)).transpose()?,
    }))
}

/// With the words and the checks of the parameters of thick volumes.
fn layout(settings: &PoolSettings) -> Result<LvmLayout, ConfigError> {
    let given = [
        ("ORLOP_LVM_RAID", "raid", settings.raid.clone()),
        ("ORLOP_LVM_MIRRORS", "mirrors", settings.mirrors.map(|it| it.to_string())),
        ("ORLOP_LVM_STRIPES", "stripes", settings.stripes.map(|it| it.to_string())),
        ("ORLOP_LVM_STRIPE_SIZE", "stripeSize", settings.stripe_size.clone()),
    ];
    let first = given.iter().find(|(_, _, value)| value.is_some()).map(|(setting, _, _)| *setting);
    let Some(first) = first else { return Ok(LvmLayout::default()) };
    let given =
        given.iter().filter_map(|(_, key, value)| Some(((*key).to_owned(), value.clone()?)));
    let thick = ("provisioning".to_owned(), Provisioning::Thick.as_str().to_owned());
    match VolumeParameters::parse(&given.chain([thick]).collect()) {
        Ok((parameters, _)) => Ok(parameters.lvm),
        Err(Error::Invalid { reason, .. }) => Err(ConfigError::new(first, reason.to_string())),
        Err(error) => Err(ConfigError::new(first, error.to_string())),
    }
}

#[cfg(test)]
mod tests;
