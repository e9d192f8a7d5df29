//! Garbage collection: what becomes of an image that is no volume any more.
//!
//! `delete.rs` has marked it as deleted and moved it to the trash; here it is freed, once no
//! snapshot of it is left. What daemons that were killed have left half-made or half-deleted is
//! found here too. A crash after any step leaves the rest to the next collection, of any daemon.
//!
//! Nothing is ever freed that is not marked as deleted.

mod background;
mod obstacles;
mod removals;
mod trash_lease;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use orlop_model::{Error, PoolId, PoolInfo, Result, VolumeId};
use orlop_sys::ceph::{
    Access, Image, ImageSnapshot, IoCtx, SnapshotNamespace, Trashed, UpdateOutcome, header_of,
};

use super::delete::Deletion;
use super::flatten::Flattening;
use super::image_state::{ImageState, NamedState, Step};
use super::images::{Images, NamedImage};
use super::intent::{Intents, Orphans};
use super::layout::{
    DELETED, is_ours, is_own_group, is_own_snapshot, kept_name, kept_prefix,
    name_of_snapshot_group, record_key,
};
use super::session::Session;
use super::uncommitted_group_snapshot::IntendedGroupSnapshot;
use super::uncommitted_snapshot::IntendedSnapshot;
pub(super) use background::{Background, HOUR};
use obstacles::ReportedObstacles;
pub(super) use obstacles::obstacle;
pub(super) use removals::{finish_removals, unfinished_removals};
use trash_lease::TrashLease;

/// Between two steps of librbd, when it makes an image. A call that is held up for longer begins
/// again.
const CREATE_STEP_TIME: Duration = Duration::from_secs(1);
/// How long an image that was never made is prevented from being made. A daemon that sleeps for
/// longer makes one that is never found, which costs a little space and nothing else.
const CREATION_PREVENTED_FOR: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct Garbage {
    session: Arc<Session>,
    info: Arc<PoolInfo>,
    images: Arc<Images>,
    intents: Arc<Intents>,
    deletion: Arc<Deletion>,
    flattening: Arc<Flattening>,
    background: Arc<Background>,
    obstacles: ReportedObstacles,
}

impl Garbage {
    pub(super) fn new(
        session: &Arc<Session>,
        info: &Arc<PoolInfo>,
        images: &Arc<Images>,
        intents: &Arc<Intents>,
        deletion: &Arc<Deletion>,
        flattening: &Arc<Flattening>,
        background: &Arc<Background>,
    ) -> Self {
        Self {
            session: Arc::clone(session),
            info: Arc::clone(info),
            images: Arc::clone(images),
            intents: Arc::clone(intents),
            deletion: Arc::clone(deletion),
            flattening: Arc::clone(flattening),
            background: Arc::clone(background),
            obstacles: ReportedObstacles::default(),
        }
    }

    pub(super) fn start(self: &Arc<Self>) -> Result<()> {
        self.background.start(self)
    }

    fn remove_orphaned_snapshots(&self) -> Result<()> {
        self.after_orphans(&self.intents.remove_orphans::<IntendedSnapshot>()?)
    }

    fn remove_orphaned_groups(&self) -> Result<()> {
        self.after_orphans(&self.intents.remove_orphans::<IntendedGroupSnapshot>()?)
    }

    fn after_orphans(&self, orphans: &Orphans) -> Result<()> {
        if orphans.removed > 0 {
            // Images that they kept from being freed can be freed now, by another thread.
            self.background.wake();
        }
        match orphans.left {
            0 => Ok(()),
            left => Err(Error::busy(
                format!("pool {}", self.info.name),
                format!("{left} orphaned snapshots cannot be removed yet"),
            )),
        }
    }

    fn flatten_requested(&self) -> Result<()> {
        self.flattening.flatten_requested()
    }

    /// Frees what is in the trash and needed by nothing; and what is needed by nothing then.
    pub(super) fn free_trash(&self) -> Result<()> {
        let (mut lease, mut again, mut in_use, mut failed) = (None, true, None, None);
        while again {
            (again, in_use, failed) = (false, None, None);
            for trashed in self.deleted_images()? {
                let image = &trashed.id;
                match self.try_free(&trashed, &mut lease) {
                    Ok(Freeing::Freed) => {
                        tracing::info!(image, "freed a deleted volume");
                        again = true;
                    }
                    Ok(Freeing::Needed) => {}
                    Ok(Freeing::InUse) => in_use = Some(trashed.id),
                    Ok(Freeing::Leased) => {
                        return Err(Error::busy(
                            format!("the trash of pool {}", self.info.name),
                            "another process is freeing it",
                        ));
                    }
                    // It must not keep the others from being freed.
                    Err(error) => {
                        tracing::warn!(
                            %error,
                            image,
                            "cannot free a deleted volume yet; it will be retried"
                        );
                        failed = Some(trashed.id);
                    }
                }
            }
        }
        let busy = |image, why: &str| Err(Error::busy(format!("the deleted image {image}"), why));
        match (in_use, failed) {
            (None, None) => Ok(()),
            (Some(image), _) => busy(image, "a client still has it open"),
            (None, Some(image)) => busy(image, "it cannot be freed yet"),
        }
    }

    fn try_free(&self, trashed: &Trashed, lease: &mut Option<TrashLease>) -> Result<Freeing> {
        let (id, freeing) = (&trashed.id, || format!("free image {}", trashed.id));
        let obstacle = self.session.ask(freeing, |io| obstacle(io, &self.info.id, id))?;
        self.obstacles.report(id, obstacle.as_deref());
        if obstacle.is_some() {
            return Ok(Freeing::Needed);
        }
        if self.session.ask(freeing, |io| is_needed(io, trashed))? {
            return Ok(Freeing::Needed);
        }
        if lease.is_none() {
            *lease = TrashLease::try_acquire(&self.session, &self.info.name)?;
        }
        match lease {
            Some(_) => self.session.ask(freeing, |io| free(io, id)),
            None => Ok(Freeing::Leased),
        }
    }

    pub(super) fn deleted_images(&self) -> Result<Vec<Trashed>> {
        let listing = || format!("list the trash of pool {}", self.info.name);
        let mut found = self.session.ask(listing, |io| io.trash())?;
        found.retain(|trashed| is_ours(&self.info.id, &trashed.name));
        let mut deleted = Vec::new();
        for trashed in found {
            let key = record_key(&trashed.id);
            let is_deleted = self.session.ask(listing, |io| {
                Ok(match io.image_metadata(&trashed.id, &key)? {
                    Some(text) => text == DELETED,
                    // The process that freed it was killed when only the entry was left.
                    None => !has_header(io, &trashed.id)?,
                })
            })?;
            if is_deleted {
                deleted.push(trashed);
            }
        }
        Ok(deleted)
    }

    /// Deletions and creations that were not carried to the end.
    pub(super) fn collect_volumes(&self) -> Result<()> {
        let listing = || format!("find orphans in pool {}", self.info.name);
        let mut name_alone = Vec::new();
        for (id, image_id) in self.images.all_named(listing)? {
            match self.collect_volume(&id, &image_id) {
                Ok(Collected::Done) => {}
                Ok(Collected::NameAlone) => name_alone.push((id, image_id)),
                Err(error) => report_failure(&id, &error),
            }
        }
        if !name_alone.is_empty() {
            thread::sleep(CREATE_STEP_TIME);
        }
        for (id, image_id) in name_alone {
            if let Err(error) = self.discard_name_alone(&id, &image_id) {
                report_failure(&id, &error);
            }
        }
        Ok(())
    }

    fn collect_volume(&self, id: &VolumeId, image_id: &str) -> Result<Collected> {
        match self.images.find(id)? {
            Some(NamedImage { image_id: same, state: NamedState::Deleted }) if same == image_id => {
                self.deletion.ensure_trashed(id, image_id)?;
            }
            Some(NamedImage { image_id: same, state: NamedState::Draft }) if same == image_id => {
                match self.images.created(image_id)? {
                    None => return Ok(Collected::NameAlone),
                    Some(created) if created.elapsed().is_ok_and(|age| age > HOUR) => {
                        self.deletion.try_discard(id, image_id)?;
                    }
                    Some(_) => {}
                }
            }
            Some(NamedImage { image_id: same, state: NamedState::Whole(_) })
                if same == image_id =>
            {
                let finishing = || format!("remove the orphaned snapshots of volume {id}");
                self.session.ask(finishing, |io| finish_removals(io, image_id))?;
            }
            Some(_) | None => {}
        }
        Ok(Collected::Done)
    }

    /// Was an image without a record left by an interrupted creation?
    pub(super) fn check_is_draft(&self, id: &VolumeId, image_id: &str) -> Result<()> {
        self.deletion.check_is_draft(id, image_id)
    }

    /// Orlop's snapshots of an image that neither a record nor an intent names, so that nothing removes them, by what
    /// removes each: the records are older than they are.
    pub(super) fn unrecorded_snapshots(&self, image_id: &str) -> Result<BTreeMap<String, String>> {
        let looking = || format!("list the snapshots of image {image_id}");
        let listing = || self.session.ask(looking, |io| own_snapshots(io, &self.info.id, image_id));
        let mut unrecorded = BTreeMap::new();
        for (snapshot, command) in listing()? {
            let is_known = match name_of_snapshot_group(&snapshot) {
                Some(name) => self.intents.knows::<IntendedGroupSnapshot>(name)?,
                None => self.intents.knows::<IntendedSnapshot>(&snapshot)?,
            };
            if !is_known {
                unrecorded.insert(snapshot, command);
            }
        }
        if !unrecorded.is_empty() {
            // One that has just been removed was known until then.
            let still = listing()?;
            unrecorded.retain(|snapshot, _| still.contains_key(snapshot));
        }
        Ok(unrecorded)
    }

    /// A name without an image, as there was [`CREATE_STEP_TIME`] ago: the daemon that made it was killed.
    fn discard_name_alone(&self, id: &VolumeId, image_id: &str) -> Result<()> {
        let name_alone = matches!(
            self.images.find(id)?,
            Some(NamedImage { image_id: same, state: NamedState::Draft }) if same == image_id
        ) && self.images.created(image_id)?.is_none();
        if name_alone {
            self.deletion.try_discard(id, image_id)?;
        }
        Ok(())
    }

    /// Images that had a name for a copy, and have no snapshot left that could be copied.
    pub(super) fn trash_kept_images(&self) -> Result<()> {
        let listing = || format!("find orphans in pool {}", self.info.name);
        for (name, image_id) in
            self.session.ask(listing, |io| io.image_names("", kept_prefix(), 0))?
        {
            let looking = || format!("inspect image {name}");
            let collected = self.session.ask(looking, |io| match is_still_kept(io, &image_id)? {
                true => Ok(()),
                false => trash(io, &name, &image_id),
            });
            if let Err(error) = collected {
                tracing::warn!(%error, name, "cannot remove an orphan; it will be retried");
            }
        }
        Ok(())
    }
}

/// A volume that cannot be freed must not prevent that others are freed.
fn report_failure(id: &VolumeId, error: &Error) {
    if matches!(error, Error::Damaged { .. }) {
        tracing::warn!(%error, %id, "left an image without a record alone");
    } else {
        tracing::warn!(%error, %id, "cannot remove an orphan; it will be retried");
    }
}

/// By name, or by the name of the group, with the command that removes each.
fn own_snapshots(
    io: &Arc<IoCtx>,
    pool: &PoolId,
    image_id: &str,
) -> orlop_sys::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    if !io.has_snapshots(image_id)? {
        return Ok(found);
    }
    let image = match io.open_image_by_id(image_id, None, Access::ReadOnly) {
        Err(error) if error.is_not_found() => return Ok(found),
        image => image?,
    };
    for ImageSnapshot { name, namespace, number, .. } in image.snapshots()? {
        match namespace {
            SnapshotNamespace::User if is_own_snapshot(pool, &name) => {
                let command = format!("rbd snap rm --image-id {image_id} --snap {name}");
                found.insert(name, command);
            }
            SnapshotNamespace::Group => {
                let group = image.group_of(number)?.filter(|of| is_own_group(pool, of));
                let command = |group: &String| format!("rbd group rm {group}");
                found.extend(group.map(|group| (group.clone(), command(&group))));
            }
            SnapshotNamespace::User | SnapshotNamespace::Trash | SnapshotNamespace::Other => {}
        }
    }
    Ok(found)
}

enum Collected {
    Done,
    /// There is a name, but no image.
    NameAlone,
}

/// Also one that was never deleted: an operator gave it that name.
fn is_still_kept(io: &Arc<IoCtx>, image_id: &str) -> orlop_sys::Result<bool> {
    let open = || io.open_image_by_id(image_id, None, Access::ReadOnly);
    match open() {
        // Freed by one process while another restored it.
        Err(error) if error.is_not_found() => return Ok(false),
        image => image.map(drop)?,
    }
    if io.image_metadata(image_id, &record_key(image_id))?.as_deref() != Some(DELETED) {
        return Ok(true);
    }
    finish_removals(io, image_id)?;
    Ok(open()?.snapshots()?.iter().any(|one| one.namespace != SnapshotNamespace::Trash))
}

enum Freeing {
    Freed,
    Needed,
    /// By a client that was killed, which the cluster has not noticed yet; or a group
    /// snapshot of it is just being taken.
    InUse,
    /// Another process is freeing.
    Leased,
}

/// An attempt to free what a snapshot needs would lock others out of it for a while.
fn is_needed(io: &Arc<IoCtx>, trashed: &Trashed) -> orlop_sys::Result<bool> {
    let id = &trashed.id;
    match io.open_image_by_id(id, None, Access::ReadOnly) {
        Err(error) if error.is_not_found() => {
            let recent = trashed.since.elapsed().is_ok_and(|age| age < CREATION_PREVENTED_FOR);
            Ok(recent && is_prevented(io, id)?)
        }
        image => is_any_snapshot_needed(io, id, &image?),
    }
}

fn free(io: &IoCtx, id: &str) -> orlop_sys::Result<Freeing> {
    // What was restored for a copy whose maker was killed could not be freed.
    trash(io, &kept_name(id), id)?;
    Ok(match Step::Free.take(io, id, ImageState::Trashed)? {
        UpdateOutcome::Done => Freeing::Freed,
        UpdateOutcome::Differs => Freeing::InUse,
    })
}

fn trash(io: &IoCtx, name: &str, id: &str) -> orlop_sys::Result<()> {
    Step::Trash { name }.take(io, id, ImageState::Deleted).map(drop)
}

/// What was removed halfway is needed by nothing, and goes.
fn is_any_snapshot_needed(io: &Arc<IoCtx>, id: &str, image: &Image) -> orlop_sys::Result<bool> {
    if image.snapshots()?.is_empty() {
        return Ok(false);
    }
    finish_removals(io, id)?;
    // Opened again: this one may not know yet what has changed.
    let image = io.open_image_by_id(id, None, Access::ReadOnly)?;
    Ok(!image.snapshots()?.is_empty())
}

/// There is a header, but none of an image. An image that cannot be opened is another matter: a clone
/// whose maker was killed before its parent knew of it, and whose parent is gone. librbd frees that
/// without opening the parent, and still refuses while there are snapshots.
fn is_prevented(io: &IoCtx, image_id: &str) -> orlop_sys::Result<bool> {
    match io.image_size(image_id) {
        Err(error) if error.is_not_found() => has_header(io, image_id),
        size => size.map(|_| false),
    }
}

fn has_header(io: &IoCtx, image_id: &str) -> orlop_sys::Result<bool> {
    match io.read(&header_of(image_id)) {
        Err(error) if error.is_not_found() => Ok(false),
        read => read.map(|_| true),
    }
}
