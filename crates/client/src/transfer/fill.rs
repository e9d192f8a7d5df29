//! Copies the image to the volume of an import, so that a repeated command recognizes the volume of an interrupted one.
//!
//! Until the copy is complete, the volume begins with a mark in place of the first MiB of the image. A volume of the same
//! name that was created later does not have it, and a filesystem, a partition table or a volume manager overwrites it.

use std::os::unix::fs::FileExt;

use orlop_sys::rand;

use super::copy::{
    CHUNK, NamedFile, Source, Target, clear, compare, copy, first_difference, is_zero,
};
use crate::failure::{Failure, Result};
use crate::interrupt::StopFlag;

/// How the volume came to be, which decides whether it may be overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VolumeOrigin {
    /// This command created the volume.
    Created,
    /// An interrupted command created a volume of this id.
    Interrupted {
        /// It is still attached for that import, so it cannot have been deleted and created again.
        still_attached: bool,
    },
}

pub(super) struct ImportCopy<'a> {
    pub(super) source: &'a mut dyn Source,
    pub(super) device: &'a NamedFile,
    /// Of the image; the volume may be longer.
    pub(super) length: u64,
    pub(super) mark: &'a str,
    pub(super) is_verified: bool,
    pub(super) stop: &'a StopFlag,
}

/// 128 random bits, as text.
pub(super) fn new_mark() -> Result<String> {
    let random = rand::random_bytes::<16>().map_err(|error| Failure::failed(error.to_string()))?;
    Ok(format!("{:032x}", u128::from_le_bytes(random)))
}

impl ImportCopy<'_> {
    /// Returns how many bytes were written; `None` if the volume is not the import's.
    pub(super) fn run(&mut self, origin: VolumeOrigin) -> Result<Option<u64>> {
        let size = self.device.length()?;
        let head = usize::try_from(size).unwrap_or(CHUNK).min(CHUNK);
        let target = match origin {
            VolumeOrigin::Created => Target::Blank,
            VolumeOrigin::Interrupted { .. } if self.is_marked(head)? => Target::Used,
            // The import was interrupted before its first write.
            VolumeOrigin::Interrupted { still_attached: true }
                if is_zero(self.device, size, self.stop)? =>
            {
                Target::Blank
            }
            VolumeOrigin::Interrupted { .. } => {
                let difference =
                    first_difference(self.source, self.device, 0..self.length, self.stop)?;
                return Ok(difference.is_none().then_some(0));
            }
        };
        if target == Target::Blank {
            self.write_head(&self.marked(head))?;
        }
        let after_head = as_u64(head).min(self.length)..self.length;
        let mut written =
            copy("import", self.source, self.device, after_head.clone(), target, self.stop)?;
        if target == Target::Used {
            clear(self.device, after_head.end.max(as_u64(head))..size, self.stop)?;
        }
        if self.is_verified {
            compare(self.source, self.device, after_head, self.stop)?;
        }
        written += self.complete(head)?;
        Ok(Some(written))
    }

    /// The image's beginning in place of the mark.
    fn complete(&mut self, head: usize) -> Result<u64> {
        let mut contents = vec![0; head];
        let of_image = usize::try_from(self.length).unwrap_or(head).min(head);
        let part = contents.get_mut(..of_image).unwrap_or_default();
        self.source.read_exact_at(part, 0).map_err(|error| {
            Failure::failed(format!("cannot read {}: {error}", self.source.path().display()))
        })?;
        let is_zero = contents.iter().all(|byte| *byte == 0);
        self.write_head(&contents)?;
        if self.is_verified {
            compare(self.source, self.device, 0..as_u64(of_image), self.stop)?;
        }
        Ok(if is_zero { 0 } else { as_u64(of_image) })
    }

    fn write_head(&self, contents: &[u8]) -> Result<()> {
        let written = self.device.file.write_all_at(contents, 0);
        let written = written.and_then(|()| self.device.file.sync_all());
        written.map_err(|error| self.device.failed("write to", &error))
    }

    fn marked(&self, head: usize) -> Vec<u8> {
        let line = format!("orlop volume import {}: not complete\n", self.mark);
        line.bytes().cycle().take(head).collect()
    }

    fn is_marked(&self, head: usize) -> Result<bool> {
        let mut found = vec![0; head];
        let read = self.device.file.read_exact_at(&mut found, 0);
        read.map_err(|error| self.device.failed("read", &error))?;
        Ok(!self.mark.is_empty() && found == self.marked(head))
    }
}

fn as_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
