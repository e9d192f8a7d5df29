//! Has an interrupted creation left this image?
//!
//! An image with the name of a volume and without a record is taken for a draft, and drafts are
//! destroyed. An image that an operator has restored from a backup, migrated or cloned under the name
//! of a volume has no record either, as that is kept under the id of the image; and it may be the only
//! copy of its data. So it is a draft only if it has nothing that a creation does not make.

use std::sync::Arc;

use orlop_model::{Error, Result, VolumeId};
use orlop_sys::ceph::{Access, Image, IoCtx, Parent, Written, header_of, metadata_key};
use serde::Deserialize;

use super::catalogue::RbdCatalogue;
use super::layout::{copy_purpose, image_of, record_key, record_prefix};
use super::session::Session;

#[derive(Debug)]
pub(super) struct DraftCheck {
    session: Arc<Session>,
    catalogue: Arc<RbdCatalogue>,
}

/// What an image has that can be known without its parent.
struct InspectedImage {
    /// The ids of images whose records are among its metadata, and whether one is of this volume.
    records: Vec<(String, bool)>,
    is_migrating: bool,
    is_header_lost: bool,
    /// `None`: it cannot be opened; there is no image yet, or it is a clone whose parent is gone.
    opened: Option<Opened>,
}

struct Opened {
    holds_data: bool,
    has_snapshots: bool,
    parent: Option<ParentSnapshot>,
    /// The address of a client, other than this one, that has it open to write.
    client: Option<String>,
}

struct ParentSnapshot {
    parent: Parent,
    /// The name of the snapshot before it was removed, if it was.
    former_name: Option<String>,
}

/// All that is certain about the record of a volume of any version.
#[derive(Deserialize)]
struct Named {
    id: String,
}

impl DraftCheck {
    pub(super) fn new(session: &Arc<Session>, catalogue: &Arc<RbdCatalogue>) -> Self {
        Self { session: Arc::clone(session), catalogue: Arc::clone(catalogue) }
    }

    /// For an image that has the name of a volume and no record. `Damaged`: it is no draft, and
    /// nothing but an operator may touch it. `Busy`: a client has it open.
    pub(super) fn check(&self, id: &VolumeId, image_id: &str) -> Result<()> {
        let looking = || format!("inspect image {}", image_of(id));
        let contents = self.session.ask(looking, |io| contents(io, id, image_id))?;
        if let Some(reason) = self.reason_to_keep(id, image_id, &contents)? {
            return Err(Error::damaged(format!("volume {id}"), reason));
        }
        match contents.opened.and_then(|opened| opened.client) {
            None => Ok(()),
            Some(address) => Err(Error::busy(
                format!("image {}", image_of(id)),
                format!(
                    "it has no record of a volume yet, and the Ceph client {address} has it open"
                ),
            )),
        }
    }

    fn reason_to_keep(
        &self,
        id: &VolumeId,
        image_id: &str,
        contents: &InspectedImage,
    ) -> Result<Option<String>> {
        let name = image_of(id);
        if contents.is_migrating {
            return Ok(Some(format!(
                "image {name} is being migrated and has no record of a volume; undo this with \
                 `rbd migration abort`, or finish it with `rbd migration execute` and `commit` and \
                 write the record then (docs/ceph.md)"
            )));
        }
        if contents.is_header_lost {
            return Ok(Some(format!(
                "the object {} of image {name} is lost, and other objects of the image are there; \
                 restore it from a backup of the Ceph pool, or remove what is left of the image with \
                 `rbd rm` if its data is not needed",
                header_of(image_id)
            )));
        }
        let parent = contents.opened.as_ref().and_then(|opened| opened.parent.as_ref());
        let inherited_from = parent.map(|of| of.parent.image_id.as_str());
        let foreign = |(of, is_of_volume): &&(String, bool)| {
            *is_of_volume || Some(of.as_str()) != inherited_from
        };
        if let Some((of, _)) = contents.records.iter().find(foreign) {
            let (old, own) = (record_key(of), record_key(image_id));
            return Ok(Some(format!(
                "image {name} was restored or migrated: it has the record {old} of another image, and \
                 no {own}; to make it the volume, copy the value of the one metadata key to the \
                 other with `rbd image-meta`, or rename it with `rbd mv` to keep its data"
            )));
        }
        let Some(opened) = &contents.opened else { return Ok(None) };
        let what = match parent {
            _ if opened.holds_data => "it holds data".to_owned(),
            _ if opened.has_snapshots => "it has snapshots".to_owned(),
            Some(parent) if !self.is_source(id, parent)? => format!(
                "its parent is snapshot {} of image {}, which is no copy source of this volume",
                parent.parent.snapshot, parent.parent.image_id
            ),
            Some(_) | None => return Ok(None),
        };
        Ok(Some(format!(
            "image {name} was not left by an interrupted creation: {what} and has no record of a \
             volume; rename it with `rbd mv` to keep its data, or remove it"
        )))
    }

    /// A volume is made from the snapshot of a record, or from one that was taken for it alone.
    fn is_source(&self, id: &VolumeId, of: &ParentSnapshot) -> Result<bool> {
        let ParentSnapshot { parent, former_name } = of;
        let name = former_name.as_ref().unwrap_or(&parent.snapshot);
        if name.starts_with(&format!("{}.", copy_purpose(id))) {
            return Ok(true);
        }
        self.catalogue.snapshot_records().is_any_at(&parent.image_id, |location| {
            location.number.map_or(location.snapshot == *name, |number| number == parent.number)
        })
    }
}

fn contents(io: &Arc<IoCtx>, id: &VolumeId, image_id: &str) -> orlop_sys::Result<InspectedImage> {
    let header = header_of(image_id);
    let prefix = metadata_key(&record_prefix());
    let mut records = Vec::new();
    for (key, text) in io.omap_list(&header, "", &prefix, 0)? {
        let of = key.strip_prefix(&prefix).unwrap_or_default();
        if of != image_id {
            records.push((of.to_owned(), names(&text, id)));
        }
    }
    let is_migrating = io.is_migrating(image_id)?;
    let opened = if is_migrating { None } else { opened(io, image_id)? };
    let is_header_lost = opened.is_none() && io.is_header_lost(image_id)?;
    Ok(InspectedImage { records, is_migrating, is_header_lost, opened })
}

/// Does the text of a record name this volume? One that cannot be read may be of any.
fn names(text: &[u8], id: &VolumeId) -> bool {
    match serde_json::from_slice::<Named>(text) {
        Ok(named) => named.id == id.to_string(),
        Err(_) => String::from_utf8_lossy(text).contains(&id.to_string()),
    }
}

fn opened(io: &Arc<IoCtx>, image_id: &str) -> orlop_sys::Result<Option<Opened>> {
    let image = match io.open_image_by_id(image_id, None, Access::ReadOnly) {
        Err(error) if error.is_not_found() => return Ok(None),
        image => image?,
    };
    let own = io.cluster().own_address()?;
    let clients = image.watchers()?.into_iter().map(|watcher| watcher.address);
    let parent = match image.parent()? {
        None => None,
        Some(parent) => Some(ParentSnapshot { former_name: former_name(io, &parent)?, parent }),
    };
    Ok(Some(Opened {
        holds_data: holds_data(&image)?,
        has_snapshots: !image.snapshots()?.is_empty(),
        parent,
        client: clients.into_iter().find(|address| *address != own),
    }))
}

/// Not by its parent: a draft is empty or a clone.
fn holds_data(image: &Image) -> orlop_sys::Result<bool> {
    let mut found = false;
    image.visit_written(Written::Here, (0, image.size()?), |extent| {
        found |= extent.holds_data;
        !found
    })?;
    Ok(found)
}

fn former_name(io: &Arc<IoCtx>, parent: &Parent) -> orlop_sys::Result<Option<String>> {
    match io.open_image_by_id(&parent.image_id, None, Access::ReadOnly) {
        Err(error) if error.is_not_found() => Ok(None),
        image => image?.former_name(parent.number),
    }
}
