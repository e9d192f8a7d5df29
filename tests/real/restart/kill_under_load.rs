//! kill -9 in the middle of many calls: what was acknowledged holds, what was not can be repeated.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use orlop_tests::*;

const CALLERS: usize = 8;
const VOLUME: u64 = 16 * MIB;

on_every_pool!(acknowledged_calls_hold_and_others_can_be_repeated);

/// One caller's things, all of which it makes and takes away again, in a circle.
struct Caller {
    client: Client,
    number: usize,
    acknowledged: Arc<AtomicUsize>,
}

/// What a caller knows when its daemon is gone: answers that it got, and the call that it did not
/// get an answer to.
#[derive(Default)]
struct Known {
    volumes: BTreeSet<String>,
    snapshots: BTreeSet<String>,
    in_doubt: Option<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Stage,
    Snapshot,
    Restore,
    Unstage,
    DeleteSnapshot,
    DeleteRestored,
    Delete,
}

const CIRCLE: [Step; 8] = [
    Step::Create,
    Step::Stage,
    Step::Snapshot,
    Step::Restore,
    Step::Unstage,
    Step::DeleteSnapshot,
    Step::DeleteRestored,
    Step::Delete,
];

impl Caller {
    fn name(&self, what: &str) -> String {
        format!("{what} of caller {}", self.number)
    }

    fn create(&self) -> Create {
        self.client.create(&self.name("volume")).size(VOLUME).fs("ext4")
    }

    /// Repeating a creation tells the id, whether or not it was made before.
    async fn node(&self) -> Answer<OnNode> {
        Ok(self.client.on_node(&self.create().send().await?, mount("ext4")))
    }

    async fn snapshot(&self) -> Answer<String> {
        let id = self.node().await?.id;
        Ok(self.client.snapshot(&self.name("snapshot"), &id).await?.snapshot_id)
    }

    async fn restored(&self) -> Answer<String> {
        let snapshot = self.snapshot().await?;
        let create = self.client.create(&self.name("restored")).fs("ext4");
        Ok(create.from_snapshot(&snapshot).send().await?.volume_id)
    }

    async fn take(&self, step: Step, known: &mut Known) -> Answer<()> {
        match step {
            Step::Create => {
                known.volumes.insert(self.node().await?.id);
            }
            Step::Stage => self.node().await?.stage().await?,
            Step::Snapshot => {
                known.snapshots.insert(self.snapshot().await?);
            }
            Step::Restore => {
                known.volumes.insert(self.restored().await?);
            }
            Step::Unstage => self.node().await?.unstage().await?,
            Step::DeleteRestored => {
                let id = self.restored_id(known).await?;
                self.client.delete(&id).await?;
                known.volumes.remove(&id);
            }
            Step::DeleteSnapshot => {
                for id in known.snapshots.clone() {
                    self.client.delete_snapshot(&id).await?;
                    known.snapshots.remove(&id);
                }
            }
            Step::Delete => {
                let id = self.node().await?.id;
                self.client.delete(&id).await?;
                known.volumes.remove(&id);
            }
        }
        Ok(())
    }

    /// The other one of the caller's two volumes.
    async fn restored_id(&self, known: &Known) -> Answer<String> {
        let own = self.node().await?.id;
        let other = known.volumes.iter().find(|id| **id != own);
        Ok(other.expect("a restored volume").clone())
    }

    /// Until the daemon is gone. A call that got no answer may have happened or not.
    async fn work(&self, first: Step) -> Known {
        let mut known = Known::default();
        let start = CIRCLE.iter().position(|step| *step == first).unwrap();
        for step in CIRCLE.iter().cycle().skip(start) {
            match self.take(*step, &mut known).await {
                Ok(()) => {
                    self.acknowledged.fetch_add(1, Ordering::AcqRel);
                }
                Err(status) if is_connection_lost(&status) => {
                    known.in_doubt = Some(*step);
                    return known;
                }
                Err(status) => panic!("{step:?} by caller {}: {status}", self.number),
            }
        }
        known
    }

    /// What was in doubt is repeated; then everything is taken away.
    async fn tidy_up(&self, mut known: Known) {
        let in_doubt = known.in_doubt.take().expect("the daemon was killed in some call");
        let first = CIRCLE.iter().position(|step| *step == in_doubt).unwrap();
        for step in &CIRCLE[first..] {
            let taken = self.take(*step, &mut known).await;
            taken.unwrap_or_else(|status| panic!("{step:?}, repeated from {in_doubt:?}: {status}"));
        }
    }
}

async fn acknowledged_calls_hold_and_others_can_be_repeated(pool: PoolFs) {
    let pool = TestPool::new(pool, 4 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    // Each time somewhere else in the circle.
    for kill_after in [3, 17, 29, 41, 53, 71] {
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let callers: Vec<Arc<Caller>> = (0..CALLERS)
            .map(|number| Caller {
                client: daemon.client(),
                number,
                acknowledged: Arc::clone(&acknowledged),
            })
            .map(Arc::new)
            .collect();
        let working: Vec<_> = callers
            .iter()
            .map(Arc::clone)
            .map(|caller| tokio::spawn(async move { caller.work(Step::Create).await }))
            .collect();
        while acknowledged.load(Ordering::Acquire) < kill_after {
            assert!(!working.iter().any(tokio::task::JoinHandle::is_finished), "a caller failed");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        daemon.kill9();
        let mut known = Vec::new();
        for each in working {
            known.push(each.await.unwrap());
        }
        daemon.restart().await;
        check_acknowledged(&pool, &daemon.client(), &known).await;
        for (caller, known) in callers.iter().zip(known) {
            caller.tidy_up(known).await;
        }
        assert_eq!(daemon.leaks(), [""; 0], "killed after {kill_after} calls");
        for directory in ["volumes", "snapshots", "staging", "trash"] {
            assert_eq!(pool.entries(directory), [""; 0], "{directory} after {kill_after} calls");
        }
    }
}

/// The pool holds all that was acknowledged, nothing half-made, and little more: what a call in
/// doubt may have made.
async fn check_acknowledged(pool: &TestPool, client: &Client, known: &[Known]) {
    assert_eq!(pool.entries("staging"), [""; 0]);
    assert_eq!(pool.entries("trash"), [""; 0]);
    let listed = client.list_volumes().await.unwrap();
    let conditions = listed.iter().map(|entry| entry.status.clone().unwrap());
    for condition in conditions.map(|status| status.volume_condition.unwrap()) {
        assert!(!condition.abnormal, "{}", condition.message);
    }
    let volumes: BTreeSet<_> =
        listed.into_iter().map(|entry| entry.volume.unwrap().volume_id).collect();
    let snapshots = client.list_snapshots().await.unwrap();
    let snapshots: BTreeSet<_> = snapshots.into_iter().map(|each| each.snapshot_id).collect();
    assert_eq!(pool.entries("volumes"), Vec::from_iter(volumes.clone()));
    assert_eq!(pool.entries("snapshots"), Vec::from_iter(snapshots.clone()));

    for each in known {
        let deleting = matches!(
            each.in_doubt,
            Some(Step::Delete | Step::DeleteRestored | Step::DeleteSnapshot)
        );
        let lost = each.volumes.difference(&volumes).count()
            + each.snapshots.difference(&snapshots).count();
        assert!(lost <= usize::from(deleting), "{:?}: {lost} lost", each.in_doubt);
    }
    let acknowledged: usize =
        known.iter().map(|each| each.volumes.len() + each.snapshots.len()).sum();
    let there = volumes.len() + snapshots.len();
    assert!(there <= acknowledged + known.len(), "{there} things, {acknowledged} acknowledged");
}
