//! `orlop serve`: put the parts together, answer until told to stop, leave nothing half-done.

use std::sync::Arc;
use std::time::Duration;

use orlop_csi::{Core, Offers};
use orlop_engine::request::NodeInfo;
use orlop_engine::{Engine, Settings};
use orlop_host::{LinuxHost, LinuxHostConfig};
use orlop_model::{Host, Pool};
use orlop_pools::image::ImagePool;
use orlop_pools::rbd::RbdPool;
use orlop_sys::memory;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::config::{Config, PoolConfig};
use crate::thaw_guard;

const SHRINK_EVERY: Duration = Duration::from_secs(5);

/// Why the daemon could not start or go on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failure(Box<dyn std::error::Error + Send + Sync>);

impl Failure {
    fn of(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self(Box::new(error))
    }
}

pub(crate) fn serve(config: Config) -> Result<(), Failure> {
    let host = LinuxHost::new(host_config(&config)).map_err(Failure::of)?;
    // Two are enough to accept and parse; the work is done on blocking threads.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(Failure::of)?;
    runtime.block_on(run(config, Arc::new(host)))
}

/// The socket answers before the pools are read, so that Probe can say "not ready yet".
async fn run(config: Config, host: Arc<LinuxHost>) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let offers = offers(&config, host.as_ref());
    let socket = orlop_csi::bind(&config.socket).map_err(Failure::of)?;
    let addons_socket =
        config.addons_socket.as_deref().map(orlop_csi::bind).transpose().map_err(Failure::of)?;
    tracing::info!(
        version = %offers.version,
        socket = %config.socket.display(),
        node = %config.node_id,
        "answering; reading the pools"
    );
    let core = Arc::new(Core::starting());
    let (stop, stopped) = watch::channel(false);
    let shared_core = || Arc::clone(&core);
    let addons = addons_socket.map(|socket| {
        let until = stopping(stopped.clone());
        tokio::spawn(orlop_csi::serve_addons(socket, shared_core(), offers.clone(), until))
    });
    let csi = tokio::spawn(orlop_csi::serve(socket, shared_core(), offers, stopping(stopped)));

    let shrinking = tokio::spawn(stay_small());
    let outcome = open_and_wait(config, host, &core, &mut signals).await;
    shrinking.abort();
    stop.send_replace(true);
    for serving in [Some(csi), addons].into_iter().flatten() {
        serving.await.map_err(Failure::of)?.map_err(Failure::of)?;
    }
    core.drained().await;
    for pool in outcome? {
        pool.close();
    }
    tracing::info!("stopped");
    Ok(())
}

/// A rush of calls, or a list of thousands of volumes, is no reason to stay as large as that.
async fn stay_small() {
    let mut resident = 0;
    loop {
        tokio::time::sleep(SHRINK_EVERY).await;
        let looked = tokio::task::spawn_blocking(move || memory::give_back(resident)).await;
        match looked {
            Ok(Ok(now)) => resident = now,
            Ok(Err(error)) => return tracing::debug!(%error, "memory is kept"),
            Err(_stopping) => return,
        }
    }
}

/// Returns the pools that were opened, once it is time to stop.
async fn open_and_wait(
    config: Config,
    host: Arc<LinuxHost>,
    core: &Core,
    signals: &mut Signals,
) -> Result<Vec<OpenPool>, Failure> {
    let opening = tokio::task::spawn_blocking(move || open(&config, host));
    let (engine, pools) = tokio::select! {
        opened = opening => opened.map_err(Failure::of)??,
        () = signals.received() => return Ok(Vec::new()),
    };
    core.ready(Arc::new(engine));
    tracing::info!("ready");
    signals.received().await;
    tracing::info!("stopping: finishing what is running");
    Ok(pools)
}

fn open(config: &Config, host: Arc<LinuxHost>) -> Result<(Engine, Vec<OpenPool>), Failure> {
    let mut pools = Vec::new();
    for pool in &config.pools {
        pools.push(OpenPool::open(pool.clone()).map_err(Failure::of)?);
    }
    host.thaw_leftovers().map_err(Failure::of)?;
    let served = pools.iter().map(OpenPool::served).collect();
    let settings = Settings {
        node_id: config.node_id.clone(),
        place: config.place.clone(),
        attach: config.attach,
        max_volumes: config.max_volumes,
        default_capacity: config.default_capacity,
    };
    let engine = Engine::new(served, host, settings).map_err(Failure::of)?;
    Ok((engine, pools))
}

enum OpenPool {
    Image(Arc<ImagePool>),
    Rbd(Arc<RbdPool>),
}

impl OpenPool {
    fn open(config: PoolConfig) -> orlop_model::Result<Self> {
        match config {
            PoolConfig::Image(config) => Ok(Self::Image(Arc::new(ImagePool::open(config)?))),
            PoolConfig::Rbd(config) => Ok(Self::Rbd(Arc::new(RbdPool::open(&config)?))),
        }
    }

    fn served(&self) -> Arc<dyn Pool> {
        match self {
            Self::Image(pool) => Arc::<ImagePool>::clone(pool),
            Self::Rbd(pool) => Arc::<RbdPool>::clone(pool),
        }
    }

    fn close(&self) {
        match self {
            Self::Image(pool) => pool.close(),
            // The cluster keeps no account of who has a pool open.
            Self::Rbd(_) => {}
        }
    }
}

async fn stopping(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a reason to stop as well.
    let _ = stopped.wait_for(|stop| *stop).await;
}

fn host_config(config: &Config) -> LinuxHostConfig {
    LinuxHostConfig {
        run_dir: config.run_dir.join(&config.driver_name),
        filesystems: config.filesystems.clone(),
        default_fs: config.default_fs,
        workload_cgroup: config.workload_cgroup.clone(),
        freeze_limit: config.freeze_limit,
        guard: Some(thaw_guard::command(config.log.format)),
    }
}

fn offers(config: &Config, host: &dyn Host) -> Offers {
    let limits = host.check_limits_work();
    if let Err(reason) = &limits {
        tracing::warn!(%reason, "I/O limits are not offered");
    }
    Offers {
        driver_name: config.driver_name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node: NodeInfo {
            id: config.node_id.clone(),
            place: config.place.clone(),
            max_volumes: config.max_volumes,
        },
        attach: config.attach,
        limits: limits.is_ok(),
        group_snapshots: config.pools.iter().any(|pool| match pool {
            PoolConfig::Image(_) => true,
            // What RBD cuts together cannot be restored before librbd has rbd_clone4.
            PoolConfig::Rbd(_) => false,
        }),
        mode: config.mode,
    }
}

/// SIGTERM from a supervisor, SIGINT from a terminal.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(Failure::of)?,
            interrupt: signal(SignalKind::interrupt()).map_err(Failure::of)?,
        })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
