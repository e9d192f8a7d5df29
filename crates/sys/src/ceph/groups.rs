//! Groups of images, which can be snapshotted at one instant. An image is in one group at most; what
//! was made of a group stays with it, also when the image is in it no more.

use std::ptr;

use rustix::io::Errno;

use super::handle::{CephCall, call, owned};
use super::image::Image;
use super::library::RawGroup;
use super::objects::IoCtx;
use crate::error::Result;

impl IoCtx {
    /// `EEXIST` if the name is taken.
    pub fn create_group(&self, group: &str) -> Result<()> {
        let subject = self.subject(group);
        let creating = CephCall { operation: "create the group", subject: &subject };
        let group = creating.text(group)?;
        creating.check(call!(rbd.rbd_group_create(self.handle(), group.as_ptr())))?;
        Ok(())
    }

    /// Its snapshots go with it. A snapshot that clones need stays out of sight, as any other.
    /// `false`: there was no such group.
    pub fn ensure_no_group(&self, group: &str) -> Result<bool> {
        let subject = self.subject(group);
        let removing = CephCall { operation: "remove the group", subject: &subject };
        let group = removing.text(group)?;
        match removing.check(call!(rbd.rbd_group_remove(self.handle(), group.as_ptr()))) {
            Err(error) if error.is_not_found() => Ok(false),
            done => done.map(|_| true),
        }
    }

    /// `false`: the image is in another group. librbd goes by the image's name.
    pub fn try_add_to_group(&self, group: &str, image: &str) -> Result<bool> {
        let subject = self.subject(group);
        let adding = CephCall { operation: "add an image to the group", subject: &subject };
        let (group, image) = (adding.text(group)?, adding.text(image)?);
        let io = self.handle();
        let code = call!(rbd.rbd_group_image_add(io, group.as_ptr(), io, image.as_ptr()));
        match adding.check(code) {
            Err(error) if error.errno() == Some(Errno::EXIST) => Ok(false),
            done => done.map(|_| true),
        }
    }

    pub fn remove_from_group(&self, group: &str, image_id: &str) -> Result<()> {
        let subject = self.subject(group);
        let removing = CephCall { operation: "remove an image from the group", subject: &subject };
        let (group, id) = (removing.text(group)?, removing.text(image_id)?);
        let io = self.handle();
        let code = call!(rbd.rbd_group_image_remove_by_id(io, group.as_ptr(), io, id.as_ptr()));
        removing.check(code)?;
        Ok(())
    }

    /// One instant of all images in the group, whichever clients write to them: librbd takes the locks of
    /// all of them for that time, and writers wait. All are made, or none is left.
    pub fn snapshot_group(&self, group: &str, name: &str) -> Result<()> {
        let subject = self.subject(group);
        let making = CephCall { operation: "snapshot the group", subject: &subject };
        let (group, name) = (making.text(group)?, making.text(name)?);
        let code = call!(rbd.rbd_group_snap_create(self.handle(), group.as_ptr(), name.as_ptr()));
        making.check(code)?;
        Ok(())
    }
}

impl Image {
    /// The group that it is in.
    pub fn group(&self) -> Result<Option<String>> {
        let mut raw = RawGroup { name: ptr::null_mut(), pool: 0 };
        let size = size_of::<RawGroup>();
        let code = call!(rbd.rbd_get_group(self.handle(), &raw mut raw, size));
        match self.call("read the group of").check(code) {
            // It was removed just now.
            Err(error) if error.is_not_found() => return Ok(None),
            answer => answer?,
        };
        let name = owned(raw.name);
        call!(rbd.rbd_group_info_cleanup(&raw mut raw, size));
        Ok((!name.is_empty()).then_some(name))
    }
}
