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

const USER_NAMESPACE: i32 = 0;
const GROUP_NAMESPACE: i32 = 1;
const TRASH_NAMESPACE: i32 = 2;
/// Longer than any name that librbd allows.
const NAME_BUFFER: usize = 4 << 10;

/// Names a snapshot of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotRef<'a> {
    Name(&'a str),
    /// Required for a member of a group snapshot: librbd finds by name only snapshots that were taken alone.
    Number(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSnapshot {
    pub number: u64,
    pub name: String,
    /// The size of the image when the snapshot was taken.
    pub size: u64,
    pub namespace: SnapshotNamespace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotNamespace {
    User,
    /// Removed, but clones still need it.
    Trash,
    /// Taken together with those of other images; removed with its group.
    Group,
    /// Such as those that mirroring makes.
    Other,
}

impl IoCtx {
    /// Does this snapshot have clones? The keys of the image's header list them.
    pub fn has_clones(&self, image_id: &str, number: u64) -> Result<bool> {
        let key = format!("snap_children_{number:016x}");
        Ok(self.omap_get(&header_of(image_id), &key)?.is_some())
    }

    /// Reads the image's header, without opening the image.
    pub fn has_snapshots(&self, image_id: &str) -> Result<bool> {
        Ok(!self.omap_list(&header_of(image_id), "", "snapshot_", 1)?.is_empty())
    }
}

impl Image {
    /// Takes a snapshot of one instant, also while other clients write. `EEXIST` if the name is taken.
    pub fn create_snapshot(&self, name: &str) -> Result<()> {
        let creating = self.call("snapshot");
        let name = creating.text(name)?;
        creating.check(call!(rbd.rbd_snap_create(self.handle(), name.as_ptr())))?;
        Ok(())
    }

    /// `false` also if there is no such snapshot.
    pub fn is_protected(&self, name: &str) -> Result<bool> {
        let inspecting = self.call("inspect a snapshot of");
        let text = inspecting.text(name)?;
        let mut protected = 0;
        let code =
            call!(rbd.rbd_snap_is_protected(self.handle(), text.as_ptr(), &raw mut protected));
        match inspecting.check(code) {
            Err(error) if error.is_not_found() => Ok(false),
            answer => answer.map(|_| protected != 0),
        }
    }

    /// librbd removes a snapshot in two steps: it moves it to the trash namespace, without its name, and then deletes it.
    /// A snapshot that is found between the two is removed as well. `false`: there was none.
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
            if snapshot.namespace == SnapshotNamespace::Trash
                && self.former_name(snapshot.number)?.as_deref() == Some(name)
            {
                self.try_remove_trashed_snapshot(snapshot.number)?;
                found = true;
            }
        }
        Ok(found)
    }

    /// The name that a snapshot in the trash had. `None`: it is not in the trash, or does not exist.
    pub fn former_name(&self, number: u64) -> Result<Option<String>> {
        let mut buffer = [0_u8; NAME_BUFFER];
        let start = buffer.as_mut_ptr().cast::<c_char>();
        let code =
            call!(rbd.rbd_snap_get_trash_namespace(self.handle(), number, start, buffer.len()));
        match self.call("read a snapshot of").check(code) {
            Err(error) if matches!(error.errno(), Some(Errno::NOENT | Errno::INVAL)) => Ok(None),
            // Longer than any name that a caller compares it with.
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

    /// After this, reads of the image return the data of the snapshot.
    pub(super) fn set_snapshot(&self, number: u64) -> Result<()> {
        let inspecting = self.call("open a snapshot of");
        inspecting.check(call!(rbd.rbd_snap_set_by_id(self.handle(), number)))?;
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
                // `room` is the number of snapshots now; more may be added before the next call.
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
            if let Some(namespace) = self.namespace_of(number)? {
                found.push(ImageSnapshot { number, name, size, namespace });
            }
        }
        Ok(found)
    }

    /// `None`: the snapshot does not exist any more.
    fn namespace_of(&self, number: u64) -> Result<Option<SnapshotNamespace>> {
        let mut namespace = 0;
        let code =
            call!(rbd.rbd_snap_get_namespace_type(self.handle(), number, &raw mut namespace));
        match self.call("read a snapshot of").check(code) {
            Err(error) if error.is_not_found() => return Ok(None),
            answer => answer?,
        };
        Ok(Some(match namespace {
            USER_NAMESPACE => SnapshotNamespace::User,
            GROUP_NAMESPACE => SnapshotNamespace::Group,
            TRASH_NAMESPACE => SnapshotNamespace::Trash,
            _ => SnapshotNamespace::Other,
        }))
    }

    /// The image's snapshot that was taken with all images of this group.
    pub fn snapshot_in_group(&self, group: &str) -> Result<Option<ImageSnapshot>> {
        for snapshot in self.snapshots()?.into_iter().rev() {
            if snapshot.namespace == SnapshotNamespace::Group
                && self.group_of(snapshot.number)?.as_deref() == Some(group)
            {
                return Ok(Some(snapshot));
            }
        }
        Ok(None)
    }

    /// The group of a snapshot that was taken with all images of a group. `None`: the snapshot or its group does not exist
    /// any more.
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
