//! The command line client against the real daemon: each command as a person types it.

mod destructive;
mod events;
mod failures;
mod file_diff;
mod generated;
mod groups;
mod health;
mod interrupted;
mod lists;
mod mounts;
mod qcow2;
mod readme;
mod snapshots;
mod terminals;
mod top;
mod transfer;

use orlop_tests::*;
use serde_json::Value;

pub(crate) struct Terminal {
    pub(crate) pool: TestPool,
    pub(crate) daemon: Daemon,
}

impl Terminal {
    pub(crate) async fn new() -> Self {
        let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
        let daemon = Daemon::start(&pool).await;
        Self { pool, daemon }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.pool.scratch().join(name).to_str().unwrap().to_owned()
    }

    /// What it prints; it has to succeed, without a word about failures.
    #[track_caller]
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let ran = self.daemon.launch().run(words);
        assert_eq!(ran.status.code(), Some(0), "{words:?}: {}{}", ran.stdout, ran.stderr);
        ran.stdout
    }

    #[track_caller]
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let printed = self.ok(&[words, &["--output", "json"]].concat());
        serde_json::from_str(&printed).expect(&printed)
    }

    /// The id of what a command made or shows.
    #[track_caller]
    pub(crate) fn id(&self, words: &[&str]) -> String {
        self.ok(&[words, &["--output", "name"]].concat()).trim_end().to_owned()
    }

    /// Why; nothing is printed as a result.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, words: &[&str]) -> String {
        let ran = self.daemon.launch().run(words);
        assert_eq!(ran.status.code(), Some(code), "{words:?}: {}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.stdout, "", "{words:?}");
        assert!(ran.stderr.contains("orlop: ") || code == 2, "{words:?}: {}", ran.stderr);
        ran.stderr
    }

    /// How many volumes there are.
    #[track_caller]
    pub(crate) fn volumes(&self) -> usize {
        self.json(&["volume", "list"]).as_array().unwrap().len()
    }
}
