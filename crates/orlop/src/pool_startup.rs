//! Opens the pools. One that is on a cluster that is away, or on a disk that is missing or broken,
//! comes later: the daemon serves the others first, and takes it into service when it can be
//! reached.

mod run_dir_mark;

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use orlop_csi::Executor;
use orlop_engine::{AbsentPool, Engine, EngineSettings};
use orlop_host::LinuxHost;
use orlop_model::{Error, PoolId, Reason, Result};
use orlop_pools::image::ImagePool;
use orlop_pools::lvm::LvmPool;
use orlop_pools::rbd::RbdPool;
use orlop_sys::device_mapper;

use crate::check;
use crate::config::{Config, Origin, PoolConfig};
use crate::open_pools::{OpenPool, OpenPools};
use crate::serve::Failure;
use run_dir_mark::mark_run_dir;

/// Longer than most operations take, shorter than callers wait.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_RETRY_INTERVAL: Duration = Duration::from_secs(1);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// A pool that takes longer to open is absent until it is open: its disk may hang, and no start
/// waits for that.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// From then on the pools that are open are served, while the others are still waited for: whether
/// one is away or its settings are mistaken may take longer to find out.
const SERVE_OTHERS_AFTER: Duration = Duration::from_secs(2);
/// Between two looks at what is being opened.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The same for pools that come later.
const ABSENT_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Which configured pool has which id. A pool directory that was copied has its original's id, and so
/// have all volumes in it; it must not be swept as the original is. Also a pool that is away again, or
/// still being opened, keeps its id.
#[derive(Clone, Default)]
struct PoolIdClaims(Arc<Mutex<BTreeMap<PoolId, String>>>);

impl PoolIdClaims {
    fn is_claimed_by(&self, name: &str) -> bool {
        let claimed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        claimed.values().any(|by| by == name)
    }

    fn claim(&self, id: &PoolId, name: &str) -> Result<()> {
        let mut claimed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let by = claimed.entry(id.clone()).or_insert_with(|| name.to_owned());
        if by == name {
            return Ok(());
        }
        Err(check::same_id_error(name, by))
    }
}

/// What there is to begin with.
pub(crate) struct OpenedPools {
    pub(crate) engine: Engine,
    pub(crate) absent: Vec<PoolOpening>,
    host: Arc<LinuxHost>,
}

/// A pool that comes later.
pub(crate) struct PoolOpening {
    config: PoolConfig,
    claims: PoolIdClaims,
    pools: Arc<OpenPools>,
    /// The attempt that is under way; else it is to be tried again.
    attempt: Option<OpeningAttempt>,
}

struct OpeningAttempt {
    begun: Instant,
    /// Where the result arrives.
    result: Receiver<Result<OpenPool>>,
}

impl PoolOpening {
    fn new(config: &PoolConfig, claims: &PoolIdClaims, pools: &Arc<OpenPools>) -> Self {
        let (config, claims, pools) = (config.clone(), claims.clone(), Arc::clone(pools));
        Self { config, claims, pools, attempt: None }
    }

    fn has_claimed(&self) -> bool {
        self.claims.is_claimed_by(self.config.name())
    }

    /// What came of it, as far as it is known; begun again where an earlier attempt has ended.
    fn open(&mut self) -> Option<Result<OpenPool>> {
        let attempt = match self.attempt.take() {
            Some(attempt) => attempt,
            None => match self.begin() {
                Ok(attempt) => attempt,
                Err(error) => return Some(Err(error)),
            },
        };
        match attempt.result.try_recv() {
            Ok(opened) => Some(opened),
            Err(TryRecvError::Empty) => {
                self.attempt = Some(attempt);
                None
            }
            Err(TryRecvError::Disconnected) => {
                let reason = "a thread panicked; the log says where";
                Some(Err(Error::failed(format!("open pool {}", self.config.name()), reason)))
            }
        }
    }

    fn begin(&self) -> Result<OpeningAttempt> {
        let (sender, result) = mpsc::sync_channel(1);
        let (config, claims) = (self.config.clone(), self.claims.clone());
        let pools = Arc::clone(&self.pools);
        // Of a Ceph pool nothing is left on the machine that a stop would have to wait for.
        let guard = match self.config {
            PoolConfig::Image(_) | PoolConfig::Lvm(_) => Some(pools.begin_opening()),
            PoolConfig::Rbd(_) => None,
        };
        let open = move || {
            let opened = open_pool(&config, &claims).inspect(|open| pools.add(open.clone()));
            drop(guard);
            // The receiver is gone only if the daemon ends.
            let _ = sender.send(opened);
        };
        let thread = thread::Builder::new().name("open-pool".to_owned());
        thread.spawn(open).map_err(|error| Error::failed("start a thread", Reason::of(error)))?;
        Ok(OpeningAttempt { begun: Instant::now(), result })
    }

    fn takes_long(&self) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.begun.elapsed() >= OPEN_TIMEOUT)
    }

    fn not_open_yet(&self) -> Error {
        let reason = match &self.config {
            PoolConfig::Image(_) => "it is not open yet: its disk is slow or does not answer",
            PoolConfig::Lvm(_) => {
                "it is not open yet: a disk of its volume group is slow or does not answer, or another command of LVM \
                 holds the lock of the volume group"
            }
            PoolConfig::Rbd(_) => "it is not open yet: the Ceph cluster is slow or does not answer",
        };
        Error::unreachable(format!("open pool {}", self.config.name()), reason)
    }

    /// A directory that a pool is missing from may become empty while we wait: a broken disk is
    /// unmounted to be repaired. Only a start makes a new pool.
    fn without_create(mut self) -> Self {
        match &mut self.config {
            PoolConfig::Image(image) => image.create = false,
            PoolConfig::Lvm(lvm) => lvm.create = false,
            PoolConfig::Rbd(_) => {}
        }
        self
    }
}

fn open_pool(config: &PoolConfig, claims: &PoolIdClaims) -> Result<OpenPool> {
    let claim = |id: &PoolId| claims.claim(id, config.name());
    match config {
        PoolConfig::Image(config) => {
            Ok(OpenPool::Image(Arc::new(ImagePool::open_if(config.clone(), claim)?)))
        }
        PoolConfig::Lvm(config) => {
            load_targets();
            Ok(OpenPool::Lvm(Arc::new(LvmPool::open_if(config.clone(), claim)?)))
        }
        PoolConfig::Rbd(config) => Ok(OpenPool::Rbd(Arc::new(RbdPool::open_if(config, claim)?))),
    }
}

/// LVM loads modules by a program, which may not do that with the rights that the daemon has kept.
fn load_targets() {
    for kind in ["thin-pool", "snapshot", "raid"] {
        match device_mapper::has_target(kind) {
            Ok(true) => {}
            Ok(false) => tracing::warn!(
                target_of_device_mapper = kind,
                "the kernel has no module for this kind of volume; `modprobe dm_mod` and the kernel log may say why"
            ),
            Err(error) => tracing::warn!(%error, "cannot ask device-mapper what it has"),
        }
    }
}

/// All pools are opened at once. Whatever is wrong with one but that it cannot be reached is a mistake
/// that the operator has to know of at once, and ends the start. `serve` gets what is open already
/// where that takes long.
pub(crate) fn open(
    config: &Config,
    host: Arc<LinuxHost>,
    pools: &Arc<OpenPools>,
    serve: impl Fn(&Engine),
) -> std::result::Result<OpenedPools, Failure> {
    let settings = EngineSettings {
        node_id: config.node_id.clone(),
        topology: config.topology.clone(),
        attach: config.attach,
        max_volumes: config.max_volumes,
        default_capacity: config.default_capacity,
        lock_timeout: LOCK_TIMEOUT,
    };
    let engine = Engine::new(Vec::new(), Arc::<LinuxHost>::clone(&host), settings);
    let engine = engine.map_err(Failure::of)?;
    let mut opened = OpenedPools { engine, absent: Vec::new(), host };
    let claims = PoolIdClaims::default();
    let mut opening: Vec<_> =
        config.pools.iter().map(|pool| PoolOpening::new(pool, &claims, pools)).collect();
    let begun = Instant::now();
    let mut served = 0;
    while !opening.is_empty() && !pools.is_stopping() {
        let all = begun.elapsed() >= SERVE_OTHERS_AFTER;
        opened.add_opened(&mut opening, pools, &config.origin, all)?;
        if begun.elapsed() >= OPEN_TIMEOUT {
            opening.drain(..).for_each(|pool| opened.mark_absent(pool.not_open_yet(), pool));
        }
        let open = config.pools.len() - opening.len() - opened.absent.len();
        if begun.elapsed() >= SERVE_OTHERS_AFTER && open > served {
            served = open;
            serve(&opened.without(&opening));
        }
        if !opening.is_empty() {
            thread::sleep(POLL_INTERVAL);
        }
    }
    opened.engine.report_unknown_pools();
    Ok(opened)
}

/// With the words and the code of `--check`, where that would refuse the pool too.
fn refused(origin: &Origin, pool: &PoolConfig, error: Error) -> Failure {
    // Without descriptors or space the check finds nothing that would have to do with the settings.
    if matches!(error, Error::Exhausted(_)) {
        return Failure::of(error);
    }
    match check::check_pool(origin, pool) {
        Err(refusal) if !check::is_shortage(&refusal) => Failure::misconfigured(refusal),
        Ok(_) | Err(_) => Failure::of(error),
    }
}

impl OpenedPools {
    /// In the order of the configuration until each id is known, so that of a pool and its copy the
    /// later one is refused, untouched; `all`: beside one that takes long, too.
    fn add_opened(
        &mut self,
        opening: &mut Vec<PoolOpening>,
        pools: &OpenPools,
        origin: &Origin,
        all: bool,
    ) -> std::result::Result<(), Failure> {
        let mut failure = Ok(());
        for mut pool in std::mem::take(opening) {
            if failure.is_err() || !all && opening.iter().any(|earlier| !earlier.has_claimed()) {
                opening.push(pool);
                continue;
            }
            let opened = pool.open();
            let added = opened.map(|opened| {
                opened
                    .and_then(|open| take_in(&self.engine, &self.host, pools, &open, &pool.config))
            });
            match added {
                None => opening.push(pool),
                Some(Ok(engine)) => self.engine = engine,
                Some(Err(why @ Error::Unreachable { .. })) => self.mark_absent(why, pool),
                Some(Err(error)) => failure = Err(refused(origin, &pool.config, error)),
            }
        }
        failure
    }

    fn mark_absent(&mut self, why: Error, pool: PoolOpening) {
        let name = pool.config.name().to_owned();
        tracing::warn!(pool = name, %why, "the pool is absent; it is opened when it appears");
        let is_hung = pool.attempt.is_some();
        self.engine = self.engine.with_absent(AbsentPool { name, why, is_hung });
        self.absent.push(pool.without_create());
    }

    /// For as long as these are being opened.
    fn without(&self, opening: &[PoolOpening]) -> Engine {
        opening.iter().fold(self.engine.clone(), |engine, pool| {
            let name = pool.config.name().to_owned();
            tracing::warn!(pool = name, "the pool takes long to open; the other pools are served");
            engine.with_absent(AbsentPool { name, why: pool.not_open_yet(), is_hung: true })
        })
    }
}

/// A pool that cannot be served is closed.
fn take_in(
    engine: &Engine,
    host: &LinuxHost,
    pools: &OpenPools,
    open: &OpenPool,
    config: &PoolConfig,
) -> Result<Engine> {
    with_pool(engine, host, open, config).inspect_err(|_| pools.discard(open))
}

fn with_pool(
    engine: &Engine,
    host: &LinuxHost,
    open: &OpenPool,
    config: &PoolConfig,
) -> Result<Engine> {
    let engine = engine.with_pool(open.served())?;
    if let Some(pool) = open.stamped() {
        mark_run_dir(host, &engine, pool, config)?;
    }
    Ok(engine)
}

/// Returns at once. The thread that waits ends when all pools are there, or the daemon is not.
pub(crate) fn open_absent_later(
    executor: &Arc<Executor>,
    opened: OpenedPools,
    pools: &Arc<OpenPools>,
) -> std::io::Result<()> {
    if opened.absent.is_empty() {
        return Ok(());
    }
    let (executor, pools) = (Arc::downgrade(executor), Arc::clone(pools));
    let waiting = thread::Builder::new().name("absent-pools".to_owned());
    waiting.spawn(move || retry_absent(&executor, opened, &pools)).map(drop)
}

/// A pool that is opened again and again until it is there.
struct AbsentRetry {
    pool: PoolOpening,
    next: Instant,
    pause: Duration,
}

impl AbsentRetry {
    fn new(pool: PoolOpening) -> Self {
        Self { pool, next: Instant::now() + FIRST_RETRY_INTERVAL, pause: FIRST_RETRY_INTERVAL }
    }

    /// `None`: nothing new. Never waits, so no absent pool holds up another.
    fn try_open(&mut self) -> Option<Result<OpenPool>> {
        if Instant::now() < self.next {
            return None;
        }
        match self.pool.open() {
            None if self.pool.takes_long() => Some(Err(self.pool.not_open_yet())),
            opened => opened,
        }
    }

    /// An attempt that is still running is checked again at once: its disk may answer.
    fn pause_after_attempt(&mut self) {
        if self.pool.attempt.is_none() {
            self.pause = MAX_RETRY_INTERVAL.min(2 * self.pause);
            self.next = Instant::now() + self.pause;
        }
    }
}

/// Each pool is served as soon as it is open.
fn retry_absent(executor: &Weak<Executor>, opened: OpenedPools, pools: &OpenPools) {
    let OpenedPools { mut engine, absent, host } = opened;
    let mut absent: Vec<_> = absent.into_iter().map(AbsentRetry::new).collect();
    while !absent.is_empty() {
        thread::sleep(ABSENT_POLL_INTERVAL);
        let mut still_absent = Vec::new();
        for mut retry in absent {
            let Some(executor) = executor.upgrade().filter(|_| !pools.is_stopping()) else {
                return;
            };
            let Some(opened) = retry.try_open() else {
                still_absent.push(retry);
                continue;
            };
            let name = retry.pool.config.name().to_owned();
            match opened.and_then(|open| take_in(&engine, &host, pools, &open, &retry.pool.config))
            {
                Ok(with) => {
                    engine = with;
                    executor.ready(Arc::new(engine.clone()));
                    tracing::info!(pool = name, "the pool is in service");
                }
                Err(why) => {
                    if engine.absence_of(&name) != Some(&why) {
                        let is_hung = retry.pool.attempt.is_some();
                        engine = with_reason(&engine, AbsentPool { name, why, is_hung });
                        executor.ready(Arc::new(engine.clone()));
                    }
                    retry.pause_after_attempt();
                    still_absent.push(retry);
                }
            }
        }
        absent = still_absent;
        if absent.is_empty() {
            engine.report_unknown_pools();
        }
    }
}

/// A reason that has changed is in the answers of calls that need the pool, and logged once.
fn with_reason(engine: &Engine, absent: AbsentPool) -> Engine {
    let AbsentPool { name, why, .. } = &absent;
    if matches!(why, Error::Unreachable { .. }) {
        tracing::warn!(pool = name, %why, "the pool is still absent");
    } else {
        tracing::error!(
            pool = name,
            %why,
            "cannot open the pool; retrying does not help, fix its configuration"
        );
    }
    engine.with_absent(absent)
}

#[cfg(test)]
mod tests;
