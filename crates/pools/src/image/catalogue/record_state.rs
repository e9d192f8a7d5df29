//! What is known of a record that the pool holds.

use std::path::Path;

use orlop_model::{Error, Result};
use rustix::io::Errno;

use crate::image::failure::cannot;
use crate::recorded::{RecordFailure, Recorded, read_record};

#[derive(Debug, Clone)]
pub(super) enum RecordState<R> {
    Whole(R),
    /// What is there is no record, and why.
    Damaged(String),
    /// The storage did not deliver it when the pool was opened. It is read again when it is asked for.
    Unread,
    /// Its creation failed when it may have had its name already, and what has that name could not be read
    /// then. It is read when it is asked for; there may be nothing.
    Uncertain,
}

impl<R: Recorded> RecordState<R> {
    pub(super) fn whole(&self) -> Option<&R> {
        match self {
            Self::Whole(record) => Some(record),
            Self::Damaged(_) | Self::Unread | Self::Uncertain => None,
        }
    }

    pub(super) fn is_to_be_read(&self) -> bool {
        match self {
            Self::Whole(_) | Self::Damaged(_) => false,
            Self::Unread | Self::Uncertain => true,
        }
    }

    /// The error is one of reading, and says nothing about the record.
    pub(super) fn read(id: &R::Id, path: &Path) -> orlop_sys::Result<Self> {
        match read_record::<R>(id, path) {
            Ok(record) => Ok(Self::Whole(record)),
            Err(RecordFailure::Damaged(reason)) => {
                tracing::error!(
                    kind = R::KIND, %id, reason,
                    "the record is damaged: calls for this object answer DATA_LOSS until it is restored"
                );
                Ok(Self::Damaged(reason))
            }
            Err(RecordFailure::Unread(error)) => Err(error),
        }
    }

    /// At the opening of a pool. What the process or the machine lacks, and not the storage, concerns all
    /// records alike: then the pool is opened again later.
    pub(super) fn read_first(id: &R::Id, path: &Path) -> Result<Self> {
        Self::read(id, path).or_else(|error| {
            check_lacks_nothing::<R>(id, &error)?;
            tracing::error!(
                kind = R::KIND,
                %id,
                %error,
                "cannot read the record; it is read again when it is needed"
            );
            Ok(Self::Unread)
        })
    }

    pub(super) fn read_again(id: &R::Id, path: &Path) -> Result<Self> {
        Self::read(id, path).map_err(cannot(|| format!("read the record of {} {id}", R::KIND)))
    }
}

pub(super) fn check_lacks_nothing<R: Recorded>(id: &R::Id, error: &orlop_sys::Error) -> Result<()> {
    match error.errno() {
        Some(errno) if is_lack(errno) => Err(Error::Unreachable {
            doing: format!("read {} {id}", R::KIND),
            reason: format!("{error}; opening the pool will be retried").into(),
        }),
        Some(_) | None => Ok(()),
    }
}

fn is_lack(errno: Errno) -> bool {
    [Errno::MFILE, Errno::NFILE, Errno::NOMEM].contains(&errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_machine_lacks_fails_the_opening() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            assert!(is_lack(errno), "{errno}");
        }
        for errno in [Errno::IO, Errno::NODATA, Errno::ACCESS, Errno::NOENT] {
            assert!(!is_lack(errno), "{errno}");
        }
    }
}
