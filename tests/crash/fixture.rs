//! A daemon that can be made to end after a certain effect, and what has to survive it.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use orlop_tests::{Answer, Cgroup, Client, Code, Daemon, Launch, Status};

use crate::pool::{Kind, Pool};
use crate::preexisting::Preexisting;
use crate::tally;

pub(crate) const NODE: &str = "test-node";
pub(crate) const DRIVER: &str = "csi.orlop.io";
const TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(3);

pub(crate) struct Fixture {
    pub(crate) pool: Pool,
    /// The cgroup of all workloads, so that other processes on the machine are not limited.
    pub(crate) workloads: Cgroup,
    daemon: Daemon,
    client: Client,
    crash_control: CrashControl,
    preexisting: Preexisting,
}

impl Fixture {
    pub(crate) async fn new(kind: Kind) -> Self {
        Self::under_tracer(kind, &[]).await
    }

    /// The daemon is started by this command.
    pub(crate) async fn under_tracer(kind: Kind, words: &[&str]) -> Self {
        let pool = Pool::new(kind);
        let crash_control = CrashControl::new(pool.memory().join("crash"));
        if !words.is_empty() || crate::sample().is_some() {
            crash_control.note_effects();
        }
        let workloads = Cgroup::new();
        let launch = crash_control.configure(pool.launch());
        let launch = launch.env("ORLOP_WORKLOAD_CGROUP", &workloads.name);
        let daemon = launch.run_by(words).start().await;
        let client = pool.client(&daemon);
        let preexisting = Preexisting::new(&client).await;
        Self { pool, workloads, daemon, client, crash_control, preexisting }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn process(&self) -> u32 {
        self.daemon.pid()
    }

    pub(crate) fn crash_control(&self) -> &CrashControl {
        &self.crash_control
    }

    /// After which effect the daemon ended; `None` if it lives.
    pub(crate) async fn ended_after(&mut self) -> Option<String> {
        self.client.reconnect();
        if self.client.probe().await.is_ok() {
            return None;
        }
        self.daemon.wait_for_end();
        Some(self.crash_control.take_crash_place().unwrap_or_else(|| panic!("it ended by itself")))
    }

    pub(crate) async fn restart(&mut self) {
        self.daemon.restart().await;
    }

    /// The successor ends after its first effect, the next one after its second and so on, until
    /// one comes through its start. Returns where they ended.
    pub(crate) async fn crash_each_start_step(&mut self) -> Vec<String> {
        let mut places = Vec::new();
        loop {
            self.crash_control.end_after(places.len());
            if self.daemon.try_restart().await.is_none() {
                self.crash_control.disarm();
                return places;
            }
            places.push(self.crash_control.take_crash_place().expect("a start that was to end"));
        }
    }

    /// What is there: in the pool, among devices and mounts, in the run directory.
    pub(crate) fn inventory(&self) -> Vec<String> {
        let mut found = self.pool.objects();
        for directory in ["volumes", "frozen", "limited", "inline"] {
            found.extend(self.run_entries(directory));
        }
        // Which of the loop devices it is does not matter, but for what.
        let kernel = self.daemon.devices_and_mounts().into_iter();
        found.extend(kernel.map(|held| match held.split_once(" on ") {
            Some((_, file)) => format!("a device on {file}"),
            None => held,
        }));
        found.sort();
        found
    }

    fn run_entries(&self, directory: &str) -> Vec<String> {
        let path = self.pool.memory().join("run").join(DRIVER).join(directory);
        let entries = fs::read_dir(&path).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        // Half-written records are used again.
        let names = names.filter(|name| !name.starts_with('.'));
        names.map(|name| format!("run/{directory}/{name}")).collect()
    }

    /// The inventory is what it was, neither more nor less.
    pub(crate) async fn assert_inventory(&self, before: &[String], context: &str) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let now = self.inventory();
            if now == before {
                return;
            }
            // The kernel lets go of devices a little later.
            if Instant::now() >= deadline {
                let more: Vec<_> = now.iter().filter(|name| !before.contains(name)).collect();
                let less: Vec<_> = before.iter().filter(|name| !now.contains(name)).collect();
                tally::leaked();
                panic!("{context}: left behind: {more:#?}, missing: {less:#?}");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub(crate) fn preexisting(&self) -> &Preexisting {
        &self.preexisting
    }

    pub(crate) fn check_preexisting(&mut self) {
        self.preexisting.check_and_write();
    }

    /// What was answered before all the crashes is still there, byte for byte.
    pub(crate) async fn finish(self) {
        let Self { pool, workloads, mut daemon, client, preexisting, .. } = self;
        preexisting.finish(&client).await;
        daemon.terminate();
        assert_eq!(daemon.leaks(), Vec::<String>::new());
        drop((daemon, workloads, pool));
    }
}

/// The directory in which the daemon finds when to end, and notes its effects.
pub(crate) struct CrashControl {
    directory: PathBuf,
}

impl CrashControl {
    pub(crate) fn new(directory: PathBuf) -> Self {
        fs::create_dir_all(&directory).expect("make the directory of orders");
        Self { directory }
    }

    pub(crate) fn configure(&self, launch: Launch) -> Launch {
        launch.env("ORLOP_TEST_CRASH", &self.directory)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// So many effects still happen; after the next one the daemon ends.
    pub(crate) fn end_after(&self, effects: usize) {
        let new = self.file("new");
        // In one step, so that it is never read half.
        fs::write(&new, effects.to_string()).expect("write the order");
        fs::rename(&new, self.file("at")).expect("give the order");
    }

    /// Where it was carried out.
    pub(crate) fn take_crash_place(&self) -> Option<String> {
        let place = fs::read_to_string(self.file("crashed")).ok()?;
        fs::remove_file(self.file("crashed")).expect("take the note");
        Some(place.trim().to_owned())
    }

    /// Withdraws an order that was not carried out.
    pub(crate) fn disarm(&self) {
        for name in ["at", "armed"] {
            let _ = fs::remove_file(self.file(name));
        }
    }

    /// From now on each effect is noted.
    pub(crate) fn note_effects(&self) {
        fs::write(self.file("effects"), "").expect("make the file for effects");
    }

    pub(crate) fn noted_effects(&self) -> usize {
        self.effects_since(0).len()
    }

    /// The places of all effects but the first so many.
    pub(crate) fn effects_since(&self, noted: usize) -> Vec<String> {
        let text = fs::read_to_string(self.file("effects")).unwrap_or_default();
        text.lines().skip(noted).map(str::to_owned).collect()
    }
}

/// No answer counts as one: a call whose daemon ends at a bad moment may never return.
pub(crate) async fn answered<T>(call: impl Future<Output = Answer<T>>) -> Answer<T> {
    let answer = tokio::time::timeout(TIMEOUT, call).await;
    answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")))
}

/// Asks again while something is still going on, as an orchestrator does.
pub(crate) async fn settled<T, F>(what: &str, mut call: impl FnMut() -> F) -> T
where
    F: Future<Output = Answer<T>>,
{
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match call().await {
            Ok(value) => return value,
            Err(status) if status.code() == Code::Aborted && Instant::now() < deadline => {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            Err(status) => panic!("{what}: {status}"),
        }
    }
}
