//! Copying volumes that may be in use: writers are quiesced for the point-in-time copy and no longer.

use std::time::Instant;

use orlop_model::{
    Consistency, Device, DeviceAccess, DeviceMount, Error, FsType, Host, Result, TargetPath,
    VolumeId, VolumeRecord,
};

use crate::engine::{Engine, PoolRef};
use crate::locks::{Key, LockGuard};
use crate::sharing::sharing;

/// A frozen filesystem. Thawed when dropped, so that no error path and no panic leaves a
/// workload hanging.
struct Frozen<'a> {
    host: &'a dyn Host,
    mount: &'a TargetPath,
}

impl<'a> Frozen<'a> {
    fn freeze(host: &'a dyn Host, mount: &'a TargetPath) -> Result<Self> {
        // A freeze that fails has frozen nothing; a thaw would end that of another process.
        host.freeze(mount)?;
        Ok(Self { host, mount })
    }

    /// Did writers stay still the whole time? A thaw that fails is tried once more by the drop; one
    /// that worked is not repeated, as it could end the freeze of another process.
    fn thaw(self) -> Result<bool> {
        let held = self.host.ensure_thawed(self.mount)?;
        std::mem::forget(self);
        Ok(held)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // Thawing what is thawed already is fine; a failure is for the host's watchdog.
        if let Err(error) = self.host.ensure_thawed(self.mount) {
            tracing::error!(
                %error,
                path = %self.mount,
                "cannot thaw a filesystem after a snapshot"
            );
        }
    }
}

/// Who could write to a volume while it is copied.
enum Writers {
    None,
    /// On another node, out of reach: it is not quiesced, and it may stop in mid-write.
    Elsewhere,
    /// A filesystem that can be frozen, at one of its mounts.
    Filesystem {
        mount: TargetPath,
        fs: Option<FsType>,
    },
    /// A raw device. Its writers cannot be held, but until it is published it has none.
    Device {
        device: Device,
        published: bool,
    },
}

impl Engine {
    /// For a copy that may be made beside others: one call at a time freezes the writers of a volume. Where there
    /// are no writers, copies do not wait for each other.
    pub(crate) fn lock_capture_in_use(
        &self,
        pool: &PoolRef,
        source: &VolumeRecord,
    ) -> Result<Option<LockGuard>> {
        match self.writers_of(pool, source)? {
            Writers::None | Writers::Elsewhere => Ok(None),
            Writers::Filesystem { .. } | Writers::Device { .. } => {
                self.locks().exclusive(Key::Capture(source.id.digest().clone())).map(Some)
            }
        }
    }

    /// Freezes all writers of all sources, captures, and thaws them.
    pub(crate) fn capture_quiesced(
        &self,
        pool: &PoolRef,
        sources: &[&VolumeRecord],
        capture: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut mounts = Vec::new();
        let mut watched = Vec::new();
        for source in sources {
            match self.writers_of(pool, source)? {
                Writers::None | Writers::Elsewhere => {}
                // btrfs never overwrites, so what is synced and then captured at one instant is whole. Not
                // freezing it keeps clear of its thaw, which turns the filesystem read-only if
                // this process is killed in it (seen on Linux 6.18).
                Writers::Filesystem { mount, fs: Some(FsType::Btrfs) }
                    if sources.len() == 1 && pool.provisioner().has_atomic_copies() =>
                {
                    self.sync_before_copy(&source.id, &mount)?;
                }
                Writers::Filesystem { mount, .. } => mounts.push((source.id.clone(), mount)),
                Writers::Device { device, published } => {
                    self.host().sync_device(&device)?;
                    if published && !pool.provisioner().has_atomic_copies() {
                        watched.push((
                            source.id.clone(),
                            self.host().device_writes(&device)?,
                            device,
                        ));
                    }
                }
            }
        }
        if mounts.is_empty() {
            capture()?;
        } else {
            self.capture_frozen(&mounts, capture)?;
        }
        watched.into_iter().try_for_each(|(id, before, device)| {
            self.check_unwritten(pool, &id, &device, before)
        })?;
        sources.iter().try_for_each(|source| check_unchanged(pool, source))
    }

    /// Copying piece by piece while a workload writes gives a state that never was. Writers of
    /// a raw device cannot be stopped, but whether there were any can be seen.
    fn check_unwritten(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        device: &Device,
        before: Option<u64>,
    ) -> Result<()> {
        if before.is_some() && self.host().device_writes(device)? == before {
            return Ok(());
        }
        Err(Error::precondition(format!(
            "cannot copy volume {id}: it was written to while it was copied, and pool {} cannot take \
             a point-in-time copy; try again when its workload is quiet, or keep it on a pool whose filesystem \
             shares extents",
            pool.name()
        )))
    }

    fn capture_frozen(
        &self,
        mounts: &[(VolumeId, TargetPath)],
        capture: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        // What waits to be written is written before the freeze, not in it.
        in_parallel(mounts, |(id, mount)| self.sync_before_copy(id, mount))?;
        let started = Instant::now();
        let frozen = in_parallel(mounts, |(_, mount)| Frozen::freeze(self.host().as_ref(), mount))?;
        capture()?;
        let held = in_parallel_owned(frozen, Frozen::thaw)?;
        let took = started.elapsed();
        self.freezes().note(took);
        let microseconds = took.as_micros();
        tracing::info!(
            filesystems = mounts.len(),
            microseconds,
            "froze the writers for a snapshot"
        );
        if held.into_iter().all(|held| held) {
            return Ok(());
        }
        Err(Error::failed(
            "copy a volume in use",
            "the copy took longer than a filesystem may stay frozen, so it would not be \
             consistent; use a pool whose filesystem shares extents, or stop the workload first",
        ))
    }

    /// What can be promised of a copy that [`Engine::capture_quiesced`] makes.
    pub(crate) fn consistency_of(
        &self,
        pool: &PoolRef,
        source: &VolumeRecord,
    ) -> Result<Consistency> {
        Ok(match self.writers_of(pool, source)? {
            Writers::Elsewhere | Writers::Device { published: true, .. } => Consistency::Crash,
            Writers::None | Writers::Filesystem { .. } | Writers::Device { .. } => {
                Consistency::Filesystem
            }
        })
    }

    /// Records may be lost, and then the kernel alone knows who writes; so what is attached has
    /// writers unless a record says otherwise.
    fn writers_of(&self, pool: &PoolRef, source: &VolumeRecord) -> Result<Writers> {
        let node = self.host().node_record(&source.id)?;
        if sharing(pool).is_written_elsewhere(self, source)? {
            return Ok(Writers::Elsewhere);
        }
        if node.stage.as_ref().is_some_and(|stage| stage.read_only) {
            return Ok(Writers::None);
        }
        let device = self.workload_device(pool, &source.id, DeviceAccess::ReadWrite)?;
        let Some(device) = device else {
            let may_write = sharing(pool).is_written_by_twin(self, source, &node);
            return Ok(if may_write { Writers::Elsewhere } else { Writers::None });
        };
        match &node.stage {
            Some(stage) if stage.capability.is_block() => {
                let published = !self.live_publications(pool, &source.id)?.is_empty()
                    || !self.host().mounts_of(&device)?.is_empty();
                Ok(Writers::Device { device, published })
            }
            Some(_) | None => self.writers_at_mounts(pool, source, device),
        }
    }

    /// The staging mount may have been unmounted under a workload that goes on writing; and all mounts of this
    /// mount namespace may have been, while another one still has some.
    fn writers_at_mounts(
        &self,
        pool: &PoolRef,
        source: &VolumeRecord,
        device: Device,
    ) -> Result<Writers> {
        let recorded = match self.live_stage(pool, &source.id)? {
            Some(stage) => Some(stage.path),
            None => {
                self.live_publications(pool, &source.id)?.into_iter().next().map(|it| it.target)
            }
        };
        let mount = match recorded {
            Some(mount) => Some(mount),
            None => {
                let mounts = self.host().mounts_of(&device)?;
                let mut filesystems = mounts.iter().filter(|there| !there.is_device_node);
                filesystems.find_map(DeviceMount::path)
            }
        };
        Ok(match mount {
            Some(mount) => Writers::Filesystem { mount, fs: source.format.fs() },
            None => Writers::Device { device, published: true },
        })
    }
}

/// What the copy's record says comes from that of its source, which was read before the copy was made. On a
/// shared pool, a node may have formatted the volume and written to it since: a copy that counts
/// as never formatted would be formatted.
fn check_unchanged(pool: &PoolRef, before: &VolumeRecord) -> Result<()> {
    let now = pool.catalogue().volume(&before.id)?;
    let now = now.ok_or_else(|| Error::NoSuchVolume(before.id.to_string()))?;
    let copied = |record: &VolumeRecord| {
        (record.created, record.capacity_bytes, record.format, record.encryption, record.growing)
    };
    if copied(&now) == copied(before) && now.published == before.published {
        return Ok(());
    }
    Err(Error::busy(before.label(), "a node or another controller changed it while it was copied"))
}

fn in_parallel<'a, In: Sync, Out: Send>(
    items: &'a [In],
    work: impl Fn(&'a In) -> Result<Out> + Sync,
) -> Result<Vec<Out>> {
    in_parallel_owned(items.iter().collect(), work)
}

/// One thread for each: freezing waits for disks, not for processors. All are waited for before
/// the first error is reported.
fn in_parallel_owned<In: Send, Out: Send>(
    items: Vec<In>,
    work: impl Fn(In) -> Result<Out> + Sync,
) -> Result<Vec<Out>> {
    let outcomes: Vec<Result<Out>> = std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> =
            items.into_iter().map(|item| scope.spawn(move || work(item))).collect();
        let panicked = |_| {
            Err(Error::failed(
                "prepare a point-in-time copy",
                "a thread panicked; the log says where",
            ))
        };
        running.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    outcomes.into_iter().collect()
}
