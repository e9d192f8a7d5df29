//! Deleting a volume.
//!
//! Its image is marked as deleted, which makes it gone for good, then moved to the trash, where
//! `garbage.rs` frees it. A snapshot of it keeps it in the trash; to be copied from it needs a name
//! again, and gets one that no volume has. A crash after any step leaves the rest to garbage
//! collection.

mod snapshots;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Error, Result, VolumeId};
use orlop_sys::ceph::{Access, UpdateOutcome};

use super::catalogue::RbdCatalogue;
use super::draft_check::DraftCheck;
use super::flatten::Flattening;
use super::garbage::Background;
use super::image_state::{CHANGED, ImageState, NamedState, Step};
use super::images::{Images, KnownImage, NamedImage, state_of, trashed_by_hand};
use super::intent::Intents;
use super::layout::{MEMBER, copy_purpose, image_of, joined_key, kept_name};
use super::records::Records;
use super::session::Session;
use super::uncommitted_snapshot::IntendedSnapshot;

const ATTEMPTS: usize = 5;
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Deletion {
    session: Arc<Session>,
    images: Arc<Images>,
    records: Arc<Records>,
    catalogue: Arc<RbdCatalogue>,
    intents: Arc<Intents>,
    flattening: Arc<Flattening>,
    background: Arc<Background>,
    draft_check: DraftCheck,
}

impl Deletion {
    pub(super) fn new(
        session: &Arc<Session>,
        images: &Arc<Images>,
        records: &Arc<Records>,
        catalogue: &Arc<RbdCatalogue>,
        intents: &Arc<Intents>,
        flattening: &Arc<Flattening>,
        background: &Arc<Background>,
    ) -> Self {
        Self {
            session: Arc::clone(session),
            images: Arc::clone(images),
            records: Arc::clone(records),
            catalogue: Arc::clone(catalogue),
            intents: Arc::clone(intents),
            flattening: Arc::clone(flattening),
            background: Arc::clone(background),
            draft_check: DraftCheck::new(session, catalogue),
        }
    }

    pub(super) fn ensure_no_volume(&self, id: &VolumeId) -> Result<()> {
        let busy = || Error::busy(format!("volume {id}"), CHANGED);
        let mut deleted = false;
        // Several daemons that were killed may each have left something of the name.
        for _ in 0..ATTEMPTS {
            match self.images.find(id)? {
                None => {
                    self.intents.remove_all_for::<IntendedSnapshot>(&copy_purpose(id));
                    return Ok(());
                }
                Some(NamedImage { image_id, state: NamedState::Deleted }) => {
                    self.ensure_trashed(id, &image_id)?;
                }
                Some(NamedImage { image_id, state: NamedState::Draft }) => {
                    match self.try_discard(id, &image_id)? {
                        UpdateOutcome::Done => {}
                        UpdateOutcome::Differs => return Err(busy()),
                    }
                }
                // Made after the one that was to be deleted.
                Some(NamedImage { state: NamedState::Whole(_), .. }) if deleted => return Ok(()),
                Some(NamedImage { state: NamedState::Whole(_), .. }) => {
                    // What is damaged is refused: it may not be what its name says.
                    let known = self.images.require(id)?;
                    self.check_unused(id, &known.image_id)?;
                    match self.try_mark_deleted(&known)? {
                        UpdateOutcome::Done => self.ensure_trashed(id, &known.image_id)?,
                        UpdateOutcome::Differs => return Err(busy()),
                    }
                    deleted = true;
                }
            }
        }
        Err(busy())
    }

    /// A client that has it open would go on writing to what is being freed. A controller has it
    /// open only for as long as it flattens or grows it, which is waited for a little.
    fn check_unused(&self, id: &VolumeId, image_id: &str) -> Result<()> {
        let looking = || format!("list the clients of volume {id}");
        self.session.ask(|| format!("delete volume {id}"), |io| io.check_no_hand_lock(image_id))?;
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        loop {
            let watchers = self.session.ask(looking, |io| {
                io.open_image_by_id(image_id, None, Access::ReadOnly)?.watchers()
            })?;
            match watchers.first() {
                None => return Ok(()),
                Some(_) if Instant::now() < deadline => thread::sleep(POLL_INTERVAL),
                Some(_) if self.flattening.is_requested(id, image_id)? => {
                    return Err(Error::busy(format!("volume {id}"), "it is being flattened"));
                }
                Some(watcher) => {
                    return Err(Error::precondition(format!(
                        "cannot delete volume {id}: the Ceph client {} has it open; unstage it \
                         there first",
                        watcher.address
                    )));
                }
            }
        }
    }

    /// Deletes a draft. `Differs`: it is none any more.
    pub(super) fn try_discard(&self, id: &VolumeId, image_id: &str) -> Result<UpdateOutcome> {
        let discarding = || format!("discard the draft of volume {id}");
        self.check_is_draft(id, image_id)?;
        for _ in 0..ATTEMPTS {
            if self.try_either(discarding, image_id)? == UpdateOutcome::Done {
                self.ensure_trashed(id, image_id)?;
                return Ok(UpdateOutcome::Done);
            }
            match self.images.find(id)? {
                Some(NamedImage { image_id: same, state: NamedState::Draft })
                    if same == image_id => {}
                Some(_) | None => break,
            }
        }
        Ok(UpdateOutcome::Differs)
    }

    /// Was an image without a record left by an interrupted creation?
    pub(super) fn check_is_draft(&self, id: &VolumeId, image_id: &str) -> Result<()> {
        self.draft_check.check(id, image_id)
    }

    /// A daemon that was killed before there was an image has left names, and nothing that could be
    /// marked. It may also be alive, only slow, and quicker than each of both steps.
    fn try_either(&self, discarding: impl Fn() -> String, image_id: &str) -> Result<UpdateOutcome> {
        let draft = ImageState::Draft;
        match self.images.take_step(&discarding, image_id, draft, &Step::Discard)? {
            UpdateOutcome::Done => Ok(UpdateOutcome::Done),
            UpdateOutcome::Differs => {
                self.images.take_step(discarding, image_id, draft, &Step::Prevent)
            }
        }
    }

    /// Moves an image that is marked as deleted to the trash; its name is free afterwards.
    pub(super) fn ensure_trashed(&self, id: &VolumeId, image_id: &str) -> Result<()> {
        let trashing = || format!("move volume {id} to the trash");
        let trash = Step::Trash { name: &image_of(id) };
        self.images.take_step(trashing, image_id, ImageState::Deleted, &trash)?;
        self.background.wake();
        Ok(())
    }

    /// Deletes the record unless the volume is in a group, or joins one just now.
    fn try_mark_deleted(&self, known: &KnownImage) -> Result<UpdateOutcome> {
        let KnownImage { image_id, text, record } = known;
        let id = &record.id;
        let deleting = || format!("delete volume {id}");
        let mark =
            self.session.ask(deleting, |io| io.image_metadata(image_id, &joined_key(image_id)))?;
        let group = self.records.get(deleting, &format!("{MEMBER}{id}"))?;
        if let Some(group) = group {
            return Err(Error::precondition(format!(
                "cannot delete volume {id}: it is a member of volume group {}; take it out of the \
                 group first",
                String::from_utf8_lossy(&group)
            )));
        }
        let delete = Step::Delete { was: text, joined: mark.as_deref() };
        self.images.take_step(deleting, image_id, ImageState::Whole, &delete)
    }

    /// The image's name; one in the trash gets one, as only what has a name can be copied.
    pub(super) fn ensure_named(&self, image_id: &str) -> Result<String> {
        let naming = || format!("restore image {image_id} from the trash for a copy");
        let kept = kept_name(image_id);
        if let Some(name) = self.session.ask(naming, |io| io.image_name(image_id))? {
            return Ok(name);
        }
        // Under another name it would be the image of no volume any more.
        let state = self.session.ask(naming, |io| state_of(io, image_id))?;
        if matches!(state, NamedState::Whole(_)) {
            let reason = trashed_by_hand(image_id);
            return Err(Error::damaged(format!("image {image_id}"), reason));
        }
        self.session.ask(naming, |io| {
            Step::Restore { name: &kept }.take(io, image_id, ImageState::Trashed)?;
            // Also if another process was faster.
            Ok(io.image_name(image_id)?.unwrap_or_else(|| kept.clone()))
        })
    }
}
