//! What becomes of an image that is no volume any more.
//!
//! It is marked as deleted, which makes it gone for good, then moved to the trash, then freed. A
//! snapshot of it keeps it in the trash; to be copied from it needs a name again, and gets one that
//! no volume has. A crash after any step leaves it for the housekeeping of whoever is next.
//!
//! Nothing is ever freed that is not marked as deleted.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use orlop_model::{Error, Result, VolumeId};
use orlop_sys::ceph::{
    Access, Image, IoCtx, Outcome, SnapshotSpace, Trashed, Update, Written, header_of, metadata_key,
};

use super::background::HOUR;
use super::cut::OfImage;
use super::layout::{
    DELETED, image_of, is_ours, kept_name, kept_prefix, record_key, volume_prefix,
};
use super::removals::finish_removals;
use super::store::Store;
use super::trash_lease::TrashLease;
use super::volume_draft::copying;
use super::volume_records::{Found, Standing};

const ATTEMPTS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);
/// Between two steps of librbd, when it makes an image. Whoever is held up for longer begins anew.
const MAKING: Duration = Duration::from_secs(1);
/// How long an image that was never made is prevented from being made. If its maker slept for
/// longer, it makes one that nobody finds, which costs a little space and nothing else.
const PREVENTED_FOR: Duration = Duration::from_secs(600);

/// An attempt to free what a snapshot needs would keep others from it for a moment.
fn is_needed(io: &Arc<IoCtx>, trashed: &Trashed) -> orlop_sys::Result<bool> {
    let id = &trashed.id;
    match io.open_image_by_id(id, None, Access::ReadOnly) {
        Err(error) if error.is_not_found() => {
            let recent = trashed.since.elapsed().is_ok_and(|age| age < PREVENTED_FOR);
            Ok(recent && is_prevented(io, id)?)
        }
        image => is_any_snapshot_needed(io, id, &image?),
    }
}

fn free(io: &IoCtx, id: &str) -> orlop_sys::Result<Freeing> {
    // What was restored for a copy whose maker was killed could not be freed.
    io.ensure_trashed(&kept_name(id), id)?;
    Ok(if io.try_free_trashed(id)? { Freeing::Freed } else { Freeing::InUse })
}

/// What was removed halfway is needed by nothing, and goes.
fn is_any_snapshot_needed(io: &Arc<IoCtx>, id: &str, image: &Image) -> orlop_sys::Result<bool> {
    if image.snapshots()?.is_empty() {
        return Ok(false);
    }
    finish_removals(io, id)?;
    // Opened anew: this one may not know yet what has changed.
    let image = io.open_image_by_id(id, None, Access::ReadOnly)?;
    Ok(!image.snapshots()?.is_empty())
}

enum Freeing {
    Freed,
    Needed,
    /// By a client that was killed, which the cluster has not noticed yet; or it is just being cut
    /// together with others.
    InUse,
    /// Another process is freeing.
    Leased,
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

impl Store {
    pub(super) fn ensure_no_volume(&self, id: &VolumeId) -> Result<()> {
        let busy = || Error::Busy(format!("volume {id}"));
        let mut deleted = false;
        // Several processes that were killed may each have left something of the name.
        for _ in 0..ATTEMPTS {
            match self.find(id)? {
                None => {
                    self.forget_cuts_for::<OfImage>(&copying(id));
                    return Ok(());
                }
                Some(Found { image_id, standing: Standing::Deleted }) => {
                    self.ensure_buried(id, &image_id)?;
                }
                Some(Found { image_id, standing: Standing::Draft }) => {
                    match self.try_discard(id, &image_id)? {
                        Outcome::Done => {}
                        Outcome::Differs => return Err(busy()),
                    }
                }
                // Made after the one that was to be deleted.
                Some(Found { standing: Standing::Whole(_), .. }) if deleted => return Ok(()),
                Some(Found { standing: Standing::Whole(_), .. }) => {
                    // What is damaged is refused: it may not be what its name says.
                    let known = self.require(id)?;
                    self.check_unused(id, &known.image_id)?;
                    match self.try_mark_deleted(&known)? {
                        Outcome::Done => self.ensure_buried(id, &known.image_id)?,
                        Outcome::Differs => return Err(busy()),
                    }
                    deleted = true;
                }
            }
        }
        Err(busy())
    }

    /// A client that has it open would go on writing to what is being freed. A controller has it
    /// open only for as long as it flattens or grows it, which is waited for a little.
    pub(super) fn check_unused(&self, id: &VolumeId, image_id: &str) -> Result<()> {
        let looking = || format!("look who uses volume {id}");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let watchers = self.ask(looking, |io| {
                io.open_image_by_id(image_id, None, Access::ReadOnly)?.watchers()
            })?;
            match watchers.first() {
                None => return Ok(()),
                Some(_) if Instant::now() < deadline => thread::sleep(PAUSE),
                Some(_) if self.is_to_be_flattened(id)? => {
                    return Err(Error::Busy(format!("volume {id}, which is being flattened")));
                }
                Some(watcher) => {
                    return Err(Error::precondition(format!(
                        "volume {id} is in use: the Ceph client {} has it open",
                        watcher.address
                    )));
                }
            }
        }
    }

    /// Puts a draft away. `Differs`: it is none any more.
    pub(super) fn try_discard(&self, id: &VolumeId, image_id: &str) -> Result<Outcome> {
        self.check_holds_nothing(id, image_id)?;
        for _ in 0..ATTEMPTS {
            if self.try_replace(id, image_id, None, DELETED)? == Outcome::Done
                || self.try_prevent(id, image_id)? == Outcome::Done
            {
                self.ensure_buried(id, image_id)?;
                return Ok(Outcome::Done);
            }
            match self.find(id)? {
                Some(Found { image_id: same, standing: Standing::Draft }) if same == image_id => {}
                Some(_) | None => break,
            }
        }
        Ok(Outcome::Differs)
    }

    /// A draft is empty or a clone, and has no data of its own. What has some was migrated, restored
    /// from a backup or copied by an operator, and may be the only copy.
    fn check_holds_nothing(&self, id: &VolumeId, image_id: &str) -> Result<()> {
        let looking = || format!("look whether image {} holds data", image_of(id));
        let holds_data = self.ask(looking, |io| {
            let image = match io.open_image_by_id(image_id, None, Access::ReadOnly) {
                Err(error) if error.is_not_found() => return Ok(false),
                image => image?,
            };
            let mut found = false;
            image.visit_written(Written::Here, (0, image.size()?), |extent| {
                found |= extent.holds_data;
                !found
            })?;
            Ok(found)
        })?;
        if !holds_data {
            return Ok(());
        }
        Err(Error::damaged(
            format!("volume {id}"),
            format!(
                "image {} holds data and has no record of a volume, so it was not made here; rename it \
                 with rbd to keep its data, or remove it",
                image_of(id)
            ),
        ))
    }

    /// A maker that was killed before there was an image has left names, and nothing that could be
    /// marked. It may also be alive, only slow: so the mark is put where the image would be, and
    /// librbd makes none where something is. `Differs`: it was quicker.
    fn try_prevent(&self, id: &VolumeId, image_id: &str) -> Result<Outcome> {
        let preventing = || format!("put away what is left of volume {id}");
        let mark = metadata_key(&record_key(image_id));
        let update = Update::of_new_object().set(&mark, DELETED);
        self.ask(preventing, |io| match io.update(&header_of(image_id), &update) {
            Err(error) if error.is_taken() => Ok(Outcome::Differs),
            outcome => outcome,
        })
    }

    /// Of an image that is marked as deleted: its name is free afterwards.
    pub(super) fn ensure_buried(&self, id: &VolumeId, image_id: &str) -> Result<()> {
        let burying = || format!("move volume {id} to the trash");
        self.ask(burying, |io| io.ensure_trashed(&image_of(id), image_id))?;
        self.background.wake();
        Ok(())
    }

    /// The image's name; one in the trash gets one, as only what has a name can be copied.
    pub(super) fn ensure_named(&self, image_id: &str) -> Result<String> {
        let naming = || format!("bring image {image_id} back for a copy");
        let kept = kept_name(image_id);
        self.ask(naming, |io| {
            if let Some(name) = io.image_name(image_id)? {
                return Ok(name);
            }
            match io.restore_from_trash(image_id, &kept) {
                // Another process was faster.
                Err(error) if error.is_not_found() || error.is_taken() => {}
                done => done?,
            }
            Ok(io.image_name(image_id)?.unwrap_or_else(|| kept.clone()))
        })
    }

    /// Frees what is in the trash and needed by nobody; and what is needed by nobody then.
    pub(super) fn free_trash(&self) -> Result<()> {
        let (mut lease, mut again, mut in_use) = (None, true, None);
        while again {
            (again, in_use) = (false, None);
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
                        let what = "the trash, which another process is freeing";
                        return Err(Error::Busy(what.to_owned()));
                    }
                    // It must not keep the others from being freed.
                    Err(error) => {
                        tracing::warn!(
                            %error,
                            image,
                            "cannot free a deleted volume yet; it will be retried"
                        )
                    }
                }
            }
        }
        match in_use {
            None => Ok(()),
            Some(image) => {
                Err(Error::Busy(format!("the deleted image {image}, which is still open")))
            }
        }
    }

    fn try_free(&self, trashed: &Trashed, lease: &mut Option<TrashLease>) -> Result<Freeing> {
        let freeing = || format!("free image {}", trashed.id);
        if self.ask(freeing, |io| is_needed(io, trashed))? {
            return Ok(Freeing::Needed);
        }
        if lease.is_none() {
            *lease = self.try_lease_trash()?;
        }
        match lease {
            Some(_) => self.ask(freeing, |io| free(io, &trashed.id)),
            None => Ok(Freeing::Leased),
        }
    }

    pub(super) fn deleted_images(&self) -> Result<Vec<Trashed>> {
        let listing = || format!("list the trash of pool {}", self.info.name);
        let mut found = self.ask(listing, |io| io.trash())?;
        found.retain(|trashed| is_ours(&self.info.id, &trashed.name));
        let mut deleted = Vec::new();
        for trashed in found {
            let key = record_key(&trashed.id);
            let is_deleted = self.ask(listing, |io| {
                Ok(match io.image_metadata(&trashed.id, &key)? {
                    Some(text) => text == DELETED,
                    // Whoever freed it was killed when only the entry was left.
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
    pub(super) fn sweep_volumes(&self) -> Result<()> {
        let listing = || format!("look for leftovers in pool {}", self.info.name);
        let prefix = volume_prefix(&self.info.id);
        let mut unmade = Vec::new();
        for (name, image_id) in self.ask(listing, |io| io.image_names("", &prefix, 0))? {
            let Ok(id) = name.parse::<VolumeId>() else { continue };
            match self.sweep_volume(&id, &image_id) {
                Ok(Sweep::Done) => {}
                Ok(Sweep::Unmade) => unmade.push((id, image_id)),
                // It must not keep the others from being swept.
                Err(error) => {
                    tracing::warn!(%error, %id, "cannot remove an orphan; it will be retried")
                }
            }
        }
        if !unmade.is_empty() {
            thread::sleep(MAKING);
        }
        for (id, image_id) in unmade {
            if let Err(error) = self.discard_unmade(&id, &image_id) {
                tracing::warn!(%error, %id, "cannot remove an orphan; it will be retried");
            }
        }
        Ok(())
    }

    fn sweep_volume(&self, id: &VolumeId, image_id: &str) -> Result<Sweep> {
        match self.find(id)? {
            Some(Found { image_id: same, standing: Standing::Deleted }) if same == image_id => {
                self.ensure_buried(id, image_id)?;
            }
            Some(Found { image_id: same, standing: Standing::Draft }) if same == image_id => {
                match self.created(image_id)? {
                    None => return Ok(Sweep::Unmade),
                    Some(created) if created.elapsed().is_ok_and(|age| age > HOUR) => {
                        self.try_discard(id, image_id)?;
                    }
                    Some(_) => {}
                }
            }
            Some(Found { image_id: same, standing: Standing::Whole(_) }) if same == image_id => {
                let finishing = || format!("remove what is left of snapshots of volume {id}");
                self.ask(finishing, |io| finish_removals(io, image_id))?;
            }
            Some(_) | None => {}
        }
        Ok(Sweep::Done)
    }

    /// A name without an image, which was so a moment ago: its maker was killed.
    fn discard_unmade(&self, id: &VolumeId, image_id: &str) -> Result<()> {
        let unmade = matches!(
            self.find(id)?,
            Some(Found { image_id: same, standing: Standing::Draft }) if same == image_id
        ) && self.created(image_id)?.is_none();
        if unmade {
            self.try_discard(id, image_id)?;
        }
        Ok(())
    }

    /// `None`: there are at most names of it.
    pub(super) fn created(&self, image_id: &str) -> Result<Option<SystemTime>> {
        let looking = || format!("look at image {image_id}");
        self.ask(looking, |io| match io.open_image_by_id(image_id, None, Access::ReadOnly) {
            Err(error) if error.is_not_found() => Ok(None),
            image => image?.created().map(Some),
        })
    }

    /// Images that had a name for a copy, and have no snapshot left that could be copied.
    pub(super) fn sweep_kept(&self) -> Result<()> {
        let listing = || format!("look for leftovers in pool {}", self.info.name);
        for (name, image_id) in self.ask(listing, |io| io.image_names("", kept_prefix(), 0))? {
            let looking = || format!("look at image {name}");
            let swept = self.ask(looking, |io| match is_still_kept(io, &image_id)? {
                true => Ok(()),
                false => io.ensure_trashed(&name, &image_id),
            });
            if let Err(error) = swept {
                tracing::warn!(%error, name, "cannot remove an orphan; it will be retried");
            }
        }
        Ok(())
    }
}

enum Sweep {
    Done,
    /// There is a name, but no image.
    Unmade,
}

/// Also one that was never deleted: whoever gave it that name wants to have it there.
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
    Ok(open()?.snapshots()?.iter().any(|one| one.space != SnapshotSpace::Trash))
}
