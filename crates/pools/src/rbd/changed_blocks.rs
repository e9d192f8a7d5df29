//! Which parts of a snapshot hold data, and which differ from an earlier one; in whole objects, as
//! the object maps of the image know them. No data is read.

use std::collections::VecDeque;
use std::sync::Arc;

use orlop_model::{
    ByteRange, ChangedBlocks, ContentSource, Footprint, Ranges, Result, SnapshotId, VolumeId,
};
use orlop_sys::ceph::{Access, Image, SnapshotRef, Written, can_compare_by_number};

use super::catalogue::{RbdCatalogue, SnapshotEntry, SnapshotLocation};
use super::images::Images;
use super::session::{Session, cannot};

/// How much of an image is asked for at a time: memory does not grow with the volume, and where the
/// object map cannot tell, each object is asked for, which cannot be called off.
const WINDOW: u64 = 8 << 30;

#[derive(Debug)]
pub(super) struct ObjectMaps {
    session: Arc<Session>,
    images: Arc<Images>,
    catalogue: Arc<RbdCatalogue>,
}

impl ChangedBlocks for ObjectMaps {
    fn allocated_ranges(&self, id: &SnapshotId, start: u64) -> Result<Ranges> {
        let entry = self.catalogue.snapshot_records().require(id)?;
        let image = self.open_snapshot(&entry)?;
        Ok(Box::new(Windows::new(id, image, None, start, entry.record.size_bytes)))
    }

    fn changed_ranges(&self, base: &SnapshotId, target: &SnapshotId, start: u64) -> Result<Ranges> {
        let comparing = || format!("compare snapshot {target} with {base}");
        let (base, entry) = (
            self.catalogue.snapshot_records().require(base)?,
            self.catalogue.snapshot_records().require(target)?,
        );
        let end = entry.record.size_bytes;
        let comparable = match base.location.reference() {
            SnapshotRef::Name(_) => true,
            SnapshotRef::Number(_) => can_compare_by_number().map_err(cannot(comparing))?,
        };
        if base.location.image != entry.location.image || !comparable {
            // The volume was deleted and made again in between, or librbd cannot tell: nothing is
            // known to be the same.
            let all = ByteRange { start, length: end.saturating_sub(start) };
            return Ok(Box::new((all.length > 0).then_some(Ok(Some(all))).into_iter()));
        }
        let image = self.open_snapshot(&entry)?;
        Ok(Box::new(Windows::new(target, image, Some(base.location), start, end)))
    }

    fn holds_data(&self, id: &VolumeId) -> Result<bool> {
        let image = self.images.open(id, Access::ReadOnly)?;
        let looking = || format!("inspect volume {id}");
        let mut found = false;
        let all = (0, image.size().map_err(cannot(looking))?);
        let look = |extent: orlop_sys::ceph::DiffExtent| {
            found |= extent.holds_data;
            !found
        };
        image.visit_written(Written::Ever, all, look).map_err(cannot(looking))?;
        Ok(found)
    }

    /// Only a comparison with the snapshots before and after would tell.
    fn footprint(&self, _: &ContentSource) -> Result<Option<Footprint>> {
        Ok(None)
    }
}

impl ObjectMaps {
    pub(super) fn new(
        session: &Arc<Session>,
        images: &Arc<Images>,
        catalogue: &Arc<RbdCatalogue>,
    ) -> Self {
        Self {
            session: Arc::clone(session),
            images: Arc::clone(images),
            catalogue: Arc::clone(catalogue),
        }
    }

    fn open_snapshot(&self, entry: &SnapshotEntry) -> Result<Image> {
        let opening = || format!("open snapshot {}", entry.record.id);
        let location = &entry.location;
        self.session.ask(opening, |io| {
            io.open_image_by_id(&location.image, Some(location.reference()), Access::ReadOnly)
        })
    }
}

struct Windows {
    id: SnapshotId,
    image: Image,
    since: Option<SnapshotLocation>,
    position: u64,
    end: u64,
    found: VecDeque<ByteRange>,
}

impl Windows {
    fn new(
        id: &SnapshotId,
        image: Image,
        since: Option<SnapshotLocation>,
        start: u64,
        end: u64,
    ) -> Self {
        Self { id: id.clone(), image, since, position: start, end, found: VecDeque::new() }
    }

    fn read_window(&mut self) -> Result<()> {
        let length = WINDOW.min(self.end - self.position);
        let written = match &self.since {
            None => Written::Ever,
            Some(location) => Written::Since(location.reference()),
        };
        let (found, end) = (&mut self.found, self.end);
        let note = |extent: orlop_sys::ceph::DiffExtent| {
            let length = extent.length.min(end.saturating_sub(extent.offset));
            match found.back_mut() {
                Some(last) if last.end() == extent.offset => last.length += length,
                Some(_) | None if length > 0 => {
                    found.push_back(ByteRange { start: extent.offset, length });
                }
                Some(_) | None => {}
            }
            true
        };
        self.image
            .visit_written(written, (self.position, length), note)
            .map_err(cannot(|| format!("read the changes of snapshot {}", self.id)))?;
        self.position += length;
        Ok(())
    }
}

impl Iterator for Windows {
    type Item = Result<Option<ByteRange>>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(range) = self.found.pop_front() {
            return Some(Ok(Some(range)));
        }
        if self.position >= self.end {
            return None;
        }
        let read = self.read_window();
        if read.is_err() {
            self.position = self.end;
        }
        Some(read.map(|()| self.found.pop_front()))
    }
}
