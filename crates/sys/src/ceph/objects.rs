//! A pool or a namespace of it, and single objects in it.

use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;

use rustix::io::Errno;

use super::cluster::Cluster;
use super::handle::{CephCall, call, close};
use super::library::Handle;
use crate::error::Result;

pub(super) const CREATE_EXCLUSIVE: i32 = 1;
const CREATE_IDEMPOTENT: i32 = 0;
/// What is read whole is small; an object that fills this is refused.
const LARGEST_READ: usize = 64 << 10;
/// The answers of class methods: a page of a directory, a record.
const LARGEST_ANSWER: usize = 8 << 20;

#[derive(Debug)]
pub struct IoCtx {
    handle: Handle,
    cluster: Arc<Cluster>,
    label: String,
}

// SAFETY: as for the cluster; the namespace, which is the one thing that is not locked inside, is
// set once, before anyone else has the handle.
unsafe impl Send for IoCtx {}
// SAFETY: as above.
unsafe impl Sync for IoCtx {}

impl IoCtx {
    pub(super) fn open(cluster: Arc<Cluster>, pool: &str, namespace: &str) -> Result<Arc<Self>> {
        let opening = CephCall { operation: "open the pool", subject: pool };
        let (name, space) = (opening.text(pool)?, opening.text(namespace)?);
        let mut handle = ptr::null_mut();
        let code =
            call!(rados.rados_ioctx_create(cluster.handle(), name.as_ptr(), &raw mut handle));
        opening.check(code)?;
        let label =
            if namespace.is_empty() { pool.to_owned() } else { format!("{pool}/{namespace}") };
        let opened = Self { handle, cluster, label };
        call!(rados.rados_ioctx_set_namespace(handle, space.as_ptr()));
        // Writes to a full pool would be held back until there is room. So they are tried: what
        // takes no more room, as a deletion, goes through; all else fails with ENOSPC or EDQUOT.
        // librbd takes this over for the images that it opens.
        call!(rados.rados_set_pool_full_try(handle));
        Ok(Arc::new(opened))
    }

    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    /// As Ceph names it, without the namespace.
    pub fn pool(&self) -> &str {
        self.label.split_once('/').map_or(self.label.as_str(), |(pool, _)| pool)
    }

    /// How errors name something in this pool.
    pub(super) fn subject(&self, name: &str) -> String {
        format!("{}/{name}", self.label)
    }

    /// Whether there is such an object, of whatever size.
    pub fn exists(&self, object: &str) -> Result<bool> {
        let subject = self.subject(object);
        let looking = CephCall { operation: "look for", subject: &subject };
        let name = looking.text(object)?;
        let (mut size, mut changed) = (0, 0);
        let code =
            call!(rados.rados_stat(self.handle, name.as_ptr(), &raw mut size, &raw mut changed));
        match looking.check(code) {
            Err(error) if error.is_not_found() => Ok(false),
            found => found.map(|_| true),
        }
    }

    /// The whole of a small object.
    pub fn read(&self, object: &str) -> Result<Vec<u8>> {
        let subject = self.subject(object);
        let reading = CephCall { operation: "read", subject: &subject };
        let name = reading.text(object)?;
        let mut buffer = vec![0_u8; LARGEST_READ];
        let start = buffer.as_mut_ptr().cast::<c_char>();
        let code = call!(rados.rados_read(self.handle, name.as_ptr(), start, buffer.len(), 0));
        let length = reading.check(code)?;
        if length == buffer.len() {
            return Err(reading.refused("it is larger than any object that Orlop writes"));
        }
        buffer.truncate(length);
        Ok(buffer)
    }

    /// `EEXIST` if it is there already; never half-written.
    pub fn create(&self, object: &str, contents: &[u8]) -> Result<()> {
        let op = WriteOp::new()?;
        call!(rados.rados_write_op_create(op.handle, CREATE_EXCLUSIVE, ptr::null()));
        let start = contents.as_ptr().cast::<c_char>();
        call!(rados.rados_write_op_write_full(op.handle, start, contents.len()));
        op.operate(self, "create", object)
    }

    pub fn ensure_object(&self, object: &str) -> Result<()> {
        let op = WriteOp::new()?;
        call!(rados.rados_write_op_create(op.handle, CREATE_IDEMPOTENT, ptr::null()));
        op.operate(self, "create", object)
    }

    /// Only if it begins with this; missing or different is `false`.
    pub(super) fn try_remove(&self, object: &str, contents: &[u8]) -> Result<bool> {
        let op = WriteOp::new()?;
        let start = contents.as_ptr().cast::<c_char>();
        let nowhere = ptr::null_mut();
        call!(rados.rados_write_op_cmpext(op.handle, start, contents.len(), 0, nowhere));
        call!(rados.rados_write_op_remove(op.handle));
        match op.operate(self, "remove", object) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.errno(), Some(Errno::NOENT | Errno::CANCELED)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// A method that runs at the object, in its store.
    pub fn execute(
        &self,
        object: &str,
        (class, method): (&str, &str),
        input: &[u8],
    ) -> Result<Vec<u8>> {
        let subject = self.subject(object);
        let executing = CephCall { operation: "query", subject: &subject };
        let name = executing.text(object)?;
        let (class, method) = (executing.text(class)?, executing.text(method)?);
        let mut answer = vec![0_u8; LARGEST_READ];
        loop {
            let code = call!(rados.rados_exec(
                self.handle,
                name.as_ptr(),
                class.as_ptr(),
                method.as_ptr(),
                input.as_ptr().cast::<c_char>(),
                input.len(),
                answer.as_mut_ptr().cast::<c_char>(),
                answer.len(),
            ));
            match executing.check(code) {
                Ok(length) => {
                    answer.truncate(length);
                    return Ok(answer);
                }
                Err(error)
                    if error.errno() == Some(Errno::RANGE) && answer.len() < LARGEST_ANSWER =>
                {
                    answer.resize(LARGEST_ANSWER, 0);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for IoCtx {
    fn drop(&mut self) {
        close!(rados.rados_ioctx_destroy(self.handle));
    }
}

/// Steps on one object that all happen, or none.
pub(super) struct WriteOp {
    pub(super) handle: Handle,
}

impl WriteOp {
    pub(super) fn new() -> Result<Self> {
        Ok(Self { handle: call!(rados.rados_create_write_op()) })
    }

    pub(super) fn operate(&self, io: &IoCtx, operation: &'static str, object: &str) -> Result<()> {
        let subject = io.subject(object);
        let writing = CephCall { operation, subject: &subject };
        let name = writing.text(object)?;
        let code = call!(rados.rados_write_op_operate(
            self.handle,
            io.handle,
            name.as_ptr(),
            ptr::null_mut(),
            0
        ));
        writing.check(code)?;
        Ok(())
    }
}

impl Drop for WriteOp {
    fn drop(&mut self) {
        close!(rados.rados_release_write_op(self.handle));
    }
}
