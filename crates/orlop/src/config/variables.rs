//! ORLOP_* variables.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use super::ConfigError;
use super::file::{LogFormat, PoolSettings, Settings};
use super::origin::KEYS;

/// As far as a u32 goes.
const WHOLE_NUMBER: &str = "a whole number from 0 to 4294967295";

/// The variables that begin with ORLOP_; others belong to other programs.
pub(super) fn own(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<(String, String)>, ConfigError> {
    let is_own = |name: &OsString| name.as_encoded_bytes().starts_with(b"ORLOP_");
    let mut own = Vec::new();
    for (name, value) in variables.filter(|(name, _)| is_own(name)) {
        let name = name.into_string().map_err(|name| unknown(&name.to_string_lossy()))?;
        if let Some(value) = text(&name, Some(value))? {
            own.push((name, value));
        }
    }
    Ok(own)
}

/// Does it say something about the daemon, other than where its file is?
pub(super) fn is_setting(name: &str) -> bool {
    name.strip_prefix("ORLOP_").is_some_and(|key| key != "CONFIG" && !is_injected(key))
}

/// The value of a variable.
pub(super) fn text(name: &str, value: Option<OsString>) -> Result<Option<String>, ConfigError> {
    let text = value.map(OsString::into_string).transpose();
    text.map_err(|value| {
        let problem = format!("{:?} is not UTF-8, and only UTF-8 is accepted", value.display());
        ConfigError::new(name, problem)
    })
}

/// Sets what the variables say. `ORLOP_POOL*`, `ORLOP_LVM_*` and `ORLOP_RBD_*` describe one pool, for which
/// the file then has none.
pub(super) fn apply(
    settings: &mut Settings,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<(), ConfigError> {
    let mut pool = PoolSettings::default();
    let mut describes_pool = None;
    for (name, value) in variables {
        let Some(key) = name.strip_prefix("ORLOP_") else {
            continue;
        };
        if is_injected(key) {
            continue;
        }
        if let Some(rest) = key.strip_prefix("POOL") {
            set_pool(&mut pool, &name, rest, value)?;
            describes_pool = Some(name);
        } else if let Some(rest) = key.strip_prefix("RBD_") {
            set_rbd(&mut pool, &name, rest, value)?;
            describes_pool = Some(name);
        } else if let Some(rest) = key.strip_prefix("LVM_") {
            set_lvm(&mut pool, &name, rest, value)?;
            describes_pool = Some(name);
        } else {
            set(settings, &name, key, value)?;
        }
    }
    let Some(name) = describes_pool else {
        return Ok(());
    };
    if !settings.pools.is_empty() {
        return Err(ConfigError::new(
            name,
            "describes a pool, and so does the configuration file; use one or the other",
        ));
    }
    settings.pools.push(pool);
    Ok(())
}

fn set(settings: &mut Settings, name: &str, key: &str, value: String) -> Result<(), ConfigError> {
    match key {
        "ADDONS_ENDPOINT" => settings.addons_endpoint = Some(value),
        "REGISTER" => settings.register = Some(value),
        "KUBELET_ENDPOINT" => settings.kubelet_endpoint = Some(value),
        "HEALTH_LISTEN" => settings.health_listen = Some(value),
        "METRICS_LISTEN" => settings.metrics_listen = Some(value),
        "METRICS_VOLUMES" => {
            settings.metrics_volumes = Some(parse(name, &value, "true or false")?);
        }
        "PAGE_LISTEN" => settings.page_listen = Some(value),
        "PAGE_TOKEN_FILE" => settings.page_token_file = Some(PathBuf::from(value)),
        "INTROSPECTION" => settings.introspection = Some(parse(name, &value, "true or false")?),
        "MODE" => settings.mode = Some(value),
        "DRIVER_NAME" => settings.driver_name = Some(value),
        "NODE_ID" => settings.node_id = Some(value),
        "TOPOLOGY" => settings.topology = pairs(name, &value)?,
        "ATTACH" => settings.attach = Some(parse(name, &value, "true or false")?),
        "MAX_VOLUMES_PER_NODE" => {
            settings.max_volumes_per_node = Some(parse(name, &value, WHOLE_NUMBER)?);
        }
        "DEFAULT_SIZE" => settings.default_size = Some(value),
        "DEFAULT_FS" => settings.default_fs = Some(value),
        "FILESYSTEMS" => {
            settings.filesystems = Some(value.split(',').map(|fs| fs.trim().to_owned()).collect());
        }
        "RUN_DIR" => settings.run_dir = Some(PathBuf::from(value)),
        "WORKLOAD_CGROUP" => settings.workload_cgroup = Some(value),
        "FREEZE_LIMIT_SECONDS" => {
            settings.freeze_limit_seconds = Some(parse(name, &value, WHOLE_NUMBER)?);
        }
        "ENCRYPTION_KEY_FILE" => settings.encryption.key_file = Some(PathBuf::from(value)),
        "ENCRYPTION_KDF" => settings.encryption.kdf = Some(value),
        "KEEP_CAPABILITIES" => {
            settings.keep_capabilities = Some(parse(name, &value, "true or false")?);
        }
        "PEERS" => {
            let listed = value.split(',').map(|peer| peer.trim().to_owned());
            settings.peers.addresses = listed.filter(|peer| !peer.is_empty()).collect();
        }
        "PEER_LISTEN" => settings.peers.listen = Some(value),
        "PEER_CERTIFICATE" => settings.peers.certificate = Some(PathBuf::from(value)),
        "PEER_KEY" => settings.peers.key = Some(PathBuf::from(value)),
        "PEER_CA" => settings.peers.ca = Some(PathBuf::from(value)),
        "PEER_CA_KEY" => settings.peers.ca_key = Some(PathBuf::from(value)),
        "OTLP_ENDPOINT" => settings.otlp_endpoint = Some(value),
        "LOG" => settings.log.level = Some(value),
        "LOG_FORMAT" => settings.log.format = Some(log_format(name, &value)?),
        // Read by the command line.
        "CONFIG" => {}
        _ => return Err(unknown(name)),
    }
    Ok(())
}

fn set_pool(
    pool: &mut PoolSettings,
    name: &str,
    rest: &str,
    value: String,
) -> Result<(), ConfigError> {
    match rest {
        "" => pool.path = Some(PathBuf::from(value)),
        "_KIND" => pool.kind = Some(value),
        "_NAME" => pool.name = Some(value),
        "_FLOOR" => pool.floor = Some(value),
        "_OVERCOMMIT" => pool.overcommit = Some(parse(name, &value, "a number such as 1.5")?),
        "_IMAGE_SIZE" => pool.image_size = Some(value),
        "_ENCRYPTION_KEY_FILE" => pool.encryption_key_file = Some(PathBuf::from(value)),
        "_CREATE" => pool.create = Some(parse(name, &value, "true or false")?),
        _ => return Err(unknown(name)),
    }
    Ok(())
}

fn set_rbd(
    pool: &mut PoolSettings,
    name: &str,
    rest: &str,
    value: String,
) -> Result<(), ConfigError> {
    match rest {
        "MONITORS" => pool.monitors = Some(value),
        "POOL" => pool.pool = Some(value),
        "NAMESPACE" => pool.namespace = Some(value),
        "USER" => pool.user = Some(value),
        "KEYRING" => pool.keyring = Some(PathBuf::from(value)),
        "TIMEOUT_SECONDS" => pool.timeout_seconds = Some(parse(name, &value, WHOLE_NUMBER)?),
        _ => return Err(unknown(name)),
    }
    Ok(())
}

fn set_lvm(
    pool: &mut PoolSettings,
    name: &str,
    rest: &str,
    value: String,
) -> Result<(), ConfigError> {
    match rest {
        "GROUP" => pool.group = Some(value),
        "THIN_POOL" => pool.thin_pool = Some(value),
        "SIZE" => pool.size = Some(value),
        "CHUNK_SIZE" => pool.chunk_size = Some(value),
        "METADATA_SIZE" => pool.metadata_size = Some(value),
        "RAID" => pool.raid = Some(value),
        "MIRRORS" => pool.mirrors = Some(parse(name, &value, WHOLE_NUMBER)?),
        "STRIPES" => pool.stripes = Some(parse(name, &value, WHOLE_NUMBER)?),
        "STRIPE_SIZE" => pool.stripe_size = Some(value),
        "EXTEND_AT" => pool.extend_at = Some(value),
        "EXTEND_BY" => pool.extend_by = Some(value),
        "EXTEND_LIMIT" => pool.extend_limit = Some(value),
        _ => return Err(unknown(name)),
    }
    Ok(())
}

/// Kubernetes describes a Service named `orlop` or `orlop-pool` to every pod by variables such as
/// ORLOP_SERVICE_HOST and ORLOP_POOL_PORT_80_TCP; tests have some of their own.
fn is_injected(key: &str) -> bool {
    ["SERVICE_", "PORT"]
        .iter()
        .any(|mark| key.starts_with(mark) || key.contains(&format!("_{mark}")))
        || key.starts_with("TEST_")
}

fn unknown(name: &str) -> ConfigError {
    let near = KEYS.iter().map(|(variable, _)| *variable).min_by_key(|it| edits(name, it));
    // With more, it is another word.
    let near = near.filter(|variable| edits(name, variable) <= MOST_EDITS);
    let question = near.map(|variable| format!("did you mean {variable}? ")).unwrap_or_default();
    let problem =
        format!("is not a variable that orlop knows; {question}docs/configuration.md lists all");
    ConfigError::new(name, problem)
}

const MOST_EDITS: usize = 3;

/// How many letters have to be added, removed or replaced to make one word of the other.
fn edits(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (above, a) in one.bytes().enumerate() {
        let mut last = above + 1;
        let mut next = vec![last];
        for ((b, &diagonal), &up) in other.bytes().zip(&row).zip(row.iter().skip(1)) {
            last = (diagonal + usize::from(a != b)).min(up + 1).min(last + 1);
            next.push(last);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

fn parse<T: FromStr>(name: &str, value: &str, expected: &str) -> Result<T, ConfigError> {
    value.parse().map_err(|_| ConfigError::new(name, format!("{value:?} is not {expected}")))
}

fn log_format(name: &str, value: &str) -> Result<LogFormat, ConfigError> {
    match value {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(ConfigError::new(name, format!("{value:?} is neither text nor json"))),
    }
}

/// `zone=z1,rack=r7`
fn pairs(
    name: &str,
    value: &str,
) -> Result<std::collections::BTreeMap<String, String>, ConfigError> {
    let mut pairs = std::collections::BTreeMap::new();
    for pair in value.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            let problem = format!("{pair:?} is not of the form key=value");
            return Err(ConfigError::new(name, problem));
        };
        let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
        if pairs.insert(key.clone(), value).is_some() {
            return Err(ConfigError::new(name, format!("{key:?} is given twice")));
        }
    }
    Ok(pairs)
}
