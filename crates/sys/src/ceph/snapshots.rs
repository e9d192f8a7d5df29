//! Snapshots of an image.

use std::ffi::c_char;
use std::ptr;

use rustix::io::Errno;

use super::directory::header_of;
use super::handle::{call, owned, terminated};
use super::image::Image;
use super::library::{RawGroupSnapshot, RawSnapshotInfo};
use super::objects::IoCtx;
use crate::error::Result;

const USER_SPACE: i32 = 0;
const GROUP_SPACE: i32 = 1;
const TRASH_SPACE: i32 = 2;
/// More than librbd lets a name have.
const NAME_BUFFER: usize = 4 << 10;

/// Which snapshot of an image is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotRef<'a> {
    Name(&'a str),
    /// One of a group has a name too, but librbd looks for names only among those made alone.
    Number(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSnapshot {
    pub number: u64,
    pub name: String,
    /// The size of the image when the snapshot was taken.
    pub size: u64,
    pub space: SnapshotSpace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotSpace {
    User,
    /// Removed, but clones still need it.
    Trash,
    /// Taken together with those of other images; removed with its group.
    Group,
    /// Made by mirroring.
    Other,
}

impl IoCtx {
    /// Are there clones of this snapshot? They are among the keys of the image's header.
    pub fn has_clones(&self, image_id: &str, number: u64) -> Result<bool> {
        let key = format!("snap_children_{number:016x}");
        Ok(self.omap_get(&header_of(image_id), &key)?.is_some())
    }

    /// Without opening the image.
    pub fn has_snapshots(&self, image_id: &str) -> Result<bool> {
        Ok(!self.omap_list(&header_of(image_id), "", "snapshot_", 1)?.is_empty())
    }
}

impl Image {
    /// One instant of the image, whichever clients write to it. `EEXIST` if the name is taken.
    pub fn create_snapshot(&self, name: &str) -> Result<()> {
        let creating = self.call("snapshot");
        let name = creating.text(name)?;
        creating.check(call!(rbd.rbd_snap_create(self.handle(), name.as_ptr())))?;
        Ok(())
    }

    /// `false` also if there is none.
    pub fn is_protected(&self, name: &str) -> Result<bool> {
        let looking = self.call("look at a snapshot of");
        let text = looking.text(name)?;
        let mut protected = 0;
        let code =
            call!(rbd.rbd_snap_is_protected(self.handle(), text.as_ptr(), &raw mut protected));
        match looking.check(code) {
            Err(error) if error.is_not_found() => Ok(false),
            answer => answer.map(|_| protected != 0),
        }
    }

    /// librbd removes a snapshot in two steps: it loses its name to the trash namespace, then it
    /// goes. One that is found between them is removed as well. `false`: there was none.
    pub fn ensure_no_snapshot(&self, name: &str) -> Result<bool> {
        let removing = self.call("remove a snapshot of");
        let text = removing.text(name)?;
        let code = call!(rbd.rbd_snap_remove(self.handle(), text.as_ptr()));
        match removing.check(code) {
            Err(error) if error.is_not_found() => self.ensure_no_trashed_snapshots(name),
            done => done.map(|_| true),
        }
    }

    /// Removes snapshots in the trash that had this name.
    fn ensure_no_trashed_snapshots(&self, name: &str) -> Result<bool> {
        let mut found = false;
        for snapshot in self.snapshots()? {
            if snapshot.space == SnapshotSpace::Trash
                && self.former_name(snapshot.number)?.as_deref() == Some(name)
            {
                self.try_remove_trashed_snapshot(snapshot.number)?;
                found = true;
            }
        }
        Ok(found)
    }

    /// The name that a snapshot in the trash had. `None`: it is not in the trash, or gone.
    pub fn former_name(&self, number: u64) -> Result<Option<String>> {
        let mut buffer = [0_u8; NAME_BUFFER];
        let start = buffer.as_mut_ptr().cast::<c_char>();
        let code =
            call!(rbd.rbd_snap_get_trash_namespace(self.handle(), number, start, buffer.len()));
        match self.call("read a snapshot of").check(code) {
            Err(error) if matches!(error.errno(), Some(Errno::NOENT | Errno::INVAL)) => Ok(None),
            // Longer than any name that is asked for.
            Err(error) if error.errno() == Some(Errno::RANGE) => Ok(Some(String::new())),
            answer => answer.map(|_| Some(terminated(&buffer))),
        }
    }

    /// `false`: clones need it.
    pub fn try_remove_trashed_snapshot(&self, number: u64) -> Result<bool> {
        let code = call!(rbd.rbd_snap_remove_by_id(self.handle(), number));
        match self.call("remove a snapshot of").check(code) {
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) if error.errno() == Some(Errno::BUSY) => Ok(false),
            done => done.map(|_| true),
        }
    }

    /// From here on it shows what it was when this snapshot was made.
    pub(super) fn look_at(&self, number: u64) -> Result<()> {
        let looking = self.call("open a snapshot of");
        looking.check(call!(rbd.rbd_snap_set_by_id(self.handle(), number)))?;
        Ok(())
    }

    pub fn snapshots(&self) -> Result<Vec<ImageSnapshot>> {
        let listing = self.call("list the snapshots of");
        let blank = RawSnapshotInfo { id: 0, size: 0, name: ptr::null() };
        let mut raw = vec![blank; 64];
        let count = loop {
            let mut room = i32::try_from(raw.len()).unwrap_or(i32::MAX);
            let code = call!(rbd.rbd_snap_list(self.handle(), raw.as_mut_ptr(), &raw mut room));
            match listing.check(code) {
                Ok(count) => break count,
                // It says how many there are; one more may come before the next call.
                Err(error) if error.errno() == Some(Errno::RANGE) => {
                    raw.resize(usize::try_from(room).unwrap_or(0).max(2 * raw.len()), blank);
                }
                Err(error) => return Err(error),
            }
        };
        let named: Vec<_> =
            raw.iter().take(count).map(|one| (one.id, one.size, owned(one.name))).collect();
        call!(rbd.rbd_snap_list_end(raw.as_mut_ptr()));
        let mut found = Vec::with_capacity(named.len());
        for (number, size, name) in named {
            if let Some(space) = self.space_of(number)? {
                found.push(ImageSnapshot { number, name, size, space });
            }
        }
        Ok(found)
    }

    /// `None`: it is gone.
    fn space_of(&self, number: u64) -> Result<Option<SnapshotSpace>> {
        let mut space = 0;
        let code = call!(rbd.rbd_snap_get_namespace_type(self.handle(), number, &raw mut space));
        match self.call("read a snapshot of").check(code) {
            Err(error) if error.is_not_found() => return Ok(None),
            answer => answer?,
        };
        Ok(Some(match space {
            USER_SPACE => SnapshotSpace::User,
            GROUP_SPACE => SnapshotSpace::Group,
            TRASH_SPACE => SnapshotSpace::Trash,
            _ => SnapshotSpace::Other,
        }))
    }

    /// The one that was made of all images in this group.
    pub fn snapshot_in_group(&self, group: &str) -> Result<Option<ImageSnapshot>> {
        for snapshot in self.snapshots()?.into_iter().rev() {
            if snapshot.space == SnapshotSpace::Group
                && self.group_of(snapshot.number)?.as_deref() == Some(group)
            {
                return Ok(Some(snapshot));
            }
        }
        Ok(None)
    }

    /// Of a snapshot that was made of all images in a group. `None`: the snapshot or its group is gone.
    pub fn group_of(&self, number: u64) -> Result<Option<String>> {
        let mut raw = RawGroupSnapshot {
            group_pool: 0,
            group_name: ptr::null_mut(),
            group_snap_name: ptr::null_mut(),
        };
        let size = size_of::<RawGroupSnapshot>();
        let code =
            call!(rbd.rbd_snap_get_group_namespace(self.handle(), number, &raw mut raw, size));
        match self.call("read a snapshot of").check(code) {
            Err(error) if error.is_not_found() => return Ok(None),
            answer => answer?,
        };
        let group = owned(raw.group_name);
        call!(rbd.rbd_snap_group_namespace_cleanup(&raw mut raw, size));
        Ok(Some(group))
    }
}
