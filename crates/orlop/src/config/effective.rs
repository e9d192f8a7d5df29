//! The settings in effect, with all defaults, as a configuration file. It has no secrets: of keys it has the paths.

use std::fmt::{Display, Write};
use std::path::Path;

use orlop_csi::Mode;
use orlop_model::{LvmLayout, Topology};
use orlop_pools::image::{Floor, ImagePoolConfig};
use orlop_pools::lvm::{LvmPoolConfig, ThinPoolSize};
use orlop_pools::rbd::RbdPoolConfig;
use orlop_router::OwnCertificate;

use super::encryption;
use super::origin::Origin;
use super::validate::DEFAULT_LEVEL;
use super::{Config, HttpAddress, LogFormat, PeerConfig, PoolConfig, Sockets};

pub(crate) fn effective(config: &Config, sockets: Option<&Sockets>) -> String {
    let mut text = Text { origin: &config.origin, text: String::new() };
    if let Some(sockets) = sockets {
        text.sockets(sockets);
    }
    text.daemon(config);
    text.topology(config);
    text.table("[log]");
    text.string("ORLOP_LOG", "level", level(&config.log.filter));
    let format = match config.log.format {
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    };
    text.string("ORLOP_LOG_FORMAT", "format", format);
    text.table("[encryption]");
    let key_files = &config.encryption.key_files;
    if let Some(file) = &key_files.of_all {
        text.path("ORLOP_ENCRYPTION_KEY_FILE", "key_file", file);
    }
    text.string("ORLOP_ENCRYPTION_KDF", "kdf", encryption::shown(config.encryption.derivation));
    if let Some(peers) = &config.peers {
        text.peers(peers);
    }
    for pool in &config.pools {
        text.table("[[pool]]");
        text.string("ORLOP_POOL_NAME", "name", pool.name());
        if let Some(file) = key_files.of_pools.get(pool.name()) {
            text.path("ORLOP_POOL_ENCRYPTION_KEY_FILE", "encryption_key_file", file);
        }
        match pool {
            PoolConfig::Image(pool) => text.image_pool(pool),
            PoolConfig::Lvm(pool) => text.lvm_pool(pool),
            PoolConfig::Rbd(pool) => text.rbd_pool(pool),
        }
    }
    text.text
}

/// The given filter follows the default in the text.
fn level(filter: &str) -> &str {
    filter.strip_prefix(DEFAULT_LEVEL).and_then(|rest| rest.strip_prefix(',')).unwrap_or(filter)
}

struct Text<'a> {
    origin: &'a Origin,
    text: String,
}

impl Text<'_> {
    fn table(&mut self, header: &str) {
        self.text.push_str(&format!("\n{header}\n"));
    }

    /// `value` is written as TOML has it.
    fn value(&mut self, variable: &str, key: &str, value: impl Display) {
        let by = match self.origin.is_given_by(variable) {
            true => format!("  # {variable}"),
            false => String::new(),
        };
        // To a string it cannot fail.
        let _ = writeln!(self.text, "{key} = {value}{by}");
    }

    fn string(&mut self, variable: &str, key: &str, value: impl Display) {
        self.value(variable, key, quoted(&value.to_string()));
    }

    fn path(&mut self, variable: &str, key: &str, path: &Path) {
        self.string(variable, key, path.display());
    }

    fn sockets(&mut self, sockets: &Sockets) {
        let url = |path: &Path| format!("unix://{}", path.display());
        self.string("CSI_ENDPOINT", "endpoint", url(&sockets.csi));
        if let Some(path) = &sockets.addons {
            self.string("ORLOP_ADDONS_ENDPOINT", "addons_endpoint", url(path));
        }
        if let Some(registration) = &sockets.registration {
            let directory = registration.path.parent().unwrap_or(&registration.path);
            self.path("ORLOP_REGISTER", "register", directory);
            let endpoint = url(&registration.endpoint);
            self.string("ORLOP_KUBELET_ENDPOINT", "kubelet_endpoint", endpoint);
        }
        let page = sockets.page.as_ref();
        for (variable, key, address) in [
            ("ORLOP_HEALTH_LISTEN", "health_listen", sockets.health.as_ref()),
            ("ORLOP_METRICS_LISTEN", "metrics_listen", sockets.metrics.as_ref()),
            ("ORLOP_PAGE_LISTEN", "page_listen", page.map(|page| &page.address)),
        ] {
            match address {
                None => {}
                Some(HttpAddress::Tcp(address)) => self.string(variable, key, address),
                Some(HttpAddress::Unix(path)) => self.string(variable, key, url(path)),
            }
        }
        if let Some(file) = page.and_then(|page| page.token_file.as_deref()) {
            self.path("ORLOP_PAGE_TOKEN_FILE", "page_token_file", file);
        }
    }

    fn daemon(&mut self, config: &Config) {
        let mode = match config.mode {
            Mode::Controller if config.is_router => "router",
            Mode::Controller => "controller",
            Mode::Node => "node",
            Mode::All => "all",
        };
        self.string("ORLOP_MODE", "mode", mode);
        self.string("ORLOP_DRIVER_NAME", "driver_name", &config.driver_name);
        self.string("ORLOP_NODE_ID", "node_id", &config.node_id);
        self.value("ORLOP_ATTACH", "attach", config.attach);
        self.value("ORLOP_INTROSPECTION", "introspection", config.introspection);
        self.value("ORLOP_METRICS_VOLUMES", "metrics_volumes", config.metrics_volumes);
        self.value("ORLOP_MAX_VOLUMES_PER_NODE", "max_volumes_per_node", config.max_volumes);
        self.string("ORLOP_DEFAULT_SIZE", "default_size", config.default_capacity);
        match config.default_fs {
            Some(fs) => self.string("ORLOP_DEFAULT_FS", "default_fs", fs),
            None => {
                self.text.push_str("# default_fs: the first of xfs, ext4, btrfs that can be made\n")
            }
        }
        match &config.filesystems {
            Some(all) => {
                let all: Vec<String> = all.iter().map(|fs| quoted(&fs.to_string())).collect();
                self.value("ORLOP_FILESYSTEMS", "filesystems", format!("[{}]", all.join(", ")));
            }
            None => self.text.push_str("# filesystems: all whose tools are installed\n"),
        }
        self.path("ORLOP_RUN_DIR", "run_dir", &config.run_dir);
        self.string("ORLOP_WORKLOAD_CGROUP", "workload_cgroup", &config.workload_cgroup);
        let seconds = config.freeze_limit.as_secs();
        self.value("ORLOP_FREEZE_LIMIT_SECONDS", "freeze_limit_seconds", seconds);
        self.value("ORLOP_KEEP_CAPABILITIES", "keep_capabilities", config.keep_capabilities);
        if let Some(endpoint) = &config.otlp_endpoint {
            self.string("ORLOP_OTLP_ENDPOINT", "otlp_endpoint", endpoint);
        }
    }

    /// Names only, as in the settings, and without the node.
    fn topology(&mut self, config: &Config) {
        let segments = config.topology.segments().filter_map(|(key, value)| {
            let name = key.rsplit('/').next().unwrap_or(key);
            (name != Topology::NODE).then(|| format!("{} = {}", quoted(name), quoted(value)))
        });
        let segments: Vec<String> = segments.collect();
        self.value("ORLOP_TOPOLOGY", "topology", format!("{{{}}}", segments.join(", ")));
    }

    fn peers(&mut self, peers: &PeerConfig) {
        self.table("[peers]");
        let addresses: Vec<String> = peers.addresses.iter().map(|peer| quoted(peer)).collect();
        self.value("ORLOP_PEERS", "addresses", format!("[{}]", addresses.join(", ")));
        if let Some(listen) = peers.listen {
            self.string("ORLOP_PEER_LISTEN", "listen", listen);
        }
        self.path("ORLOP_PEER_CA", "ca", &peers.files.ca);
        match &peers.files.own {
            OwnCertificate::Files { certificate, key } => {
                self.path("ORLOP_PEER_CERTIFICATE", "certificate", certificate);
                self.path("ORLOP_PEER_KEY", "key", key);
            }
            OwnCertificate::SignedHere { ca_key } => {
                self.path("ORLOP_PEER_CA_KEY", "ca_key", ca_key);
            }
        }
    }

    fn image_pool(&mut self, pool: &ImagePoolConfig) {
        self.string("ORLOP_POOL_KIND", "kind", "image");
        self.path("ORLOP_POOL", "path", &pool.path);
        self.space(pool.floor, pool.overcommit_percent);
        if let Some(size) = pool.managed_size {
            self.string("ORLOP_POOL_IMAGE_SIZE", "image_size", size);
        }
        self.value("ORLOP_POOL_CREATE", "create", pool.create);
    }

    fn space(&mut self, floor: Floor, overcommit_percent: u32) {
        let floor = match floor {
            Floor::Percent(percent) => format!("{percent}%"),
            Floor::Bytes(bytes) => with_unit(bytes),
        };
        self.string("ORLOP_POOL_FLOOR", "floor", floor);
        let overcommit = f64::from(overcommit_percent) / 100.0;
        self.value("ORLOP_POOL_OVERCOMMIT", "overcommit", format!("{overcommit:?}"));
    }

    fn lvm_pool(&mut self, pool: &LvmPoolConfig) {
        self.string("ORLOP_POOL_KIND", "kind", "lvm");
        self.string("ORLOP_LVM_GROUP", "group", &pool.group);
        self.string("ORLOP_LVM_THIN_POOL", "thin_pool", &pool.thin_pool);
        self.space(pool.floor, pool.overcommit_percent);
        self.value("ORLOP_POOL_CREATE", "create", pool.create);
        let new = &pool.new_thin_pool;
        self.string("ORLOP_LVM_SIZE", "size", shown(new.size));
        if let Some(bytes) = new.chunk_size {
            self.string("ORLOP_LVM_CHUNK_SIZE", "chunk_size", with_unit(bytes));
        }
        if let Some(bytes) = new.metadata_size {
            self.string("ORLOP_LVM_METADATA_SIZE", "metadata_size", with_unit(bytes));
        }
        self.layout(&new.layout);
        if let Some(extension) = &pool.extension {
            let at = format!("{}%", extension.at_percent);
            self.string("ORLOP_LVM_EXTEND_AT", "extend_at", at);
            self.string("ORLOP_LVM_EXTEND_BY", "extend_by", shown(extension.by));
            if let Some(limit) = extension.limit {
                self.string("ORLOP_LVM_EXTEND_LIMIT", "extend_limit", with_unit(limit));
            }
        }
    }

    fn layout(&mut self, layout: &LvmLayout) {
        if let Some(raid) = layout.raid {
            self.string("ORLOP_LVM_RAID", "raid", raid.as_str());
        }
        if let Some(mirrors) = layout.mirrors {
            self.value("ORLOP_LVM_MIRRORS", "mirrors", mirrors);
        }
        if let Some(stripes) = layout.stripes {
            self.value("ORLOP_LVM_STRIPES", "stripes", stripes);
        }
        if let Some(bytes) = layout.stripe_size {
            self.string("ORLOP_LVM_STRIPE_SIZE", "stripe_size", with_unit(bytes));
        }
    }

    fn rbd_pool(&mut self, pool: &RbdPoolConfig) {
        self.string("ORLOP_POOL_KIND", "kind", "rbd");
        self.string("ORLOP_RBD_MONITORS", "monitors", &pool.monitors);
        self.string("ORLOP_RBD_POOL", "pool", &pool.pool);
        self.string("ORLOP_RBD_NAMESPACE", "namespace", &pool.namespace);
        self.string("ORLOP_RBD_USER", "user", &pool.user);
        self.path("ORLOP_RBD_KEYRING", "keyring", &pool.keyring);
        self.value("ORLOP_RBD_TIMEOUT_SECONDS", "timeout_seconds", pool.timeout.as_secs());
        self.value("ORLOP_POOL_CREATE", "create", pool.create);
    }
}

fn shown(size: ThinPoolSize) -> String {
    match size {
        ThinPoolSize::Percent(percent) => format!("{percent}%"),
        ThinPoolSize::Bytes(bytes) => with_unit(bytes),
    }
}

/// As the settings that need a unit take it.
fn with_unit(bytes: u64) -> String {
    match bytes {
        bytes if bytes % 1024 == 0 => format!("{}KiB", bytes / 1024),
        bytes if bytes % 1000 == 0 => format!("{}k", bytes / 1000),
        bytes => bytes.to_string(),
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            control if control.is_control() => {
                quoted.push_str(&format!("\\u{:04X}", u32::from(control)));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests;
