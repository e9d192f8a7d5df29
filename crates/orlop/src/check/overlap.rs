//! Do the directories keep apart from each other? Compared is where paths lead, not how they are
//! written: through links, `..` and bind mounts, also to what is still to be made.

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
    /// Device and inode of the directory, if it is there.
    inode: Option<(u64, u64)>,
    /// The same of all directories that it is in.
    around: Vec<(u64, u64)>,
}

impl DirectoryLocation {
    fn of(path: &Path) -> Self {
        let (answer, answered) = mpsc::channel();
        let looked_at = path.to_owned();
        // If it hangs, it keeps the rights that this process gives up next, but only looks.
        let looking = thread::Builder::new().spawn(move || {
            // Not heard any more if it took too long.
            let _ = answer.send(Self::look(&looked_at));
        });
        let Ok(looking) = looking else { return Self::as_written(path) };
        match answered.recv_timeout(RESOLVE_TIMEOUT) {
            Ok(location) => {
                // Rights belong to threads, so it has to end before this process gives up its own.
                let _ = looking.join();
                location
            }
            Err(_) => Self::as_written(path),
        }
    }

    fn as_written(path: &Path) -> Self {
        let written = path.to_owned();
        Self { resolved: without_detours(path), written, inode: None, around: Vec::new() }
    }

    fn look(path: &Path) -> Self {
        let resolved = resolve(path);
        let inode = inode_of(&resolved);
        let around = resolved.ancestors().skip(1).filter_map(inode_of).collect();
        Self { written: path.to_owned(), resolved, inode, around }
    }

    fn is_within(&self, other: &Self) -> bool {
        let inodes = || self.inode.iter().chain(&self.around);
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

/// What is there of the path is looked up; the rest will be made as it is written.
fn resolve(path: &Path) -> PathBuf {
    let known = path.ancestors().find_map(|there| Some((there, fs::canonicalize(there).ok()?)));
    match known {
        Some((there, real)) => {
            without_detours(&real.join(path.strip_prefix(there).unwrap_or(path)))
        }
        None => without_detours(path),
    }
}

fn without_detours(path: &Path) -> PathBuf {
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
