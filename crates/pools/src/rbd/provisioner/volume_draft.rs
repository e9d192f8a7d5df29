//! Making a volume: the image first, its record last.
//!
//! A name without a record is a draft. The daemon that made it may be dead, so the next call for the
//! same name waits for a moment, deletes the draft and makes another; the first daemon, if it is
//! alive after all, then finds that its image is marked as deleted, and gives up. The record is
//! written to an image of a certain id, and only while that has none: of many who try at once, one
//! wins.
//!
//! A crash before the record leaves a draft; after it, a volume.

use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{
    ContentSource, Draft, Error, NewVolume, Provisioning, Result, SnapshotId, VolumeRecord,
};
use orlop_sys::ceph::{
    Access, ImageSnapshot, NewImage, Parent, SnapshotNamespace, SnapshotRef, Update, UpdateOutcome,
    header_of, metadata_key,
};

use super::super::catalogue::{SnapshotEntry, SnapshotLocation};
use super::super::image_state::{BEING_MADE, CHANGED};
use super::super::image_state::{ImageState, NamedState, Step};
use super::super::images::NamedImage;
use super::super::layout::{OURS, copy_purpose, image_of, is_own_snapshot, record_key};
use super::super::uncommitted_snapshot::{IntendedSnapshot, UncommittedSnapshot};
use super::{RbdProvisioner, can_restore_groups};
use crate::recorded::{new_volume_record, to_text};

/// Each draft that stands in the way is deleted once. Of two daemons that were killed, each may
/// have left half of the name.
const ATTEMPTS: usize = 5;
/// Much longer than a daemon that is alive needs. Nothing depends on it but how often two that make
/// the same volume delete each other's drafts.
const DRAFT_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct RbdVolumeDraft {
    pool: RbdProvisioner,
    record: VolumeRecord,
    origin: CopyOrigin,
}

#[derive(Debug)]
enum CopyOrigin {
    /// No snapshot of it was taken yet.
    Volume {
        image_id: String,
    },
    Captured(CapturedContent),
}

/// What the image is made of.
#[derive(Debug)]
enum CapturedContent {
    Zeroes,
    Snapshot { id: SnapshotId, location: SnapshotLocation },
    Copy(UncommittedSnapshot),
}

impl RbdVolumeDraft {
    pub(super) fn begin(pool: &RbdProvisioner, new: &NewVolume) -> Result<Self> {
        new.parameters.check_no_layout(&pool.info.name, "rbd")?;
        match new.parameters.provisioning {
            Provisioning::Thin => {}
            Provisioning::Thick => {
                return Err(Error::invalid(
                    "parameters",
                    format!("provisioning: pool {} has thin volumes only", pool.info.name),
                ));
            }
        }
        if pool.images.known(&new.id)?.is_some() {
            return Err(Error::busy(format!("volume {}", new.id), BEING_MADE));
        }
        pool.capacity.check_fits(new.capacity_bytes)?;
        let origin = origin_of(pool, new)?;
        Ok(Self { pool: pool.clone(), record: new_volume_record(new), origin })
    }
}

impl CopyOrigin {
    fn captured(self, pool: &RbdProvisioner, record: &VolumeRecord) -> Result<CapturedContent> {
        match self {
            Self::Volume { image_id } => copy(pool, &image_id, record),
            Self::Captured(content) => Ok(content),
        }
    }
}

fn copy(pool: &RbdProvisioner, image_id: &str, record: &VolumeRecord) -> Result<CapturedContent> {
    pool.take_snapshot(image_id, &copy_purpose(&record.id)).map(CapturedContent::Copy)
}

fn origin_of(pool: &RbdProvisioner, new: &NewVolume) -> Result<CopyOrigin> {
    let (origin, size, image_id) = match &new.source {
        None => return Ok(CopyOrigin::Captured(CapturedContent::Zeroes)),
        Some(ContentSource::Snapshot(id)) => {
            let entry = pool.catalogue.snapshot_records().require(id)?;
            check_restorable(&entry)?;
            let image_id = entry.location.image.clone();
            let content = CapturedContent::Snapshot { id: id.clone(), location: entry.location };
            (CopyOrigin::Captured(content), entry.record.size_bytes, image_id)
        }
        Some(ContentSource::Volume(id)) => {
            let known = pool.images.require(id)?;
            pool.images.check_length(&known)?;
            let origin = CopyOrigin::Volume { image_id: known.image_id.clone() };
            (origin, known.record.capacity_bytes, known.image_id)
        }
    };
    check_size(size, new.capacity_bytes)?;
    pool.flattening.check_depth(&image_id)?;
    Ok(origin)
}

/// A group snapshot may have been taken by a controller with another librbd.
fn check_restorable(entry: &SnapshotEntry) -> Result<()> {
    if entry.location.number.is_none() || can_restore_groups() {
        return Ok(());
    }
    Err(Error::precondition(format!(
        "cannot restore snapshot {}: it is a member of a group snapshot, and librbd of this machine \
         has no rbd_clone4, which restores such snapshots; Ceph 19 has it",
        entry.record.id
    )))
}

fn check_size(source: u64, capacity: u64) -> Result<()> {
    if source <= capacity {
        return Ok(());
    }
    Err(Error::OutOfRange(format!(
        "cannot copy the source: it has {source} bytes, which do not fit into {capacity}; ask for \
         at least as many"
    )))
}

impl Draft<VolumeRecord> for RbdVolumeDraft {
    fn capture(&mut self) -> Result<()> {
        if let CopyOrigin::Volume { image_id } = &self.origin {
            self.origin = CopyOrigin::Captured(copy(&self.pool, image_id, &self.record)?);
        }
        Ok(())
    }

    /// The image is cloned from it.
    fn needs_source_until_commit(&self) -> bool {
        true
    }

    fn commit(self: Box<Self>) -> Result<VolumeRecord> {
        let Self { pool, record, origin } = *self;
        let content = origin.captured(&pool, &record)?;
        CapturedDraft { pool, record, content }.commit()
    }
}

/// A draft whose content is fixed: only this can make an image.
struct CapturedDraft {
    pool: RbdProvisioner,
    record: VolumeRecord,
    content: CapturedContent,
}

impl CapturedDraft {
    fn commit(self) -> Result<VolumeRecord> {
        let text = to_text(&self.record)?;
        let image_id = self.make_image()?;
        let writing = || format!("write the record of {}", self.record.label());
        let commit = Step::Commit { record: &text };
        match self.pool.images.take_step(writing, &image_id, ImageState::Draft, &commit)? {
            UpdateOutcome::Done => {
                if self.parent().is_some() {
                    self.pool.flattening.request_if_deep(&self.record.id, &image_id);
                }
                if matches!(self.content, CapturedContent::Copy(_)) {
                    self.pool
                        .intents
                        .remove_all_for::<IntendedSnapshot>(&copy_purpose(&self.record.id));
                }
                Ok(self.record.clone())
            }
            UpdateOutcome::Differs => Err(self.overtaken()),
        }
    }

    /// Returns the id of an image that has the volume's name, its size and its data.
    fn make_image(&self) -> Result<String> {
        let id = &self.record.id;
        for _ in 0..ATTEMPTS {
            if self.try_create()? {
                return self.finished_image();
            }
            let Some(NamedImage { image_id, state }) = self.pool.images.find(id)? else { continue };
            match state {
                NamedState::Whole(_) => return Err(self.overtaken()),
                NamedState::Deleted => self.pool.deletion.ensure_trashed(id, &image_id)?,
                NamedState::Draft => self.replace_draft(&image_id)?,
            }
        }
        Err(self.overtaken())
    }

    /// Deletes the draft of another daemon, unless that commits it within a moment.
    fn replace_draft(&self, image_id: &str) -> Result<()> {
        let id = &self.record.id;
        let deadline = Instant::now() + DRAFT_TIMEOUT;
        while Instant::now() < deadline {
            match self.pool.images.find(id)? {
                Some(NamedImage { image_id: same, state: NamedState::Draft })
                    if same == image_id =>
                {
                    thread::sleep(POLL_INTERVAL);
                }
                Some(_) | None => return Ok(()),
            }
        }
        match self.pool.deletion.try_discard(id, image_id)? {
            UpdateOutcome::Done => Ok(()),
            UpdateOutcome::Differs => Err(self.overtaken()),
        }
    }

    /// `false`: there is an image of that name.
    fn try_create(&self) -> Result<bool> {
        let creating = || format!("create {}", self.record.label());
        let name = image_of(&self.record.id);
        let Some((image_id, snapshot)) = self.parent() else {
            let zeroes = NewImage::Zeroes { size: self.record.capacity_bytes };
            let session = &self.pool.session;
            return session.ask(creating, |io| created(io.create_image(&name, zeroes)));
        };
        let parent = self.pool.deletion.ensure_named(image_id)?;
        let copy = NewImage::CloneOf { image: &parent, snapshot };
        let outcome = self.pool.session.ask(creating, |io| match io.create_image(&name, copy) {
            Err(error) if error.is_not_found() => Ok(None),
            outcome => created(outcome).map(Some),
        })?;
        match outcome {
            Some(made) => Ok(made),
            None => Err(self.without_source()?),
        }
    }

    fn parent(&self) -> Option<(&str, SnapshotRef<'_>)> {
        match &self.content {
            CapturedContent::Zeroes => None,
            CapturedContent::Snapshot { location, .. } => {
                Some((&location.image, location.reference()))
            }
            CapturedContent::Copy(snapshot) => Some((snapshot.image_id(), snapshot.reference())),
        }
    }

    fn is_of(&self, parent: Option<&Parent>) -> bool {
        match (self.parent(), parent) {
            (None, None) => true,
            (Some((image, snapshot)), Some(parent)) => {
                let same = match snapshot {
                    SnapshotRef::Name(name) => parent.snapshot == name,
                    SnapshotRef::Number(number) => parent.number == number,
                };
                same && parent.image_id == image
            }
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// The source was deleted, or another process moved it just now; or an operator has removed the
    /// snapshot, and its record is still there.
    fn without_source(&self) -> Result<Error> {
        let (id, location) = match &self.content {
            CapturedContent::Snapshot { id, location } => (id, location),
            CapturedContent::Zeroes | CapturedContent::Copy(_) => return Ok(self.overtaken()),
        };
        let looking = || format!("find the data of snapshot {id}");
        let there = self.pool.session.ask(looking, |io| {
            match io.open_image_by_id(&location.image, None, Access::ReadOnly) {
                Err(error) if error.is_not_found() => Ok(Vec::new()),
                image => image?.snapshots(),
            }
        })?;
        let is_there = there.iter().any(|one| match location.reference() {
            SnapshotRef::Name(name) => one.name == name,
            SnapshotRef::Number(number) => one.number == number,
        });
        // Read after that: a deletion removes the record first.
        let is_recorded = self.pool.catalogue.snapshot_records().text(id)?.is_some();
        if is_there || !is_recorded {
            return Ok(Error::busy(format!("snapshot {id}"), CHANGED));
        }
        let is_operators = |one: &&ImageSnapshot| {
            one.namespace == SnapshotNamespace::User
                && !is_own_snapshot(&self.pool.info.id, &one.name)
        };
        let others: Vec<_> =
            there.iter().filter(is_operators).map(|one| one.name.as_str()).collect();
        Ok(Error::damaged(format!("snapshot {id}"), gone(location, &others)))
    }

    /// Another process is making the same volume, or has just made it.
    fn overtaken(&self) -> Error {
        Error::busy(format!("volume {}", self.record.id), BEING_MADE)
    }

    fn finished_image(&self) -> Result<String> {
        let name = image_of(&self.record.id);
        let bytes = self.record.capacity_bytes;
        let finishing = || format!("create {}", self.record.label());
        let session = &self.pool.session;
        let shape = session.ask(finishing, |io| {
            let open = |access| match io.open_image(&name, access) {
                Err(error) if error.is_not_found() => Ok(None),
                image => image.map(Some),
            };
            let Some(mut image) = open(Access::ReadOnly)? else { return Ok(None) };
            if image.size()? < bytes {
                // A daemon that is killed before the end counts as its user for a while.
                let Some(writable) = open(Access::ReadWrite)? else { return Ok(None) };
                writable.ensure_size(bytes)?;
                image = writable;
            }
            Ok(Some((image.id()?, image.size()?, image.parent()?)))
        })?;
        let Some((image_id, size, parent)) = shape else { return Err(self.overtaken()) };
        // A clone is as long as the image of its source, which may be longer than the source: then an expansion
        // of it was interrupted, and there is nothing past the end.
        let as_long = size == bytes || (size > bytes && parent.is_some());
        if !as_long || !self.is_of(parent.as_ref()) {
            return Err(self.overtaken());
        }
        // A process that took this image for an orphan may have removed the entry.
        if !session.ask(finishing, |io| io.ensure_directory_entry(&name, &image_id))? {
            return Err(self.overtaken());
        }
        if parent.is_some() {
            self.forget_inherited(&image_id)?;
        }
        Ok(image_id)
    }

    /// librbd gives a clone all metadata of its parent. None of it counts here; it only would pile
    /// up from copy to copy.
    fn forget_inherited(&self, image_id: &str) -> Result<()> {
        let header = header_of(image_id);
        let forgetting = || format!("create {}", self.record.label());
        self.pool.session.ask(forgetting, |io| {
            let inherited = io.omap_list(&header, "", &metadata_key(OURS), 0)?;
            if inherited.is_empty() {
                return Ok(());
            }
            let remove = |update: Update, (key, _): &(String, Vec<u8>)| update.remove(key);
            let own = metadata_key(&record_key(image_id));
            let update = Update::default().expect(&own, None);
            match io.update(&header, &inherited.iter().fold(update, remove)) {
                Err(error) if error.is_not_found() => Ok(()),
                done => done.map(drop),
            }
        })
    }
}

/// `others`: the snapshots of the image that Orlop has not taken, or that were renamed since.
fn gone(location: &SnapshotLocation, others: &[&str]) -> String {
    let SnapshotLocation { image, snapshot, .. } = location;
    if others.is_empty() {
        return format!(
            "snapshot {snapshot} of image {image}, which has its data, was removed with rbd; nothing can \
             restore it: delete the snapshot"
        );
    }
    format!(
        "snapshot {snapshot} of image {image}, which has its data, was renamed or removed with rbd; the image has \
         these snapshots that are not Orlop's: {}; if one of them was it, rename it to {snapshot} with `rbd snap \
         rename`, and only if none was, delete the snapshot",
        others.join(", ")
    )
}

fn created(outcome: orlop_sys::Result<()>) -> orlop_sys::Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.is_taken() => Ok(false),
        Err(error) => Err(error),
    }
}
