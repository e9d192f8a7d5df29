//! The keys and values of an object.

use std::ffi::{CString, c_char};
use std::ptr;

use rustix::io::Errno;

use super::handle::{CephCall, call, close, copied};
use super::library::Handle;
use super::objects::{CREATE_EXCLUSIVE, IoCtx, WriteOp};
use crate::error::Result;

const EQUAL: u8 = 1;

/// Changes to the keys of one object, all or none, and only if what is expected holds.
/// A value is never empty: to a comparison, a key that is missing is one without a value.
#[derive(Debug, Default)]
pub struct Update {
    of_new_object: bool,
    expected: Vec<(String, Vec<u8>)>,
    set: Vec<(String, Vec<u8>)>,
    removed: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateOutcome {
    Done,
    /// Something was not as expected; nothing was changed.
    Differs,
}

impl Update {
    /// Makes the object, and changes nothing if there is one: that is `EEXIST`.
    pub fn of_new_object() -> Self {
        Self { of_new_object: true, ..Self::default() }
    }

    /// The change is made only if the key has this value now; `None`: if it is missing.
    #[must_use]
    pub fn expect(mut self, key: &str, value: Option<&[u8]>) -> Self {
        self.expected.push((key.to_owned(), value.unwrap_or_default().to_owned()));
        self
    }

    #[must_use]
    pub fn set(mut self, key: &str, value: &[u8]) -> Self {
        self.set.push((key.to_owned(), value.to_owned()));
        self
    }

    #[must_use]
    pub fn remove(mut self, key: &str) -> Self {
        self.removed.push(key.to_owned());
        self
    }

    fn write_into(&self, op: &WriteOp) -> Result<()> {
        if self.of_new_object {
            call!(rados.rados_write_op_create(op.handle, CREATE_EXCLUSIVE, ptr::null()));
        } else {
            // Otherwise a write to an object that was just removed would make it again.
            call!(rados.rados_write_op_assert_exists(op.handle));
        }
        for (key, value) in &self.expected {
            call!(rados.rados_write_op_omap_cmp2(
                op.handle,
                start_of(key.as_bytes()),
                EQUAL,
                start_of(value),
                key.len(),
                value.len(),
                ptr::null_mut(),
            ));
        }
        let keys: Vec<_> = self.set.iter().map(|(key, _)| start_of(key.as_bytes())).collect();
        let key_lengths: Vec<_> = self.set.iter().map(|(key, _)| key.len()).collect();
        let values: Vec<_> = self.set.iter().map(|(_, value)| start_of(value)).collect();
        let value_lengths: Vec<_> = self.set.iter().map(|(_, value)| value.len()).collect();
        if !keys.is_empty() {
            call!(rados.rados_write_op_omap_set2(
                op.handle,
                keys.as_ptr(),
                values.as_ptr(),
                key_lengths.as_ptr(),
                value_lengths.as_ptr(),
                keys.len(),
            ));
        }
        let removed: Vec<_> = self.removed.iter().map(|key| start_of(key.as_bytes())).collect();
        let lengths: Vec<_> = self.removed.iter().map(String::len).collect();
        if !removed.is_empty() {
            call!(rados.rados_write_op_omap_rm_keys2(
                op.handle,
                removed.as_ptr(),
                lengths.as_ptr(),
                removed.len()
            ));
        }
        Ok(())
    }
}

fn start_of(bytes: &[u8]) -> *const c_char {
    bytes.as_ptr().cast()
}

impl IoCtx {
    /// `ENOENT` if there is no such object and none is to be made.
    pub fn update(&self, object: &str, update: &Update) -> Result<UpdateOutcome> {
        let op = WriteOp::new()?;
        update.write_into(&op)?;
        match op.operate(self, "change", object) {
            Ok(()) => Ok(UpdateOutcome::Done),
            Err(error) if error.errno() == Some(Errno::CANCELED) => Ok(UpdateOutcome::Differs),
            Err(error) => Err(error),
        }
    }

    pub fn omap_get(&self, object: &str, key: &str) -> Result<Option<Vec<u8>>> {
        // Keys that begin with this one follow it in the order, so it is the first if it is there.
        let found = self.omap_page(object, "", key, 1)?;
        Ok(found.into_iter().find(|(name, _)| name == key).map(|(_, value)| value))
    }

    /// Keys that begin with `prefix`, in their order, after `after`, at most `limit` (0: all).
    /// A missing object has none.
    pub fn omap_list(
        &self,
        object: &str,
        after: &str,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<(String, Vec<u8>)>> {
        const PAGE: usize = 1000;
        let wanted = if limit == 0 { usize::MAX } else { limit };
        let mut found: Vec<(String, Vec<u8>)> = Vec::new();
        let mut after = after.to_owned();
        while found.len() < wanted {
            let page = self.omap_page(object, &after, prefix, PAGE.min(wanted - found.len()))?;
            let Some((last, _)) = page.last() else { break };
            last.clone_into(&mut after);
            found.extend(page);
        }
        Ok(found)
    }

    /// An empty page is the last: the store may cut one short.
    fn omap_page(
        &self,
        object: &str,
        after: &str,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<(String, Vec<u8>)>> {
        let subject = self.subject(object);
        let reading = CephCall { operation: "read the keys of", subject: &subject };
        let name = reading.text(object)?;
        let texts = (reading.text(after)?, reading.text(prefix)?);
        match self.read_page(&reading, &name, &texts, limit) {
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            page => page,
        }
    }

    fn read_page(
        &self,
        reading: &CephCall<'_>,
        object: &CString,
        (after, prefix): &(CString, CString),
        limit: usize,
    ) -> Result<Vec<(String, Vec<u8>)>> {
        let op = ReadOp { handle: call!(rados.rados_create_read_op()) };
        let mut values = Values { handle: ptr::null_mut() };
        let (mut more, mut status) = (0_u8, 0);
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        // Where the answers go is kept until the operation below is done.
        call!(rados.rados_read_op_omap_get_vals2(
            op.handle,
            after.as_ptr(),
            prefix.as_ptr(),
            limit,
            &raw mut values.handle,
            &raw mut more,
            &raw mut status,
        ));
        let io = self.handle();
        reading.check(call!(rados.rados_read_op_operate(op.handle, io, object.as_ptr(), 0)))?;
        reading.check(status)?;
        values.collect(reading)
    }
}

struct ReadOp {
    handle: Handle,
}

impl Drop for ReadOp {
    fn drop(&mut self) {
        close!(rados.rados_release_read_op(self.handle));
    }
}

/// What a read operation has found; null until it was done.
struct Values {
    handle: Handle,
}

impl Values {
    fn collect(&self, reading: &CephCall<'_>) -> Result<Vec<(String, Vec<u8>)>> {
        let mut found = Vec::new();
        loop {
            let (mut key, mut value) = (ptr::null_mut(), ptr::null_mut());
            let (mut key_length, mut value_length) = (0, 0);
            let code = call!(rados.rados_omap_get_next2(
                self.handle,
                &raw mut key,
                &raw mut value,
                &raw mut key_length,
                &raw mut value_length,
            ));
            reading.check(code)?;
            if key.is_null() {
                return Ok(found);
            }
            let key = String::from_utf8_lossy(&copied(key, key_length)).into_owned();
            found.push((key, copied(value, value_length)));
        }
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            close!(rados.rados_omap_get_end(self.handle));
        }
    }
}
