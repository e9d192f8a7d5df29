//! The images of volumes, and the records among their metadata.
//!
//! Several processes read and change them. A record is replaced only if it still is as it was read (`image_state.rs`), in
//! the header of the same image, so that a delayed process changes nothing.

mod length;

use std::sync::Arc;
use std::time::SystemTime;

use orlop_model::{Error, PoolInfo, Result, VolumeId, VolumeRecord};
use orlop_sys::ceph::{Access, Image, IoCtx, UpdateOutcome, header_of};

use super::catalogue::SnapshotLocation;
use super::image_state::CHANGED;
use super::image_state::{ImageState, NamedState, Step};
use super::layout::{MEMBER, RECORDS, SNAPSHOTS, image_of, record_key, volume_prefix};
use super::session::Session;
use super::side_by_side::side_by_side;
use crate::recorded::{parse_record, to_text};
pub(super) use length::shrunk;

/// How often a change is tried again because another process was faster.
const ATTEMPTS: usize = 20;

/// An image with the name of a volume.
#[derive(Debug)]
pub(super) struct NamedImage {
    pub(super) image_id: String,
    pub(super) state: NamedState,
}

/// A volume and its record, as it was read.
#[derive(Debug)]
pub(super) struct KnownImage {
    pub(super) image_id: String,
    pub(super) text: Vec<u8>,
    pub(super) record: VolumeRecord,
}

/// The image that has the name of a volume.
pub(super) fn named_image(io: &IoCtx, id: &VolumeId) -> orlop_sys::Result<Option<String>> {
    let name = image_of(id);
    or_directory_entry(io.image_id(&name)?, io, &name)
}

/// A process that was killed while it created an image, or cleaned up after a race, may leave a name that is in the
/// directory only.
fn or_directory_entry(
    by_name: Option<String>,
    io: &IoCtx,
    name: &str,
) -> orlop_sys::Result<Option<String>> {
    match by_name {
        None => io.directory_entry(name),
        known => Ok(known),
    }
}

pub(super) fn state_of(io: &IoCtx, image_id: &str) -> orlop_sys::Result<NamedState> {
    Ok(NamedState::of_record(io.image_metadata(image_id, &record_key(image_id))?))
}

pub(super) fn trashed_by_hand(image_id: &str) -> String {
    format!(
        "it was not deleted, but its image was moved to the trash of the Ceph pool by hand; put it back with \
         `rbd trash restore {image_id}`, or remove it and its data for good with `rbd trash rm {image_id}`"
    )
}

/// An empty directory is no error by itself: images in the trash are not in it, and an operator may have removed all
/// others. But an existing image that a record names must be in the directory or in the trash.
fn is_directory_lost(io: &Arc<IoCtx>) -> orlop_sys::Result<bool> {
    if io.has_images()? {
        return Ok(false);
    }
    for (key, _) in io.omap_list(RECORDS, "", MEMBER, 0)? {
        let volume = key.strip_prefix(MEMBER).unwrap_or_default();
        if io.image_id(volume)?.is_some() {
            return Ok(!io.has_images()?);
        }
    }
    for (_, text) in io.omap_list(RECORDS, "", SNAPSHOTS, 0)? {
        if let Ok(SnapshotLocation { image, .. }) = serde_json::from_slice(&text)
            && io.exists(&header_of(&image))?
            && !io.is_trashed(&image)?
        {
            // It may have been moved between the two reads.
            return Ok(!io.has_images()? && !io.is_trashed(&image)?);
        }
    }
    Ok(false)
}

#[derive(Debug)]
pub(super) struct Images {
    session: Arc<Session>,
    info: Arc<PoolInfo>,
}

impl Images {
    pub(super) fn new(session: &Arc<Session>, info: &Arc<PoolInfo>) -> Self {
        Self { session: Arc::clone(session), info: Arc::clone(info) }
    }

    pub(super) fn find(&self, id: &VolumeId) -> Result<Option<NamedImage>> {
        let reading = || format!("read volume {id}");
        let name = image_of(id);
        let found = self.session.ask(reading, |io| {
            let by_name = io.image_id(&name)?;
            let has_name = by_name.is_some();
            let Some(image_id) = or_directory_entry(by_name, io, &name)? else { return Ok(None) };
            let state = state_of(io, &image_id)?;
            if matches!(state, NamedState::Whole(_)) && !has_name {
                io.ensure_id_object(&name, &image_id)?;
            }
            Ok(Some(NamedImage { image_id, state }))
        })?;
        if found.is_none() {
            self.check_not_trashed(id)?;
        }
        Ok(found)
    }

    /// An image that Orlop moves to the trash is marked as deleted before; an operator moves any.
    fn check_not_trashed(&self, id: &VolumeId) -> Result<()> {
        let reading = || format!("read volume {id}");
        let name = image_of(id);
        let trashed = self.session.ask(reading, |io| {
            for one in io.trash()?.into_iter().filter(|one| one.name == name) {
                if matches!(state_of(io, &one.id)?, NamedState::Whole(_)) {
                    return Ok(Some(one.id));
                }
            }
            Ok(None)
        })?;
        trashed.map_or(Ok(()), |image_id| {
            Err(Error::damaged(format!("volume {id}"), trashed_by_hand(&image_id)))
        })
    }

    /// Volumes that were not deleted, whose images are in the trash.
    pub(super) fn trashed_volumes(&self) -> Result<Vec<(VolumeId, String)>> {
        let listing = || format!("list the trash of pool {}", self.info.name);
        let prefix = volume_prefix(&self.info.id);
        self.session.ask(listing, |io| {
            let mut found = Vec::new();
            for one in io.trash()? {
                if one.name.starts_with(&prefix)
                    && let Ok(id) = one.name.parse()
                    && io.image_id(&one.name)?.is_none()
                    && matches!(state_of(io, &one.id)?, NamedState::Whole(_))
                {
                    found.push((id, one.id));
                }
            }
            Ok(found)
        })
    }

    pub(super) fn known(&self, id: &VolumeId) -> Result<Option<KnownImage>> {
        match self.find(id)? {
            Some(NamedImage { image_id, state: NamedState::Whole(text) }) => {
                let record = parse(id, &text)?;
                Ok(Some(KnownImage { image_id, text, record }))
            }
            Some(NamedImage { state: NamedState::Draft | NamedState::Deleted, .. }) | None => {
                Ok(None)
            }
        }
    }

    pub(super) fn require(&self, id: &VolumeId) -> Result<KnownImage> {
        self.known(id)?.ok_or_else(|| Error::NoSuchVolume(id.to_string()))
    }

    pub(super) fn open(&self, id: &VolumeId, access: Access) -> Result<Image> {
        let known = self.require(id)?;
        let opening = || format!("open volume {id}");
        self.session.ask(opening, |io| io.open_image_by_id(&known.image_id, None, access))
    }

    /// Names and ids of the images that have the name of a volume, whatever their state.
    pub(super) fn all_named(
        &self,
        listing: impl Fn() -> String,
    ) -> Result<Vec<(VolumeId, String)>> {
        let prefix = volume_prefix(&self.info.id);
        let all = self.session.ask(listing, |io| io.image_names("", &prefix, 0))?;
        let named = |(name, image_id): (String, _)| Some((name.parse().ok()?, image_id));
        Ok(all.into_iter().filter_map(named).collect())
    }

    /// A list must not be empty because the directory is lost: orchestrators take missing volumes for deleted.
    pub(super) fn check_directory(&self) -> Result<()> {
        let reading = || format!("read the directory of pool {}", self.info.name);
        match self.session.ask(reading, is_directory_lost)? {
            true => Err(self.directory_lost()),
            false => Ok(()),
        }
    }

    /// For the probe: without the circuit breaker.
    pub(super) fn check_directory_unguarded(&self) -> Result<()> {
        let reading = || format!("read the directory of pool {}", self.info.name);
        match self.session.ask_unguarded(reading, is_directory_lost)? {
            true => Err(self.directory_lost()),
            false => Ok(()),
        }
    }

    fn directory_lost(&self) -> Error {
        Error::damaged(
            format!("pool {}", self.info.name),
            "its object rbd_directory, which lists the images, is lost or empty, and records name \
             images; restore it from a backup of the Ceph pool. The data of volumes and snapshots is \
             untouched",
        )
    }

    pub(super) fn page(
        &self,
        after: Option<&VolumeId>,
        limit: usize,
    ) -> Result<Vec<(VolumeId, Result<VolumeRecord>)>> {
        let prefix = volume_prefix(&self.info.id);
        let wanted = if limit == 0 { usize::MAX } else { limit };
        let mut last = after.map(VolumeId::to_string).unwrap_or_default();
        let mut found = Vec::new();
        while found.len() < wanted {
            let listing = || format!("list the volumes of pool {}", self.info.name);
            let page = self.session.ask(listing, |io| io.image_names(&last, &prefix, limit))?;
            let Some((name, _)) = page.last() else { break };
            name.clone_into(&mut last);
            let named: Vec<(VolumeId, String)> = page
                .into_iter()
                .filter_map(|(name, image_id)| Some((name.parse().ok()?, image_id)))
                .collect();
            let states = side_by_side(&named, |(id, image_id)| {
                let reading = || format!("read volume {id}");
                self.session.ask(reading, |io| state_of(io, image_id))
            });
            for ((id, _), state) in named.into_iter().zip(states) {
                if let NamedState::Whole(text) = state?
                    && found.len() < wanted
                {
                    let record = parse(&id, &text);
                    found.push((id, record));
                }
            }
            if limit == 0 {
                break;
            }
        }
        if found.is_empty() && after.is_none() {
            self.check_directory()?;
        }
        Ok(found)
    }

    /// `Differs`: the image is not in the state `from`, and nothing was changed.
    pub(super) fn take_step(
        &self,
        doing: impl Fn() -> String,
        image_id: &str,
        from: ImageState,
        step: &Step<'_>,
    ) -> Result<UpdateOutcome> {
        self.session.ask(doing, |io| step.take(io, image_id, from))
    }

    pub(super) fn update(
        &self,
        id: &VolumeId,
        change: &mut dyn FnMut(&mut VolumeRecord) -> Result<()>,
    ) -> Result<VolumeRecord> {
        for _ in 0..ATTEMPTS {
            let KnownImage { image_id, text, mut record } = self.require(id)?;
            let before = record.clone();
            change(&mut record)?;
            if record == before {
                return Ok(record);
            }
            let now = to_text(&record)?;
            let writing = || format!("write the record of volume {id}");
            let replace = Step::Replace { was: &text, record: &now };
            match self.take_step(writing, &image_id, ImageState::Whole, &replace)? {
                UpdateOutcome::Done => return Ok(record),
                UpdateOutcome::Differs => {}
            }
        }
        Err(Error::busy(format!("volume {id}"), CHANGED))
    }

    /// `None`: the image does not exist, though names of it may.
    pub(super) fn created(&self, image_id: &str) -> Result<Option<SystemTime>> {
        let reading = || format!("inspect image {image_id}");
        self.session.ask(reading, |io| {
            match io.open_image_by_id(image_id, None, Access::ReadOnly) {
                Err(error) if error.is_not_found() => Ok(None),
                image => image?.created().map(Some),
            }
        })
    }
}

fn parse(id: &VolumeId, text: &[u8]) -> Result<VolumeRecord> {
    parse_record(id, &"record", text)
        .map_err(|reason| Error::damaged(format!("volume {id}"), reason))
}
