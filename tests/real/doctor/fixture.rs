//! A pool that something is done to, and what the doctor says of it.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use orlop_tests::*;
use serde_json::Value;

pub(crate) struct Fixture {
    pub(crate) pool: TestPool,
    pub(crate) daemon: Daemon,
    pub(crate) client: Client,
}

/// What the doctor found: the code and the outcome of each finding.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) exit: i32,
    pub(crate) findings: Vec<(String, String)>,
    /// What `--json` prints.
    pub(crate) document: Value,
    pub(crate) text: String,
}

impl Report {
    /// Exactly these, each with this outcome.
    #[track_caller]
    pub(crate) fn expect(&self, exit: i32, findings: &[(&str, &str)]) {
        let found: Vec<(&str, &str)> =
            self.findings.iter().map(|(code, outcome)| (&**code, &**outcome)).collect();
        assert_eq!((self.exit, found.as_slice()), (exit, findings), "{}", self.text);
    }
}

impl Fixture {
    pub(crate) async fn new(fs: PoolFs) -> Self {
        let pool = TestPool::new(fs, 2 * GIB);
        let daemon = Daemon::start(&pool).await;
        let client = daemon.client();
        Self { pool, daemon, client }
    }

    pub(crate) async fn block_volume(&self, name: &str) -> String {
        let volume = self.client.create(name).size(16 * MIB).block().done().await;
        let data = self.pool.volume_data(&volume.volume_id);
        Pattern::new(7).write_at(&data, 0, MIB);
        volume.volume_id
    }

    pub(crate) fn home(&self, id: &str) -> PathBuf {
        self.pool.path.join("volumes").join(id)
    }

    pub(crate) fn doctor(&self, words: &[&str]) -> Report {
        doctor(self.daemon.launch(), words)
    }

    /// A look, which changes nothing; the repair; and a look that finds what is left.
    #[track_caller]
    pub(crate) fn repair(&self, code: &str) {
        let before = footprint(&self.pool.path);
        self.doctor(&[]).expect(1, &[(code, "repairable")]);
        assert_eq!(footprint(&self.pool.path), before, "a look changes nothing");
        self.doctor(&["--repair"]).expect(0, &[(code, "repaired")]);
        self.doctor(&[]).expect(0, &[]);
        self.doctor(&["--repair"]).expect(0, &[]);
    }

    /// Reported, and not changed even by `--repair`.
    #[track_caller]
    pub(crate) fn not_repairable(&self, code: &str) {
        let before = footprint(&self.pool.path);
        self.doctor(&[]).expect(1, &[(code, "by-hand")]);
        self.doctor(&["--repair"]).expect(1, &[(code, "by-hand")]);
        assert_eq!(footprint(&self.pool.path), before, "nothing is changed");
    }
}

pub(crate) fn doctor(launch: &Launch, words: &[&str]) -> Report {
    let ran = launch.run(&[&["doctor", "--json"], words].concat());
    let exit = ran.status.code().expect("an exit code");
    let text = format!("{}{}", ran.stdout, ran.stderr);
    let document: Value = serde_json::from_str(&ran.stdout).expect(&text);
    let field = |finding: &Value, name: &str| finding[name].as_str().unwrap().to_owned();
    let findings = document["findings"].as_array().unwrap();
    let findings = findings.iter().map(|it| (field(it, "code"), field(it, "outcome"))).collect();
    Report { exit, findings, document, text }
}

/// Every file with its inode, length and time of change; without the time of what has a device: the
/// kernel writes the journal of a mounted filesystem whenever it likes.
pub(crate) fn footprint(root: &Path) -> BTreeMap<PathBuf, (u64, u64, i64, i64)> {
    let devices = orlop_sys::loopdev::all_backed().unwrap();
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let there = std::fs::symlink_metadata(&path).unwrap();
        let has_device = devices.iter().any(|device| device.file == path);
        let (seconds, nanoseconds) =
            if has_device { (0, 0) } else { (there.mtime(), there.mtime_nsec()) };
        let print = (there.ino(), there.len(), seconds, nanoseconds);
        if there.is_dir() {
            pending.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.insert(path, print);
    }
    found
}
