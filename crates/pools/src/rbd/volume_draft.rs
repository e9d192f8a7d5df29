//! Making a volume: the image first, its record last.
//!
//! A name without a record is a draft. Its maker may be dead, so whoever comes next with the same
//! name waits for a moment, puts it away and makes another; the maker, if it is alive after all,
//! then finds that its image is marked as deleted, and gives up. What the record is written to is an
//! image of a certain id, and only while that has none: of many who try at once, one wins.
//!
//! A crash before the record leaves a draft; after it, a volume.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{
    ContentSource, Draft, Error, NewVolume, Provisioning, Result, SnapshotId, VolumeId,
    VolumeRecord,
};
use orlop_sys::ceph::{
    Access, NewImage, Outcome, Parent, SnapshotRef, Update, header_of, metadata_key,
};

use super::cut::{Cut, OfImage};
use super::group_snapshots::can_restore_groups;
use super::layout::{OURS, image_of, record_key};
use super::snapshots::{Entry, Place};
use super::store::Store;
use super::volume_records::{Found, Standing};
use crate::recorded::{new_volume_record, to_text};

/// Each draft that stands in the way is put away once. Of two makers that were killed, each may
/// have left half of the name.
const ATTEMPTS: usize = 5;
/// Much longer than a maker that is alive needs. Nothing depends on it but how often two that make
/// the same volume put away each other's work.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct VolumeDraft {
    store: Arc<Store>,
    record: VolumeRecord,
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    Zeroes,
    Snapshot {
        id: SnapshotId,
        place: Place,
    },
    /// Not cut yet.
    Volume {
        image_id: String,
    },
    Cut(Cut),
}

impl Store {
    pub(super) fn begin_volume(self: &Arc<Self>, new: &NewVolume) -> Result<VolumeDraft> {
        match new.parameters.provisioning {
            Provisioning::Thin => {}
            Provisioning::Thick => {
                return Err(Error::invalid(
                    "parameters",
                    format!("provisioning: pool {} has thin volumes only", self.info.name),
                ));
            }
        }
        if self.known(&new.id)?.is_some() {
            return Err(Error::Busy(format!("volume {}", new.id)));
        }
        self.check_fits(new.capacity_bytes)?;
        let origin = self.origin_of(new)?;
        Ok(VolumeDraft { store: Arc::clone(self), record: new_volume_record(new), origin })
    }

    fn origin_of(&self, new: &NewVolume) -> Result<Origin> {
        let (origin, size, image_id) = match &new.source {
            None => return Ok(Origin::Zeroes),
            Some(ContentSource::Snapshot(id)) => {
                let entry = self.require_snapshot(id)?;
                check_restorable(&entry)?;
                let image_id = entry.place.image.clone();
                let origin = Origin::Snapshot { id: id.clone(), place: entry.place };
                (origin, entry.record.size_bytes, image_id)
            }
            Some(ContentSource::Volume(id)) => {
                let known = self.require(id)?;
                let origin = Origin::Volume { image_id: known.image_id.clone() };
                (origin, known.record.capacity_bytes, known.image_id)
            }
        };
        check_size(size, new.capacity_bytes)?;
        self.check_depth(&image_id)?;
        Ok(origin)
    }
}

/// What was cut together with others may have been cut by a controller with another librbd.
fn check_restorable(entry: &Entry) -> Result<()> {
    if entry.place.number.is_none() || can_restore_groups() {
        return Ok(());
    }
    Err(Error::precondition(format!(
        "snapshot {} was cut together with others, and librbd of this machine has no rbd_clone4, \
         which restores such a one; Ceph 19 has it",
        entry.record.id
    )))
}

/// What the source of a copy is cut for.
pub(super) fn copying(id: &VolumeId) -> String {
    format!("copy-{id}")
}

fn check_size(source: u64, capacity: u64) -> Result<()> {
    if source <= capacity {
        return Ok(());
    }
    Err(Error::OutOfRange(format!(
        "the source has {source} bytes, which do not fit into {capacity}"
    )))
}

impl Draft<VolumeRecord> for VolumeDraft {
    fn capture(&mut self) -> Result<()> {
        if let Origin::Volume { image_id } = &self.origin {
            let cut = Cut::make(&self.store, image_id, &copying(&self.record.id))?;
            // It may have grown since it was looked at.
            check_size(cut.size, self.record.capacity_bytes)?;
            self.origin = Origin::Cut(cut);
        }
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<VolumeRecord> {
        self.capture()?;
        let text = to_text(&self.record)?;
        let image_id = self.make_image()?;
        match self.store.try_replace(&self.record.id, &image_id, None, &text)? {
            Outcome::Done => {
                self.store.note_depth(&self.record.id, &image_id);
                if matches!(self.origin, Origin::Cut(_)) {
                    self.store.forget_cuts_for::<OfImage>(&copying(&self.record.id));
                }
                Ok(self.record.clone())
            }
            Outcome::Differs => Err(self.overtaken()),
        }
    }
}

impl VolumeDraft {
    /// Returns the id of an image that has the volume's name, its size and its data.
    fn make_image(&self) -> Result<String> {
        let id = &self.record.id;
        for _ in 0..ATTEMPTS {
            if self.try_create()? {
                return self.finished_image();
            }
            let Some(Found { image_id, standing }) = self.store.find(id)? else { continue };
            match standing {
                Standing::Whole(_) => return Err(self.overtaken()),
                Standing::Deleted => self.store.ensure_buried(id, &image_id)?,
                Standing::Draft => self.take_over(&image_id)?,
            }
        }
        Err(self.overtaken())
    }

    /// Puts away what another began, unless it ends well within a moment.
    fn take_over(&self, image_id: &str) -> Result<()> {
        let id = &self.record.id;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self.store.find(id)? {
                Some(Found { image_id: same, standing: Standing::Draft }) if same == image_id => {
                    thread::sleep(PAUSE);
                }
                Some(_) | None => return Ok(()),
            }
        }
        match self.store.try_discard(id, image_id)? {
            Outcome::Done => Ok(()),
            Outcome::Differs => Err(self.overtaken()),
        }
    }

    /// `false`: there is an image of that name.
    fn try_create(&self) -> Result<bool> {
        let creating = || format!("make volume {}", self.record.id);
        let name = image_of(&self.record.id);
        let (image_id, snapshot) = match self.parent() {
            Some(parent) => parent,
            None => {
                let zeroes = NewImage::Zeroes { size: self.record.capacity_bytes };
                return self.store.ask(creating, |io| created(io.create_image(&name, zeroes)));
            }
        };
        let parent = self.store.ensure_named(image_id)?;
        let copy = NewImage::CloneOf { image: &parent, snapshot };
        let outcome = self.store.ask(creating, |io| match io.create_image(&name, copy) {
            Err(error) if error.is_not_found() => Ok(None),
            outcome => created(outcome).map(Some),
        })?;
        outcome.ok_or_else(|| self.without_source())
    }

    fn parent(&self) -> Option<(&str, SnapshotRef<'_>)> {
        match &self.origin {
            Origin::Zeroes => None,
            Origin::Snapshot { place, .. } => Some((&place.image, place.at())),
            Origin::Cut(cut) => Some((cut.image_id(), SnapshotRef::Name(cut.snapshot()))),
            // Was cut before; without a snapshot there is nothing to clone.
            Origin::Volume { image_id } => Some((image_id, SnapshotRef::Name(""))),
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

    /// The source was deleted, or another process moved it just now.
    fn without_source(&self) -> Error {
        match &self.origin {
            Origin::Snapshot { id, .. } => Error::Busy(format!("snapshot {id}")),
            Origin::Zeroes | Origin::Volume { .. } | Origin::Cut(_) => self.overtaken(),
        }
    }

    /// Someone else is making the same volume, or has just made it.
    fn overtaken(&self) -> Error {
        Error::Busy(format!("volume {}", self.record.id))
    }

    fn finished_image(&self) -> Result<String> {
        let name = image_of(&self.record.id);
        let bytes = self.record.capacity_bytes;
        let finishing = || format!("make volume {}", self.record.id);
        let shape = self.store.ask(finishing, |io| {
            let open = |access| match io.open_image(&name, access) {
                Err(error) if error.is_not_found() => Ok(None),
                image => image.map(Some),
            };
            let Some(mut image) = open(Access::ReadOnly)? else { return Ok(None) };
            if image.size()? < bytes {
                // Whoever is killed meanwhile counts as its user for a while.
                let Some(writable) = open(Access::ReadWrite)? else { return Ok(None) };
                writable.ensure_size(bytes)?;
                image = writable;
            }
            Ok(Some((image.id()?, image.size()?, image.parent()?)))
        })?;
        let Some((image_id, size, parent)) = shape else { return Err(self.overtaken()) };
        if size != bytes || !self.is_of(parent.as_ref()) {
            return Err(self.overtaken());
        }
        // Whoever took this image for that of a dead maker may have taken the entry away.
        if !self.store.ask(finishing, |io| io.ensure_entered(&name, &image_id))? {
            return Err(self.overtaken());
        }
        self.store.forget_inherited(&self.record.id, &image_id)?;
        Ok(image_id)
    }
}

impl Store {
    /// librbd gives a clone all metadata of its parent. None of it counts here; it only would pile
    /// up from copy to copy.
    fn forget_inherited(&self, id: &VolumeId, image_id: &str) -> Result<()> {
        let header = header_of(image_id);
        let forgetting = || format!("make volume {id}");
        self.ask(forgetting, |io| {
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

fn created(outcome: orlop_sys::Result<()>) -> orlop_sys::Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.is_taken() => Ok(false),
        Err(error) => Err(error),
    }
}
