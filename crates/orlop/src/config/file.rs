//! The TOML file, as it is written. Everything is optional here; `validate` decides the rest.

use std::collections::BTreeMap;
use std::fmt::{self, Formatter};
use std::path::{Path, PathBuf};

use orlop_sys::file;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::ConfigError;
use super::encryption::EncryptionSettings;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    pub(super) endpoint: Option<String>,
    pub(super) addons_endpoint: Option<String>,
    pub(super) register: Option<String>,
    pub(super) kubelet_endpoint: Option<String>,
    pub(super) health_listen: Option<String>,
    pub(super) metrics_listen: Option<String>,
    pub(super) metrics_volumes: Option<bool>,
    pub(super) page_listen: Option<String>,
    pub(super) page_token_file: Option<PathBuf>,
    pub(super) introspection: Option<bool>,
    pub(super) mode: Option<String>,
    pub(super) driver_name: Option<String>,
    pub(super) node_id: Option<String>,
    #[serde(default)]
    pub(super) topology: BTreeMap<String, String>,
    pub(super) attach: Option<bool>,
    pub(super) max_volumes_per_node: Option<u32>,
    pub(super) default_size: Option<String>,
    pub(super) default_fs: Option<String>,
    pub(super) filesystems: Option<Vec<String>>,
    pub(super) run_dir: Option<PathBuf>,
    pub(super) workload_cgroup: Option<String>,
    pub(super) keep_capabilities: Option<bool>,
    pub(super) freeze_limit_seconds: Option<u32>,
    pub(super) otlp_endpoint: Option<String>,
    #[serde(default)]
    pub(super) log: LogSettings,
    #[serde(default)]
    pub(super) encryption: EncryptionSettings,
    #[serde(default)]
    pub(super) peers: PeerSettings,
    /// `[[pool]]` each, or `[pool]` where there is one.
    #[serde(default, rename = "pool", deserialize_with = "one_or_more")]
    pub(super) pools: Vec<PoolSettings>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogSettings {
    pub(super) level: Option<String>,
    pub(super) format: Option<LogFormat>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerSettings {
    #[serde(default)]
    pub(super) addresses: Vec<String>,
    pub(super) listen: Option<String>,
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) ca: Option<PathBuf>,
    pub(super) ca_key: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PoolSettings {
    pub(super) kind: Option<String>,
    pub(super) name: Option<String>,
    pub(super) path: Option<PathBuf>,
    pub(super) floor: Option<String>,
    pub(super) overcommit: Option<f64>,
    pub(super) image_size: Option<String>,
    pub(super) create: Option<bool>,
    pub(super) encryption_key_file: Option<PathBuf>,
    pub(super) monitors: Option<String>,
    /// Ceph's name of the pool.
    pub(super) pool: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) user: Option<String>,
    pub(super) keyring: Option<PathBuf>,
    pub(super) timeout_seconds: Option<u32>,
    /// LVM's name of the volume group.
    pub(super) group: Option<String>,
    pub(super) thin_pool: Option<String>,
    pub(super) size: Option<String>,
    pub(super) chunk_size: Option<String>,
    pub(super) metadata_size: Option<String>,
    pub(super) raid: Option<String>,
    pub(super) mirrors: Option<u32>,
    pub(super) stripes: Option<u32>,
    pub(super) stripe_size: Option<String>,
    pub(super) extend_at: Option<String>,
    pub(super) extend_by: Option<String>,
    pub(super) extend_limit: Option<String>,
}

/// Not an untagged enum: that would say of any mistake in a pool only that nothing fits.
fn one_or_more<'de, D: Deserializer<'de>>(pools: D) -> Result<Vec<PoolSettings>, D::Error> {
    struct Pools;

    impl<'de> Visitor<'de> for Pools {
        type Value = Vec<PoolSettings>;

        fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
            f.write_str("a table [pool], or one [[pool]] for each")
        }

        fn visit_map<A: MapAccess<'de>>(self, pool: A) -> Result<Self::Value, A::Error> {
            Ok(vec![PoolSettings::deserialize(MapAccessDeserializer::new(pool))?])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, pools: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(pools))
        }
    }

    pools.deserialize_any(Pools)
}

const LONGEST: usize = 1 << 20;

pub(super) fn read(path: &Path) -> Result<Settings, ConfigError> {
    let wrong = |problem: String| ConfigError::new(path.display().to_string(), problem);
    // It may come through a pipe, as from a shell.
    let text = file::read_at_most(path, LONGEST)
        .map_err(|error| wrong(format!("cannot read the configuration file: {}", error.cause())))?;
    let text = String::from_utf8(text).map_err(|error| wrong(error.to_string()))?;
    toml::from_str(&text).map_err(|error| wrong(error.to_string()))
}
