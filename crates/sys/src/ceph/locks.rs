//! Locks on objects. A lock stays until it is released or broken; a lease expires.

use std::ffi::c_char;
use std::ptr;
use std::time::Duration;

use rustix::io::Errno;

use super::directory::header_of;
use super::handle::{CephCall, call, terminated};
use super::image::Image;
use super::objects::IoCtx;
use super::watchers::Watcher;
use crate::error::{Error, Result};

/// The lock of librbd itself, on the header of an image.
pub const IMAGE_LOCK: &str = "rbd_lock";
/// With which librbd, and the kernel's client, take that lock by themselves; `rbd lock add` gives another.
const LIBRBD_COOKIE: &str = "auto ";
/// For each text that is reported of a holder.
const BUFFER: usize = 512;
const MAY_RENEW: u8 = 1;

/// Who has a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    /// As a blocklist takes it.
    pub address: String,
    client: String,
    pub cookie: String,
}

impl LockHolder {
    pub fn is(&self, watcher: &Watcher) -> bool {
        self.client == format!("client.{}", watcher.client)
    }
}

impl IoCtx {
    /// `false`: another holds it.
    pub fn try_lock(&self, object: &str, lock: &str, cookie: &str) -> Result<bool> {
        self.lock_exclusively(object, lock, cookie, None)
    }

    /// A lock that ends by itself when this time is over, by the clock of the object store; its
    /// holder prolongs it by the same call. `false`: another holds it. Makes the object if there
    /// is none.
    pub fn try_lease(
        &self,
        object: &str,
        lock: &str,
        cookie: &str,
        duration: Duration,
    ) -> Result<bool> {
        self.lock_exclusively(object, lock, cookie, Some(duration))
    }

    fn lock_exclusively(
        &self,
        object: &str,
        lock: &str,
        cookie: &str,
        lease: Option<Duration>,
    ) -> Result<bool> {
        let subject = self.subject(object);
        let locking = CephCall { operation: "lock", subject: &subject };
        let (name, lock) = (locking.text(object)?, locking.text(lock)?);
        let (cookie, description) = (locking.text(cookie)?, locking.text("")?);
        let mut lease = lease.map(|lease| libc::timeval {
            tv_sec: libc::time_t::try_from(lease.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_usec: libc::suseconds_t::from(lease.subsec_micros()),
        });
        let flags = if lease.is_some() { MAY_RENEW } else { 0 };
        let code = call!(rados.rados_lock_exclusive(
            self.handle(),
            name.as_ptr(),
            lock.as_ptr(),
            cookie.as_ptr(),
            description.as_ptr(),
            lease.as_mut().map_or(ptr::null_mut(), ptr::from_mut),
            flags,
        ));
        match locking.check(code) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.errno(), Some(Errno::BUSY | Errno::EXIST)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub fn unlock(&self, object: &str, lock: &str, cookie: &str) -> Result<()> {
        let subject = self.subject(object);
        let unlocking = CephCall { operation: "unlock", subject: &subject };
        let (name, lock) = (unlocking.text(object)?, unlocking.text(lock)?);
        let cookie = unlocking.text(cookie)?;
        let code =
            call!(rados.rados_unlock(self.handle(), name.as_ptr(), lock.as_ptr(), cookie.as_ptr()));
        unlocking.check(code)?;
        Ok(())
    }

    pub fn lock_holder(&self, object: &str, lock: &str) -> Result<Option<LockHolder>> {
        let subject = self.subject(object);
        let asking = CephCall { operation: "read the lock holder of", subject: &subject };
        let (name, lock) = (asking.text(object)?, asking.text(lock)?);
        let mut exclusive = 0;
        let mut texts = [[0_u8; BUFFER]; 4];
        let mut lengths = [BUFFER; 4];
        let [tag, client, cookie, address] = &mut texts;
        let [tag_room, client_room, cookie_room, address_room] = &mut lengths;
        let code = call!(rados.rados_list_lockers(
            self.handle(),
            name.as_ptr(),
            lock.as_ptr(),
            &raw mut exclusive,
            start_of(tag),
            tag_room,
            start_of(client),
            client_room,
            start_of(cookie),
            cookie_room,
            start_of(address),
            address_room,
        ));
        let count = match asking.check_long(code) {
            Err(error) if error.is_not_found() => 0,
            count => count?,
        };
        // An exclusive lock has one holder, whose texts are the first.
        Ok((count > 0).then(|| LockHolder {
            address: without_protocol(&terminated(address)).to_owned(),
            client: terminated(client),
            cookie: terminated(cookie),
        }))
    }

    /// The client that has locked the header of this image and does not watch the image, although all clients that
    /// have it open for writing do.
    pub fn silent_holder(
        &self,
        image: &Image,
        (header, lock): (&str, &str),
        is_held_for: impl Fn(&LockHolder, &Watcher) -> bool,
    ) -> Result<Option<LockHolder>> {
        let Some(holder) = self.lock_holder(header, lock)? else { return Ok(None) };
        if image.watchers()?.iter().any(|watcher| is_held_for(&holder, watcher)) {
            return Ok(None);
        }
        // It may just have released the lock and stopped watching between the two checks.
        Ok(self.lock_holder(header, lock)?.filter(|same| *same == holder))
    }

    /// The client that has locked an image with `rbd lock add`. librbd would wait for that lock without limit, and
    /// mostly the client has ended without removing it.
    pub fn hand_lock(&self, image_id: &str) -> Result<Option<LockHolder>> {
        let holder = self.lock_holder(&header_of(image_id), IMAGE_LOCK)?;
        Ok(holder.filter(|holder| !holder.cookie.starts_with(LIBRBD_COOKIE)))
    }

    pub fn check_no_hand_lock(&self, image_id: &str) -> Result<()> {
        match self.hand_lock(image_id)? {
            None => Ok(()),
            Some(holder) => Err(Error::HeldByOperator {
                operation: "lock",
                path: self.subject(image_id).into(),
                reason: self.about_hand_lock(image_id, &holder)?,
            }),
        }
    }

    /// With the command that removes it; that of librbd needs a name, which a deleted image has not.
    pub fn about_hand_lock(&self, image_id: &str, holder: &LockHolder) -> Result<String> {
        let LockHolder { address, client, cookie } = holder;
        let command = match self.image_name(image_id)? {
            Some(name) => format!("rbd lock rm {name} {cookie} {client}"),
            None => {
                let header = header_of(image_id);
                format!("rados lock break {header} {IMAGE_LOCK} {client} --lock-cookie {cookie}")
            }
        };
        Ok(format!(
            "the Ceph client {address} has locked the image by hand, as {cookie}; remove the lock in \
             {} with `{command}`",
            self.subject("").trim_end_matches('/')
        ))
    }

    /// Only from this holder. The caller has stopped it before.
    pub fn ensure_lock_broken(&self, object: &str, lock: &str, holder: &LockHolder) -> Result<()> {
        let subject = self.subject(object);
        let breaking = CephCall { operation: "break the lock of", subject: &subject };
        let (name, lock) = (breaking.text(object)?, breaking.text(lock)?);
        let (client, cookie) = (breaking.text(&holder.client)?, breaking.text(&holder.cookie)?);
        let code = call!(rados.rados_break_lock(
            self.handle(),
            name.as_ptr(),
            lock.as_ptr(),
            client.as_ptr(),
            cookie.as_ptr()
        ));
        match breaking.check(code) {
            Err(error) if error.is_not_found() => Ok(()),
            done => done.map(drop),
        }
    }
}

/// `v1:10.0.0.1:0/123`: of a client, everyone else tells the address alone.
pub(super) fn without_protocol(address: &str) -> &str {
    ["v1:", "v2:", "any:"].iter().find_map(|it| address.strip_prefix(it)).unwrap_or(address)
}

fn start_of(text: &mut [u8; BUFFER]) -> *mut c_char {
    text.as_mut_ptr().cast()
}
