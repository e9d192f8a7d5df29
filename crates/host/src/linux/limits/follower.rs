//! Limits for cgroups that are made after them, where a group's limit holds for itself alone (cgroup
//! v1): a container's group is made after its volumes are published.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use orlop_model::Result;
use orlop_sys::cgroup_io::{Limits, NewGroups, Stop, limit_new_group};

use super::super::failure::{cannot, cannot_io};

const DOING: &str = "follow the workloads' cgroups";
/// After an error that is not expected to pass soon.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// What every group is to have, by the device's major and minor number. A change holds the lock
/// until all groups have it: one that is made during that gets what holds afterwards.
pub(super) type InForce = BTreeMap<(u32, u32), Limits>;

#[derive(Default)]
pub(super) struct SharedLimits(Mutex<InForce>);

impl SharedLimits {
    pub(super) fn lock(&self) -> MutexGuard<'_, InForce> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One group at a time, so that a change does not wait long for the lock.
    fn limit(&self, groups: &[PathBuf]) {
        for group in groups {
            for ((major, minor), limits) in &*self.lock() {
                if let Err(error) = limit_new_group(group, *major, *minor, limits) {
                    tracing::warn!(
                        %error,
                        major,
                        minor,
                        "cannot set the I/O limit of a new cgroup"
                    );
                }
            }
        }
    }
}

/// A thread that ends with it.
pub(super) struct Follower {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// From now on every new group is limited; those that are there are limited soon.
    pub(super) fn start(top: &Path, shared: &Arc<SharedLimits>) -> Result<Self> {
        let stop = Arc::new(Stop::new().map_err(cannot(DOING))?);
        let (mut groups, found) = NewGroups::below(top).map_err(cannot(DOING))?;
        let (shared, ending) = (Arc::clone(shared), Arc::clone(&stop));
        let follow = move || {
            shared.limit(&found);
            drop(found);
            loop {
                match groups.wait(&ending) {
                    Ok(Some(made)) => shared.limit(&made),
                    Ok(None) => return,
                    Err(error) => {
                        tracing::warn!(
                            %error,
                            "cannot find new cgroups; I/O limits may be missing until a \
                             retry succeeds"
                        );
                        std::thread::sleep(RETRY_INTERVAL);
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("cgroups".to_owned()).spawn(follow);
        Ok(Self { stop, thread: Some(thread.map_err(cannot_io(DOING))?) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        match self.stop.stop() {
            Ok(()) => drop(self.thread.take().map(JoinHandle::join)),
            Err(error) => {
                tracing::warn!(%error, "cannot stop following cgroups before this process ends")
            }
        }
    }
}
