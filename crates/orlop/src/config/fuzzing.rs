//! Settings from arbitrary text.

use super::{Config, ConfigError, PoolConfig, Sockets, endpoint, file, pools, validate, variables};

/// A TOML file, a line of dashes, and `NAME=value` lines of variables. What is accepted fits
/// together; what is not says which setting is wrong.
pub(crate) fn configuration(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (toml, rest) = text.split_once("\n---\n").unwrap_or((&text, ""));
    let pairs = rest.lines().filter_map(|line| line.split_once('='));
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    match validated(toml, pairs) {
        Ok((config, sockets)) => {
            check_sockets(&sockets);
            check(&config);
        }
        Err(error) => assert!(error.to_string().contains(": "), "{error}"),
    }
}

fn validated(
    toml: &str,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<(Config, Sockets), ConfigError> {
    let mut settings: file::Settings =
        toml::from_str(toml).map_err(|error| ConfigError::new("file", error.to_string()))?;
    variables::apply(&mut settings, variables)?;
    let sockets = endpoint::validate(&settings, Some("unix:///run/x/csi.sock"))?;
    pools::require_one(&settings.pools)?;
    Ok((validate::validate(settings)?, sockets))
}

fn check_sockets(sockets: &Sockets) {
    assert!(sockets.csi.is_absolute());
    for (setting, socket) in sockets.paths() {
        assert!(socket.is_absolute() && socket.as_os_str().len() <= 107, "{setting}: {socket:?}");
    }
    let registration = sockets.registration.as_ref();
    assert!(registration.is_none_or(|socket| socket.endpoint.is_absolute()));
}

fn check(config: &Config) {
    // It becomes a directory and a key of topology.
    let name = &config.driver_name;
    assert!(!name.contains('/') && !name.starts_with(['.', '-']) && name.len() <= 63, "{name:?}");
    assert!(config.topology.segments().next().is_some());
    assert!(config.default_capacity >= 1 << 20);
    assert!(!config.freeze_limit.is_zero());
    assert!(!config.pools.is_empty());
    for pool in &config.pools {
        match pool {
            PoolConfig::Image(image) => assert!(image.path.is_absolute(), "{image:?}"),
            // Arguments of lvm, and parts of the names of devices.
            PoolConfig::Lvm(lvm) => {
                for name in [&lvm.group, &lvm.thin_pool] {
                    let is_name = !name.starts_with('-') && !name.is_empty();
                    assert!(is_name && !name.contains(['/', ' ', '\0', '"']), "{name:?}");
                }
            }
            // One value each in a ceph.conf, and no options on a command line.
            PoolConfig::Rbd(rbd) => {
                assert!(rbd.keyring.is_absolute(), "{rbd:?}");
                for text in [&rbd.monitors, &rbd.pool, &rbd.namespace, &rbd.user] {
                    assert!(!text.contains(['\n', ' ', '#', ';', '\0']), "{text:?}");
                }
                // In an address, what follows a slash tells one process from its successor.
                for text in [&rbd.pool, &rbd.namespace, &rbd.user] {
                    assert!(!text.contains('/'), "{text:?}");
                }
                assert!(!rbd.pool.starts_with('-') && !rbd.user.starts_with('-'), "{rbd:?}");
            }
        }
    }
}

#[cfg(test)]
mod tests;
