//! Where a setting was said: people look for a mistake where they wrote it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::ConfigError;

/// Each variable with its key in the file.
pub(super) const KEYS: [(&str, &str); 60] = [
    ("CSI_ENDPOINT", "endpoint"),
    ("ORLOP_ADDONS_ENDPOINT", "addons_endpoint"),
    ("ORLOP_REGISTER", "register"),
    ("ORLOP_KUBELET_ENDPOINT", "kubelet_endpoint"),
    ("ORLOP_HEALTH_LISTEN", "health_listen"),
    ("ORLOP_METRICS_LISTEN", "metrics_listen"),
    ("ORLOP_METRICS_VOLUMES", "metrics_volumes"),
    ("ORLOP_PAGE_LISTEN", "page_listen"),
    ("ORLOP_PAGE_TOKEN_FILE", "page_token_file"),
    ("ORLOP_INTROSPECTION", "introspection"),
    ("ORLOP_MODE", "mode"),
    ("ORLOP_DRIVER_NAME", "driver_name"),
    ("ORLOP_NODE_ID", "node_id"),
    ("ORLOP_TOPOLOGY", "topology"),
    ("ORLOP_ATTACH", "attach"),
    ("ORLOP_MAX_VOLUMES_PER_NODE", "max_volumes_per_node"),
    ("ORLOP_DEFAULT_SIZE", "default_size"),
    ("ORLOP_DEFAULT_FS", "default_fs"),
    ("ORLOP_FILESYSTEMS", "filesystems"),
    ("ORLOP_RUN_DIR", "run_dir"),
    ("ORLOP_WORKLOAD_CGROUP", "workload_cgroup"),
    ("ORLOP_FREEZE_LIMIT_SECONDS", "freeze_limit_seconds"),
    ("ORLOP_KEEP_CAPABILITIES", "keep_capabilities"),
    ("ORLOP_ENCRYPTION_KEY_FILE", "encryption.key_file"),
    ("ORLOP_ENCRYPTION_KDF", "encryption.kdf"),
    ("ORLOP_LOG", "log.level"),
    ("ORLOP_LOG_FORMAT", "log.format"),
    ("ORLOP_OTLP_ENDPOINT", "otlp_endpoint"),
    ("ORLOP_PEERS", "peers.addresses"),
    ("ORLOP_PEER_LISTEN", "peers.listen"),
    ("ORLOP_PEER_CERTIFICATE", "peers.certificate"),
    ("ORLOP_PEER_KEY", "peers.key"),
    ("ORLOP_PEER_CA", "peers.ca"),
    ("ORLOP_PEER_CA_KEY", "peers.ca_key"),
    ("ORLOP_POOL_KIND", "pool.kind"),
    ("ORLOP_POOL", "pool.path"),
    ("ORLOP_POOL_NAME", "pool.name"),
    ("ORLOP_POOL_FLOOR", "pool.floor"),
    ("ORLOP_POOL_OVERCOMMIT", "pool.overcommit"),
    ("ORLOP_POOL_IMAGE_SIZE", "pool.image_size"),
    ("ORLOP_POOL_CREATE", "pool.create"),
    ("ORLOP_POOL_ENCRYPTION_KEY_FILE", "pool.encryption_key_file"),
    ("ORLOP_LVM_GROUP", "pool.group"),
    ("ORLOP_LVM_THIN_POOL", "pool.thin_pool"),
    ("ORLOP_LVM_SIZE", "pool.size"),
    ("ORLOP_LVM_CHUNK_SIZE", "pool.chunk_size"),
    ("ORLOP_LVM_METADATA_SIZE", "pool.metadata_size"),
    ("ORLOP_LVM_RAID", "pool.raid"),
    ("ORLOP_LVM_MIRRORS", "pool.mirrors"),
    ("ORLOP_LVM_STRIPES", "pool.stripes"),
    ("ORLOP_LVM_STRIPE_SIZE", "pool.stripe_size"),
    ("ORLOP_LVM_EXTEND_AT", "pool.extend_at"),
    ("ORLOP_LVM_EXTEND_BY", "pool.extend_by"),
    ("ORLOP_LVM_EXTEND_LIMIT", "pool.extend_limit"),
    ("ORLOP_RBD_MONITORS", "pool.monitors"),
    ("ORLOP_RBD_POOL", "pool.pool"),
    ("ORLOP_RBD_NAMESPACE", "pool.namespace"),
    ("ORLOP_RBD_USER", "pool.user"),
    ("ORLOP_RBD_KEYRING", "pool.keyring"),
    ("ORLOP_RBD_TIMEOUT_SECONDS", "pool.timeout_seconds"),
];

#[derive(Debug, Clone, Default)]
pub(crate) struct Origin {
    file: Option<PathBuf>,
    /// The variables that are set; they take precedence over the file.
    variables: BTreeSet<String>,
}

impl Origin {
    pub(super) fn new(file: Option<&Path>, variables: impl Iterator<Item = String>) -> Self {
        Self { file: file.map(Path::to_owned), variables: variables.collect() }
    }

    /// What is set by an argument is called by its variable.
    pub(super) fn with(mut self, variable: &str, given: bool) -> Self {
        if given {
            self.variables.insert(variable.to_owned());
        }
        self
    }

    /// A mistake in a setting that is called by its variable, called by what it was set with.
    pub(crate) fn locate(&self, error: ConfigError) -> ConfigError {
        let Some(file) = self.file.as_deref().filter(|_| !self.is_variable(&error.setting)) else {
            return error;
        };
        let known = KEYS.iter().find(|(variable, _)| *variable == error.setting);
        let key = known.map_or(error.setting.as_str(), |(_, key)| *key);
        let whose = error.pool.as_ref().map(|pool| format!(" of pool {pool:?}"));
        let setting = format!("{}: {key}{}", file.display(), whose.unwrap_or_default());
        ConfigError { setting, ..error }
    }

    /// By the variable, or the argument that stands for it.
    pub(super) fn is_given_by(&self, variable: &str) -> bool {
        self.variables.contains(variable)
    }

    /// The variables of a pool describe one that the file has not.
    fn is_variable(&self, setting: &str) -> bool {
        const OF_POOL: [&str; 3] = ["ORLOP_POOL", "ORLOP_LVM_", "ORLOP_RBD_"];
        let describes_pool = |name: &str| OF_POOL.iter().any(|start| name.starts_with(start));
        self.variables.contains(setting)
            || describes_pool(setting) && self.variables.iter().any(|name| describes_pool(name))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// docs/configuration.md, docs/lvm.md and docs/ceph.md have tables of the form | `VARIABLE` | `key` |.
    #[test]
    fn documented_variables_match_their_keys() {
        let documents = [
            include_str!("../../../../docs/configuration.md"),
            include_str!("../../../../docs/ceph.md"),
            include_str!("../../../../docs/lvm.md"),
        ];
        let documented: BTreeMap<_, _> = documents
            .iter()
            .flat_map(|text| text.lines())
            .filter_map(|line| {
                let mut cells = line.strip_prefix("| `")?.split('|');
                let variable = cells.next()?.split('`').next()?;
                let key = cells.next()?.trim().trim_matches(['`', '[', ']']);
                let is_setting = variable.starts_with("ORLOP_") || variable == "CSI_ENDPOINT";
                (is_setting && !key.is_empty()).then_some((variable, key))
            })
            .collect();
        assert_eq!(BTreeMap::from(KEYS), documented);
    }
}
