//! Configurations that cannot work. A start refuses them, and `orlop serve --check` reports them; both use these
//! checks, so that they agree. Nothing is created or changed, no cluster is contacted, and a running daemon with
//! the same settings is no error: it may be about to be restarted.

mod overlap;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use orlop_host::LinuxHost;
use orlop_model::{Bytes, PoolId};
use orlop_pools::image::{ImagePool, Start};
use orlop_pools::lvm::{LvmPool, LvmPoolConfig};
use orlop_pools::rbd::RbdPool;
use rustix::fs::{Access, access, statfs};
use rustix::io::Errno;

use crate::cluster;
use crate::config::{Config, ConfigError, HttpAddress, Origin, PageAddress, PoolConfig, Sockets};
use crate::http::WantedListener;
use crate::page::Page;
use crate::serve::host_config;
use crate::telemetry;

pub(crate) type CheckError = Box<dyn Error + Send + Sync>;

/// Filesystems in which only the kernel creates files, by their numbers in statfs(2).
const KERNEL_FILESYSTEMS: [(u64, &str); 9] = [
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x1cd1, "devpts"),
    (0xcafe_4a11, "bpf"),
];

/// What a start would create, and warnings, as texts.
pub(crate) fn check(config: &Config, sockets: &Sockets) -> Result<Vec<String>, CheckError> {
    check_machine(config, sockets)?;
    let mut plan = Vec::new();
    if config.run_dir.symlink_metadata().is_err() {
        plan.push(format!("would make the run directory {}", config.run_dir.display()));
    }
    for pool in &config.pools {
        if let PoolConfig::Image(image) = pool {
            ImagePool::check_left_on_devices(image)?;
        }
        plan.extend(check_pool(&config.origin, pool)?);
        plan.extend(oversize_warning(pool).map(|warning| format!("warning: {warning}")));
    }
    check_ids(&config.pools)?;
    plan.extend(address_warnings(config, sockets));
    plan.extend(unserved_half_warning(config).map(|warning| format!("warning: {warning}")));
    plan.extend(peers_warning(config).map(|warning| format!("warning: {warning}")));
    plan.extend(registration_warning(sockets).map(|warning| format!("warning: {warning}")));
    plan.extend(page_plan(config, sockets)?);
    Ok(plan)
}

/// The TCP addresses that a start listens at, each once, with its setting.
fn tcp_addresses(config: &Config, sockets: &Sockets) -> Vec<(&'static str, SocketAddr)> {
    let peers = config.peers.as_ref().and_then(|peers| peers.listen);
    let peers = peers.map(|address| ("ORLOP_PEER_LISTEN", address));
    let tcp = |wanted: WantedListener| match wanted.address {
        HttpAddress::Tcp(address) => Some((wanted.setting, address)),
        HttpAddress::Unix(_) => None,
    };
    peers.into_iter().chain(WantedListener::all(sockets).into_iter().filter_map(tcp)).collect()
}

/// An address that this machine does not have, or a port that this user may not have. One that is in use may be so by
/// the daemon that is about to be restarted.
fn check_addresses(config: &Config, sockets: &Sockets) -> Result<(), ConfigError> {
    let mut listening: Vec<(&str, TcpListener)> = Vec::new();
    for (setting, address) in tcp_addresses(config, sockets) {
        let wrong = |why: String| {
            Err(ConfigError::new(setting, format!("cannot listen at {address}: {why}")))
        };
        match TcpListener::bind(address) {
            Ok(listener) => listening.push((setting, listener)),
            Err(error) if error.kind() != ErrorKind::AddrInUse => return wrong(error.to_string()),
            // All addresses of the machine include each of them.
            Err(_) => {
                let same = |(_, other): &&(&str, TcpListener)| {
                    other.local_addr().is_ok_and(|other| {
                        let is_all = other.ip().is_unspecified() || address.ip().is_unspecified();
                        other.port() == address.port() && (is_all || other.ip() == address.ip())
                    })
                };
                if let Some((other, _)) = listening.iter().find(same) {
                    return wrong(format!("{other} has the same address; choose another port"));
                }
            }
        }
    }
    Ok(())
}

fn address_warnings(config: &Config, sockets: &Sockets) -> Vec<String> {
    let is_in_use = |(_, address): &(&str, SocketAddr)| {
        TcpListener::bind(address).is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
    };
    let in_use = tcp_addresses(config, sockets).into_iter().filter(is_in_use);
    let warning = |(setting, address): (&str, SocketAddr)| {
        format!(
            "warning: {setting}: {address} is in use now; the daemon starts only if that is the one which it \
             replaces"
        )
    };
    in_use.map(warning).collect()
}

/// A daemon locks the pools on disks of this machine that it serves, so no other daemon can serve the calls that this mode leaves out.
fn unserved_half_warning(config: &Config) -> Option<String> {
    let serves_all = config.mode.serves_controller() && config.mode.serves_node();
    (!serves_all && config.has_local_pool()).then(|| {
        "with this ORLOP_MODE half of the calls for volumes of image and lvm pools are not served, and no other \
         daemon can serve them beside this one; choose ORLOP_MODE=all"
            .to_owned()
    })
}

fn peers_warning(config: &Config) -> Option<String> {
    cluster::load(config.peers.as_ref()?, config).ok()?.warning()
}

/// Where the page would be, and what it would allow.
fn page_plan(config: &Config, sockets: &Sockets) -> Result<Vec<String>, CheckError> {
    let Some(PageAddress { address, token_file }) = &sockets.page else { return Ok(Vec::new()) };
    let place = match address {
        HttpAddress::Tcp(address) => format!("at http://{address}/"),
        HttpAddress::Unix(path) => format!("on {}", path.display()),
    };
    let Some(file) = token_file else {
        return Ok(vec![format!("would serve the page {place}, read-only")]);
    };
    let warning = Page::check_token(file.clone()).map_err(|error| config.origin.locate(error))?;
    let plan = format!("would serve the page {place}, with changes for holders of its token");
    Ok([plan].into_iter().chain(warning.map(|text| format!("warning: {text}"))).collect())
}

/// A daemon that cannot register with kubelet starts all the same.
fn registration_warning(sockets: &Sockets) -> Option<String> {
    let path = &sockets.registration.as_ref()?.path;
    let error = orlop_csi::check_socket(path).err()?;
    Some(format!("cannot register with kubelet: ORLOP_REGISTER: {error}"))
}

fn check_ids(pools: &[PoolConfig]) -> Result<(), CheckError> {
    let mut seen = BTreeMap::new();
    for pool in pools {
        // A pool that cannot be read is opened later, when it can.
        let Ok(Some(id)) = id_of(pool) else { continue };
        if let Some(other) = seen.insert(id, pool.name()) {
            return Err(same_id_error(pool.name(), other).into());
        }
    }
    Ok(())
}

/// `None`: there is no pool yet, or only its cluster knows.
pub(crate) fn id_of(pool: &PoolConfig) -> orlop_model::Result<Option<PoolId>> {
    match pool {
        PoolConfig::Image(image) => ImagePool::id_at(&image.path),
        PoolConfig::Lvm(lvm) => LvmPool::id_of(lvm),
        PoolConfig::Rbd(_) => Ok(None),
    }
}

/// A pool directory that was copied has its original's id, and so have all volumes in it.
pub(crate) fn same_id_error(name: &str, other: &str) -> orlop_model::Error {
    orlop_model::Error::failed(
        format!("open pool {name}"),
        format!(
            "it has the same id as pool {other}: one is a copy of the other; configure only one of them"
        ),
    )
}

/// The image of a managed pool is sparse, so nothing else warns before its disk is full.
fn oversize_warning(pool: &PoolConfig) -> Option<String> {
    let PoolConfig::Image(image) = pool else { return None };
    let size = image.managed_size?;
    let disk = image.path.ancestors().find_map(|path| orlop_sys::file::space(path).ok())?.total;
    (size > disk).then(|| {
        format!(
            "the image of pool {} may grow to {}, and the disk at {} has {}: when that is full, \
             writes to volumes fail; choose a smaller ORLOP_POOL_IMAGE_SIZE or a larger disk",
            image.name,
            Bytes(size),
            image.path.display(),
            Bytes(disk)
        )
    })
}

/// Everything but the pools: a pool's disk may hang, and a start answers calls before it has read the pools.
pub(crate) fn check_machine(config: &Config, sockets: &Sockets) -> Result<(), CheckError> {
    let located = |error| config.origin.locate(error);
    telemetry::check(&config.log).map_err(located)?;
    overlap::check(config, sockets).map_err(located)?;
    for (setting, socket) in sockets.paths() {
        // A daemon that cannot register serves volumes that are in use, and tries again.
        if sockets.registration.as_ref().is_none_or(|registration| registration.path != socket) {
            let wrong = |error: orlop_csi::BindError| ConfigError::new(setting, error.to_string());
            orlop_csi::check_socket(socket).map_err(|error| located(wrong(error)))?;
        }
        check_can_create(setting, socket.parent().unwrap_or(socket), None).map_err(located)?;
    }
    check_addresses(config, sockets).map_err(located)?;
    if let Some(peers) = &config.peers {
        cluster::load(peers, config).map_err(located)?;
    }
    page_plan(config, sockets)?;
    let host = host_config(config);
    check_can_create("ORLOP_RUN_DIR", &host.run_dir, None).map_err(located)?;
    LinuxHost::check(&host).map_err(|error| refusal(&config.origin, error, None))
}

/// A start uses it for a pool that did not open, to tell a wrong setting from a failure.
pub(crate) fn check_pool(origin: &Origin, pool: &PoolConfig) -> Result<Vec<String>, CheckError> {
    let name = pool.name();
    let mut plan = Vec::from_iter(volatility(pool).map(|warning| format!("warning: {warning}")));
    let checked = match pool {
        PoolConfig::Image(image) => {
            // A start waits for a disk that is read-only for now.
            check_can_create("ORLOP_POOL", &image.path, Some(Errno::ROFS))
                .map_err(|error| origin.locate(error.of_pool(name)))?;
            ImagePool::check(image).map(|start| match start {
                Start::Open => None,
                Start::Make => Some(format!("would make pool {name} at {}", image.path.display())),
            })
        }
        PoolConfig::Lvm(lvm) => LvmPool::check(lvm).and_then(|()| lvm_plan(lvm)),
        PoolConfig::Rbd(rbd) => RbdPool::check(rbd).map(|()| None),
    };
    match checked {
        Ok(made) => plan.extend(made),
        Err(error @ orlop_model::Error::Unreachable { .. }) => {
            plan.push(format!("would start without pool {name} and wait for it: {error}"));
        }
        Err(error) => return Err(refusal(origin, error, Some(name))),
    }
    Ok(plan)
}

/// What a start would make of it. Reads the volume group, and changes nothing.
fn lvm_plan(lvm: &LvmPoolConfig) -> orlop_model::Result<Option<String>> {
    let LvmPoolConfig { name, group, thin_pool, create, .. } = lvm;
    let made = || format!("would make pool {name} in the thin pool {group}/{thin_pool}");
    Ok(LvmPool::id_of(lvm)?.is_none().then(made).filter(|_| *create))
}

/// Why the volumes of this pool do not last, in words.
pub(crate) fn volatility(pool: &PoolConfig) -> Option<String> {
    match pool {
        PoolConfig::Image(image) => ImagePool::volatility_at(&image.path)
            .map(|why| format!("pool {} at {} {why}", image.name, image.path.display())),
        PoolConfig::Lvm(_) | PoolConfig::Rbd(_) => None,
    }
}

/// Is a resource used up? Then the settings may be right.
pub(crate) fn is_shortage(error: &CheckError) -> bool {
    error.downcast_ref().is_some_and(|it| matches!(it, orlop_model::Error::Exhausted(_)))
}

fn refusal(origin: &Origin, error: orlop_model::Error, pool: Option<&str>) -> CheckError {
    let orlop_model::Error::Invalid { field, reason } = error else { return error.into() };
    let mut mistake = ConfigError::new(field, reason);
    if let Some(pool) = pool {
        mistake = mistake.of_pool(pool);
    }
    origin.locate(mistake).into()
}

/// Does the directory exist, or can it be created?
fn check_can_create(
    setting: &str,
    directory: &Path,
    tolerated: Option<Errno>,
) -> Result<(), ConfigError> {
    let wrong = |problem: String| Err(ConfigError::new(setting, problem));
    if let Some(problem) = too_long(directory) {
        return wrong(problem);
    }
    let nearest = directory.ancestors().find(|path| path.symlink_metadata().is_ok());
    let Some(nearest) = nearest else { return Ok(()) };
    let (path, parent) = (directory.display(), nearest.display());
    if !nearest.is_dir() {
        return wrong(format!("cannot create {path}: {parent} is not a directory"));
    }
    if let Some(filesystem) = kernel_filesystem(nearest) {
        return wrong(format!(
            "cannot create {path}: {parent} is on {filesystem}, a filesystem of the kernel; choose a \
             directory on a disk or a tmpfs"
        ));
    }
    match access(nearest, Access::WRITE_OK | Access::EXEC_OK) {
        Err(error) if nearest != directory && Some(error) != tolerated => {
            wrong(format!("cannot create {path} in {parent}: {error}"))
        }
        // A directory that exists may be read-only for now; opening it reports that.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// NAME_MAX and PATH_MAX of Linux; the latter leaves room for what is made in the directory.
fn too_long(directory: &Path) -> Option<String> {
    const LONGEST_NAME: usize = 255;
    const LONGEST_PATH: usize = 3500;
    let long = directory.components().find(|name| name.as_os_str().len() > LONGEST_NAME);
    if let Some(name) = long {
        let name: String = name.as_os_str().to_string_lossy().chars().take(16).collect();
        return Some(format!(
            "cannot be created: the name {name}... is longer than {LONGEST_NAME} bytes"
        ));
    }
    let length = directory.as_os_str().len();
    let is_long = length > LONGEST_PATH;
    is_long.then(|| format!("cannot be created: the path is longer than {LONGEST_PATH} bytes"))
}

fn kernel_filesystem(directory: &Path) -> Option<&'static str> {
    let kind = u64::try_from(statfs(directory).ok()?.f_type).ok()?;
    KERNEL_FILESYSTEMS.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name)
}
