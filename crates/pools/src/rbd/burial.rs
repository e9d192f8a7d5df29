//! What becomes of an image that is no volume any more.
//!
//! It is marked as deleted, which makes it gone for good, then moved to the trash, then freed. A
//! snapshot of it keeps it in the trash; to be copied from it needs a name again, and gets one that
//! no volume has. A crash after any step leaves it for the housekeeping of whoever is next.
//!
//! Nothing is ever freed that is not marked as deleted.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Error, Result, VolumeId};
use orlop_sys::ceph::{Access, IoCtx, Outcome, SnapshotSpace, Trashed};

use super::layout::{
    DELETED, image_of, is_kept, is_ours, kept_name, kept_prefix, record_key, volume_prefix,
};
use super::store::Store;
use super::volume_records::{Found, Standing};

const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// An attempt to free what a snapshot needs would keep others from it for a moment.
fn free_if_unneeded(io: &Arc<IoCtx>, image_id: &str) -> orlop_sys::Result<bool> {
    let needed = match io.open_image_by_id(image_id, None, Access::ReadOnly) {
        // Half-freed by someone who was killed.
        Err(error) if error.is_not_found() => false,
        image => !image?.snapshots()?.is_empty(),
    };
    if needed { Ok(false) } else { io.try_free_trashed(image_id) }
}

impl Store {
    pub(super) fn ensure_no_volume(&self, id: &VolumeId) -> Result<()> {
        match self.find(id)? {
            None => Ok(()),
            Some(Found { image_id, standing: Standing::Deleted }) => {
                self.ensure_buried(id, &image_id)
            }
            Some(Found { image_id, standing: Standing::Draft }) => {
                match self.try_discard(id, &image_id)? {
                    Outcome::Done => Ok(()),
                    Outcome::Differs => Err(Error::Busy(format!("volume {id}"))),
                }
            }
            Some(Found { standing: Standing::Whole(_), .. }) => {
                // What is damaged is refused: it may not be what its name says.
                let known = self.require(id)?;
                self.check_unused(id, &known.image_id)?;
                match self.try_replace(id, &known.image_id, Some(&known.text), DELETED)? {
                    Outcome::Done => self.ensure_buried(id, &known.image_id),
                    Outcome::Differs => Err(Error::Busy(format!("volume {id}"))),
                }
            }
        }
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
        if self.try_replace(id, image_id, None, DELETED)? == Outcome::Differs {
            return match self.find(id)? {
                // Its maker died before there was anything that could be marked.
                Some(Found { image_id: same, standing: Standing::Draft }) if same == image_id => {
                    let removing = || format!("remove what is left of volume {id}");
                    self.ask(removing, |io| io.ensure_unnamed(&image_of(id), image_id))?;
                    Ok(Outcome::Done)
                }
                Some(_) | None => Ok(Outcome::Differs),
            };
        }
        self.ensure_buried(id, image_id)?;
        Ok(Outcome::Done)
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
        let mut again = true;
        while again {
            again = false;
            for id in self.deleted_images()? {
                let freeing = || format!("free image {id}");
                match self.ask(freeing, |io| free_if_unneeded(io, &id)) {
                    Ok(true) => {
                        tracing::info!(image = id, "freed a deleted volume");
                        again = true;
                    }
                    Ok(false) => {}
                    // It must not keep the others from being freed.
                    Err(error) => tracing::warn!(%error, image = id, "not freed yet"),
                }
            }
        }
        Ok(())
    }

    fn deleted_images(&self) -> Result<Vec<String>> {
        let listing = || format!("list the trash of pool {}", self.name);
        let mut found = Vec::new();
        for Trashed { id, name } in self.ask(listing, |io| io.trash())? {
            let key = record_key(&id);
            if is_ours(&self.id, &name)
                && self.ask(listing, |io| io.image_metadata(&id, &key))?.as_deref() == Some(DELETED)
            {
                found.push(id);
            }
        }
        Ok(found)
    }

    /// Deletions and creations that were not carried to the end.
    pub(super) fn sweep_volumes(&self) -> Result<()> {
        let listing = || format!("look for leftovers in pool {}", self.name);
        let prefix = volume_prefix(&self.id);
        for (name, image_id) in self.ask(listing, |io| io.image_names("", &prefix, 0))? {
            let Ok(id) = name.parse::<VolumeId>() else { continue };
            match self.find(&id)? {
                Some(Found { image_id: same, standing: Standing::Deleted }) if same == image_id => {
                    self.ensure_buried(&id, &image_id)?;
                }
                Some(Found { image_id: same, standing: Standing::Draft })
                    if same == image_id && self.is_old(&image_id)? =>
                {
                    self.try_discard(&id, &image_id)?;
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// Nobody needs an hour to make an image. One that cannot even be opened has no age.
    pub(super) fn is_old(&self, image_id: &str) -> Result<bool> {
        let looking = || format!("look at image {image_id}");
        let created =
            self.ask(looking, |io| match io.open_image_by_id(image_id, None, Access::ReadOnly) {
                Err(error) if error.is_not_found() => Ok(None),
                image => image?.created().map(Some),
            })?;
        Ok(created.is_some_and(|created| {
            created.elapsed().is_ok_and(|age| age.as_secs() > super::background::HOUR.as_secs())
        }))
    }

    /// Images that had a name for a copy, and have no snapshot left that could be copied.
    pub(super) fn sweep_kept(&self) -> Result<()> {
        let listing = || format!("look for leftovers in pool {}", self.name);
        for (name, image_id) in self.ask(listing, |io| io.image_names("", kept_prefix(), 0))? {
            let looking = || format!("look at image {name}");
            self.ask(looking, |io| {
                let image = match io.open_image_by_id(&image_id, None, Access::ReadOnly) {
                    Err(error) if error.is_not_found() => return Ok(()),
                    image => image?,
                };
                let needed = image.snapshots()?.iter().any(|one| one.space != SnapshotSpace::Trash);
                drop(image);
                if needed || !is_kept(&name) {
                    return Ok(());
                }
                io.ensure_trashed(&name, &image_id)
            })?;
        }
        Ok(())
    }
}
