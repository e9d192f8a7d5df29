//! `orlop serve`: starts the parts of the daemon, and stops them in order after a signal.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use orlop_csi::{ClusterMemory, Executor, Features, Mode, RegisteredPlugin, Routes, Socket};
use orlop_engine::Engine;
use orlop_engine::request::NodeInfo;
use orlop_host::{LinuxHost, LinuxHostConfig, ThawsUnderWay};
use orlop_model::Host;
use orlop_pools::rbd::RbdPool;
use orlop_sys::descriptors;
use orlop_sys::malloc::Trimmer;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::check::CheckError;
use crate::cluster::Cluster;
use crate::config::{Config, ConfigError, HttpAddress, PoolConfig, Sockets};
use crate::http::{Health, HttpListener, Pages, WantedListener};
use crate::metrics::{About, Metrics};
use crate::open_pools::OpenPools;
use crate::page::Page;
use crate::pool_startup;
use crate::registration::Registration;
use crate::signals::Signals;
#[cfg(feature = "otel")]
use crate::span_export;
use crate::{events, privileges, telemetry, thaw_helper};

/// A thread that is started for a call makes it slower by as much as a short call takes.
const IDLE_THREAD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a stop waits for tasks that are about to end anyway.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
const TRIM_INTERVAL: Duration = Duration::from_secs(5);

/// Why the daemon could not start or go on.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct Failure {
    why: CheckError,
    is_misconfiguration: bool,
}

impl Failure {
    pub(crate) fn of(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { why: Box::new(error), is_misconfiguration: false }
    }

    /// A mistake in the settings that is found only when the pools are opened, after the socket has begun to answer: a
    /// pool's disk may hang.
    pub(crate) fn misconfigured(why: CheckError) -> Self {
        Self { why, is_misconfiguration: true }
    }

    pub(crate) fn is_misconfiguration(&self) -> bool {
        self.is_misconfiguration
    }
}

pub(crate) fn serve(mut config: Config, sockets: Sockets) -> Result<(), Failure> {
    set_thaw_helper(&mut config);
    raise_descriptor_limit();
    privileges::give_up(&config).map_err(Failure::of)?;
    telemetry::start_writer().map_err(Failure::of)?;
    let host = LinuxHost::new(host_config(&config)).map_err(Failure::of)?;
    // Workloads are blocked until their filesystems are thawed, so this comes before all that may take time.
    let thaws = match config.uses_machine() {
        true => Some(host.begin_to_thaw_left_frozen().map_err(Failure::of)?),
        false => None,
    };
    check_descriptors_are_left().map_err(Failure::of)?;
    // One async worker is enough to accept and parse; calls run on blocking threads. A second worker would be woken
    // for each call without anything to do.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_keep_alive(IDLE_THREAD_TIMEOUT)
        .max_blocking_threads(orlop_csi::max_threads(config.pools.len()))
        .enable_all()
        .build()
        .map_err(Failure::of)?;
    let host = Arc::new(host);
    // By a pointer, as in the client.
    let serving: Pin<Box<dyn Future<Output = Result<(), Failure>>>> =
        Box::pin(run(config, sockets, (Arc::clone(&host), thaws)));
    let outcome = runtime.block_on(serving);
    // What is still running waits for a pool that does not answer.
    runtime.shutdown_background();
    host.leave();
    outcome
}

/// The socket answers before the pools are read, so that Probe can say "not ready yet".
async fn run(
    config: Config,
    sockets: Sockets,
    (host, thaws): (Arc<LinuxHost>, Option<ThawsUnderWay>),
) -> Result<(), Failure> {
    let mut signals = Signals::new().map_err(Failure::of)?;
    let features = features(&config, host.as_ref());
    let Some(socket) = bind(&sockets.csi, &mut signals).await? else { return Ok(()) };
    let addons_socket = match &sockets.addons {
        None => None,
        Some(path) => match bind(path, &mut signals).await? {
            None => return Ok(()),
            socket => socket,
        },
    };
    let mut http = Vec::new();
    for wanted in WantedListener::all(&sockets) {
        match listen_for_http(&wanted, &config, &mut signals).await? {
            None => return Ok(()),
            Some(listener) => http.push((listener, wanted)),
        }
    }
    tracing::info!(
        version = %features.version,
        socket = %sockets.csi.display(),
        node = %config.node_id,
        "listening; opening the pools"
    );
    let executor = Arc::new(Executor::starting().with_events(events::log()));
    let (stop, stopped) = watch::channel(false);
    let shared_core = || Arc::clone(&executor);
    let features = Arc::new(features);
    let routes = Routes::csi(&executor, &features);
    let cluster = match &config.peers {
        None => None,
        Some(peers) => {
            let memory = ClusterMemory::default();
            let routes = routes.clone().with_peer(&executor, &features, &memory);
            let cluster = Cluster::join(
                peers,
                &config,
                (routes, shared_core(), memory),
                stopping(stopped.clone()),
            );
            Some(cluster.await?)
        }
    };
    let router = |routes: Routes| cluster.as_ref().and_then(|cluster| cluster.router(routes));
    let introspection = config.introspection;
    let answer = |socket: Socket, routes: Routes| {
        let until = stopping(stopped.clone());
        let routes = match introspection {
            true => routes.with_introspection(socket.path()),
            false => routes,
        };
        match router(routes.clone()) {
            Some(router) => tokio::spawn(orlop_csi::serve(socket, shared_core(), router, until)),
            None => tokio::spawn(orlop_csi::serve(socket, shared_core(), routes, until)),
        }
    };
    let addons = addons_socket.map(|socket| answer(socket, Routes::addons(&executor, &features)));
    let csi = answer(socket, routes);
    // Only now: kubelet calls the CSI socket as soon as it sees that of the registration.
    let registration = sockets.registration.map(|socket| {
        let driver_name = config.driver_name.clone();
        let plugin = RegisteredPlugin { driver_name, endpoint: socket.endpoint };
        tokio::spawn(Registration::new(socket.path, plugin).keep(stopped.clone()))
    });
    let peers = cluster.as_ref().map(Cluster::status);
    let about = about(&config, &features);
    let page = sockets.page.map(|page| {
        let core = (shared_core(), peers.clone());
        Arc::new(Page::new(about.clone(), config.mode, core, sockets.csi.clone(), page.token_file))
    });
    let watching = page.as_ref().map(|page| tokio::spawn(Arc::clone(page).watch()));
    let metrics = Arc::new(Metrics::new(about, shared_core(), peers, &config));
    let answer_http = |(listener, wanted): (HttpListener, WantedListener)| {
        let metrics = wanted.has_metrics.then(|| Arc::clone(&metrics));
        let page = page.clone().filter(|_| wanted.has_page);
        let pages = Pages { health: Health::of(sockets.csi.clone()), metrics, page };
        tokio::spawn(listener.serve(pages))
    };
    let http: Vec<_> = http.into_iter().map(answer_http).collect();

    #[cfg(feature = "otel")]
    let exporting = config.otlp_endpoint.clone().map(|endpoint| {
        let of_daemon = span_export::OfDaemon::of(&config);
        tokio::spawn(span_export::export(endpoint, of_daemon, stopped.clone()))
    });
    let trimming = tokio::spawn(trim_memory());
    let pools = Arc::new(OpenPools::default());
    let outcome = open_and_wait(config, (host, thaws), (&executor, &pools), &mut signals).await;
    for background in [Some(trimming), watching].into_iter().flatten() {
        background.abort();
    }
    stop.send_replace(true);
    for serving in [registration, Some(csi), addons].into_iter().flatten() {
        serving.await.map_err(Failure::of)?.map_err(Failure::of)?;
    }
    if let Some(cluster) = cluster {
        cluster.leave().await?;
    }
    executor.drained().await;
    for http in http {
        http.abort();
        // Its socket is removed by then.
        let _ = http.await;
    }
    pools.close(&executor.hung_pools());
    #[cfg(feature = "otel")]
    if let Some(exporting) = exporting {
        // It stops soon after `stop`.
        let _ = exporting.await;
    }
    outcome?;
    tracing::info!("stopped");
    Ok(())
}

/// `None`: a signal asked to stop. Binding may have to wait for the lock of the socket.
async fn bind(path: &Path, signals: &mut Signals) -> Result<Option<Socket>, Failure> {
    let path = path.to_owned();
    let mut binding = tokio::task::spawn_blocking(move || orlop_csi::bind(&path));
    tokio::select! {
        bound = &mut binding => Ok(Some(bound.map_err(Failure::of)?.map_err(Failure::of)?)),
        () = signals.received() => {
            // If the socket is made in this instant, it is removed before the process ends.
            let _ = tokio::time::timeout(STOP_TIMEOUT, binding).await;
            tracing::info!("stopped");
            Ok(None)
        }
    }
}

fn about(config: &Config, features: &Features) -> About {
    About {
        version: features.version.clone(),
        driver: config.driver_name.clone(),
        mode: match config.mode {
            Mode::Controller if config.is_router => "router",
            Mode::Controller => "controller",
            Mode::Node => "node",
            Mode::All => "all",
        },
        node: config.node_id.to_string(),
        volumes: config.metrics_volumes,
    }
}

/// `None`: a signal asked to stop.
async fn listen_for_http(
    wanted: &WantedListener,
    config: &Config,
    signals: &mut Signals,
) -> Result<Option<HttpListener>, Failure> {
    let paths = wanted.paths();
    let listener = match &wanted.address {
        HttpAddress::Tcp(address) => {
            let bound = TcpListener::bind(address).await;
            let listener = bound.map_err(|error| {
                let problem = format!("cannot listen at {address}: {error}");
                let mistake = ConfigError::new(wanted.setting, problem);
                Failure::misconfigured(config.origin.locate(mistake).into())
            })?;
            tracing::info!(%address, "answering {paths}");
            HttpListener::Tcp(listener)
        }
        HttpAddress::Unix(path) => {
            let Some(socket) = bind(path, signals).await? else { return Ok(None) };
            tracing::info!(socket = %path.display(), "answering {paths}");
            HttpListener::on_socket(socket).map_err(Failure::of)?
        }
    };
    Ok(Some(listener))
}

/// Returns memory that was freed after many calls, or after a list of thousands of volumes.
async fn trim_memory() {
    let mut trimmer = Trimmer::default();
    loop {
        tokio::time::sleep(TRIM_INTERVAL).await;
        let trimmed = tokio::task::spawn_blocking(move || {
            let trimmed = trimmer.trim();
            (trimmer, trimmed)
        });
        let Ok((used, trimmed)) = trimmed.await else { return };
        trimmer = used;
        if let Err(error) = trimmed {
            tracing::debug!(%error, "cannot return freed memory to the system");
        }
    }
}

/// Returns when a signal asks to stop.
async fn open_and_wait(
    config: Config,
    (host, thaws): (Arc<LinuxHost>, Option<ThawsUnderWay>),
    (executor, pools): (&Arc<Executor>, &Arc<OpenPools>),
    signals: &mut Signals,
) -> Result<(), Failure> {
    let (shared, serving) = (Arc::clone(pools), Arc::clone(executor));
    let serve = move |engine: &Engine| serving.ready(Arc::new(engine.clone()));
    let mut opening = tokio::task::spawn_blocking(move || {
        if let Some(thaws) = thaws {
            thaws.wait();
        }
        pool_startup::open(&config, host, &shared, serve)
    });
    let opened = tokio::select! {
        opened = &mut opening => opened.map_err(Failure::of)??,
        () = signals.received() => {
            tracing::info!("stopping: the pools are still being opened");
            pools.stop();
            // Opening ends at once, unless a pool that was just opened does not answer.
            let _ = tokio::time::timeout(STOP_TIMEOUT, opening).await;
            return Ok(());
        }
    };
    executor.ready(Arc::new(opened.engine.clone()));
    tracing::info!(absent = opened.absent.len(), "ready");
    pool_startup::open_absent_later(executor, opened, pools).map_err(Failure::of)?;
    signals.received().await;
    tracing::info!("stopping: finishing running calls");
    Ok(())
}

async fn stopping(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a reason to stop as well.
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// tokio panics if no descriptor is left for its pair of sockets for signals.
fn check_descriptors_are_left() -> std::io::Result<()> {
    const PAIRS: usize = 4;
    (0..PAIRS).map(|_| UnixStream::pair()).collect::<std::io::Result<Vec<_>>>().map(drop)
}

fn raise_descriptor_limit() {
    match descriptors::raise_to_maximum() {
        Ok(limit) => tracing::debug!(?limit, "the limit of open files"),
        Err(error) => tracing::warn!(%error, "cannot raise the limit of open files"),
    }
}

/// For managed pools, which are frozen for a moment when their image has grown, and for devices that an lvm pool has
/// suspended.
fn set_thaw_helper(config: &mut Config) {
    for pool in &mut config.pools {
        match pool {
            PoolConfig::Image(image) => {
                image.thaw_helper = Some(thaw_helper::command(config.log.format));
            }
            PoolConfig::Lvm(lvm) => {
                lvm.thaw_helper = Some(thaw_helper::command(config.log.format));
                lvm.suspend_limit = config.freeze_limit;
            }
            PoolConfig::Rbd(_) => {}
        }
    }
}

pub(crate) fn host_config(config: &Config) -> LinuxHostConfig {
    LinuxHostConfig {
        run_dir: config.run_dir.join(&config.driver_name),
        alone: config.uses_machine(),
        protected_paths: config.pools.iter().filter_map(PoolConfig::directory).collect(),
        filesystems: config.filesystems.clone(),
        default_fs: config.default_fs,
        workload_cgroup: config.workload_cgroup.clone(),
        freeze_limit: config.freeze_limit,
        thaw_helper: Some(thaw_helper::command(config.log.format)),
        encryption: config.encryption.clone(),
    }
}

fn features(config: &Config, host: &dyn Host) -> Features {
    let limits = host.check_limits_work();
    if let Err(reason) = &limits
        && !config.is_router
    {
        tracing::warn!(%reason, "I/O limits are not offered");
    }
    Features {
        driver_name: config.driver_name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node: NodeInfo {
            id: config.node_id.clone(),
            topology: config.topology.clone(),
            max_volumes: config.max_volumes,
        },
        attach: config.attach,
        // A router asks its peers whether they can limit I/O.
        limits: limits.is_ok() || config.is_router,
        group_snapshots: config.is_router
            || config.pools.iter().any(|pool| match pool {
                PoolConfig::Image(_) | PoolConfig::Lvm(_) => true,
                PoolConfig::Rbd(_) => RbdPool::takes_group_snapshots(),
            }),
        mode: config.mode,
    }
}
