//! Checks that the configured directories do not overlap. Paths are compared after links, `..` and bind mounts are
//! resolved, also those of directories that do not exist yet.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::config::{Config, ConfigError, PoolConfig, Sockets};

/// A pool's disk may hang, and no start waits for that: then what is written has to do.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn check(config: &Config, sockets: &Sockets) -> Result<(), ConfigError> {
    let mut pools: Vec<(&str, DirectoryLocation)> = Vec::new();
    for pool in &config.pools {
        let (name, Some(path)) = (pool.name(), PoolConfig::directory(pool)) else { continue };
        let location = DirectoryLocation::of(&path);
        if let Some((other, at)) = pools.iter().find(|(_, it)| location.overlaps(it)) {
            let problem = format!(
                "{location} overlaps with pool {other} at {at}; give each pool a directory that is not \
                 inside another's"
            );
            return Err(ConfigError::new("ORLOP_POOL", problem).of_pool(name));
        }
        pools.push((name, location));
    }
    check_run_dir(config, &pools)?;
    check_sockets(config, sockets, &pools)
}

fn check_run_dir(config: &Config, pools: &[(&str, DirectoryLocation)]) -> Result<(), ConfigError> {
    let run_dir = DirectoryLocation::of(&config.run_dir);
    let own = DirectoryLocation::of(&config.run_dir.join(&config.driver_name));
    let overlaps = |pool: &DirectoryLocation| {
        run_dir.is_within(pool) || own.is_within(pool) || pool.is_within(&own)
    };
    let Some((name, at)) = pools.iter().find(|(_, it)| overlaps(it)) else { return Ok(()) };
    let problem = format!(
        "{run_dir} overlaps with pool {name} at {at}; give each a directory that is not inside \
         the other"
    );
    Err(ConfigError::new("ORLOP_RUN_DIR", problem))
}

fn check_sockets(
    config: &Config,
    sockets: &Sockets,
    pools: &[(&str, DirectoryLocation)],
) -> Result<(), ConfigError> {
    let own = DirectoryLocation::of(&config.run_dir.join(&config.driver_name));
    let mut known: Vec<(&str, &Path, DirectoryLocation)> = Vec::new();
    for (setting, socket) in sockets.paths() {
        let directory = DirectoryLocation::of(socket.parent().unwrap_or(socket));
        if let Some((name, at)) = pools.iter().find(|(_, pool)| directory.is_within(pool)) {
            let problem = format!(
                "{} is in the directory of pool {name} at {at}; choose a directory outside of it",
                socket.display()
            );
            return Err(ConfigError::new(setting, problem));
        }
        // In the run directory itself it is in the way of nothing.
        if directory.is_within(&own) && !own.is_within(&directory) {
            let problem = format!(
                "{} is in the run directory {own}, among the records that the daemon locks; \
                 choose a directory outside of it",
                socket.display()
            );
            return Err(ConfigError::new(setting, problem));
        }
        let is_same = |(_, other, at): &&(&str, &Path, DirectoryLocation)| {
            other.file_name() == socket.file_name() && directory.is_same(at)
        };
        if let Some((other, _, _)) = known.iter().find(is_same) {
            let (path, other) = (socket.display(), *other);
            let problem = match (setting, other) {
                ("ORLOP_ADDONS_ENDPOINT", "CSI_ENDPOINT") => format!(
                    "{path} is the same socket as CSI_ENDPOINT, which serves CSI-Addons anyway; leave \
                     it out"
                ),
                _ => format!("{path} is the same socket as {other}; give each a path by itself"),
            };
            return Err(ConfigError::new(setting, problem));
        }
        known.push((setting, socket, directory));
    }
    check_registry(&known)
}

/// kubelet takes each socket in its directory for one that registers a plugin.
fn check_registry(sockets: &[(&str, &Path, DirectoryLocation)]) -> Result<(), ConfigError> {
    let (registering, others): (Vec<_>, Vec<_>) =
        sockets.iter().partition(|(setting, _, _)| *setting == "ORLOP_REGISTER");
    for (_, _, registry) in registering {
        if let Some((setting, path, _)) = others.iter().find(|(_, _, at)| at.is_within(registry)) {
            let problem = format!(
                "{} is in {registry}, where kubelet expects only sockets that register a plugin; \
                 choose another directory, such as the one for the driver below kubelet's `plugins`",
                path.display()
            );
            return Err(ConfigError::new(*setting, problem));
        }
    }
    Ok(())
}

/// A directory, whether or not it is there yet.
#[derive(Clone)]
struct DirectoryLocation {
    written: PathBuf,
    resolved: PathBuf,
    /// Device and inode of the directory, if it exists.
    inode: Option<(u64, u64)>,
    /// Device and inode of each directory above it.
    ancestors: Vec<(u64, u64)>,
}

impl DirectoryLocation {
    fn of(path: &Path) -> Self {
        let (answer, answered) = mpsc::channel();
        let written = path.to_owned();
        // A thread that hangs keeps the rights that this process gives up next, but it only reads.
        let resolving = thread::Builder::new().spawn(move || {
            // The receiver is gone if it took too long.
            let _ = answer.send(Self::resolved(&written));
        });
        let Ok(resolving) = resolving else { return Self::as_written(path) };
        match answered.recv_timeout(RESOLVE_TIMEOUT) {
            Ok(location) => {
                // Each thread has rights of its own, so this one has to end before the process gives up its rights.
                let _ = resolving.join();
                location
            }
            Err(_) => Self::as_written(path),
        }
    }

    fn as_written(path: &Path) -> Self {
        let written = path.to_owned();
        Self { resolved: lexically_normalized(path), written, inode: None, ancestors: Vec::new() }
    }

    fn resolved(path: &Path) -> Self {
        let resolved = resolve(path);
        let inode = inode_of(&resolved);
        let ancestors = resolved.ancestors().skip(1).filter_map(inode_of).collect();
        Self { written: path.to_owned(), resolved, inode, ancestors }
    }

    fn is_within(&self, other: &Self) -> bool {
        let inodes = || self.inode.iter().chain(&self.ancestors);
        self.resolved.starts_with(&other.resolved)
            || other.inode.is_some_and(|other| inodes().any(|inode| *inode == other))
    }

    fn is_same(&self, other: &Self) -> bool {
        self.is_within(other) && other.is_within(self)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.is_within(other) || other.is_within(self)
    }
}

impl std::fmt::Display for DirectoryLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.written.display())?;
        if self.resolved.as_os_str() != self.written.as_os_str() {
            write!(f, " (that is {})", self.resolved.display())?;
        }
        Ok(())
    }
}

/// The part of the path that exists is resolved; the rest will be made as it is written.
fn resolve(path: &Path) -> PathBuf {
    let known = path.ancestors().find_map(|there| Some((there, fs::canonicalize(there).ok()?)));
    match known {
        Some((there, real)) => {
            lexically_normalized(&real.join(path.strip_prefix(there).unwrap_or(path)))
        }
        None => lexically_normalized(path),
    }
}

fn lexically_normalized(path: &Path) -> PathBuf {
    let mut direct = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => _ = direct.pop(),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                direct.push(component);
            }
        }
    }
    direct
}

fn inode_of(path: &Path) -> Option<(u64, u64)> {
    let there = fs::metadata(path).ok()?;
    Some((there.dev(), there.ino()))
}
