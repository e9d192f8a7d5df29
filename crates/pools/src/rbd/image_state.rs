//! The life of a volume's image, and the one place where it goes from one state to the next.
//!
//! ```text
//!            commit          delete            trash             free
//!   Draft ----------> Whole ---------> Deleted -------> Trashed -------> Freed
//!     |                ^  | replace     ^   ^              |
//!     |                +--+             |   +--------------+
//!     +---------------------------------+       restore
//!            discard, prevent
//! ```
//!
//! The state is in the cluster, not in this process: the record among the image's metadata says
//! whether it is a draft, whole or deleted, librbd's trash the rest. Another process may take the next
//! step at any time. So a step names what it expects to find, and the comparison and the change are
//! one operation of the object store; after a crash between two steps the next one is taken by the
//! call that is repeated, or by garbage collection.
//!
//! Nothing is ever freed that is not marked as deleted.

use orlop_sys::ceph::{IoCtx, Update, UpdateOutcome, header_of, metadata_key};

use super::layout::{DELETED, joined_key, record_key};

/// Why an object is busy whose record is not what was read before.
pub(super) const CHANGED: &str = "another process changed it during this call";

/// Why an object is busy that is there although it was not at the beginning of the call.
pub(super) const BEING_MADE: &str = "another process is making it, or has just made it";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImageState {
    /// Being made, or the orphan of an attempt: it has a name and no record.
    Draft,
    /// A volume.
    Whole,
    /// Marked as deleted, for good. It has the volume's name yet, or one that it got for a copy of a
    /// snapshot.
    Deleted,
    /// In the trash; it stays there as long as it has snapshots.
    Trashed,
    Freed,
}

/// The state of an image that has the name of a volume, as its metadata has it: such an image is
/// neither in the trash nor freed.
#[derive(Debug)]
pub(super) enum NamedState {
    Draft,
    /// With the record's text.
    Whole(Vec<u8>),
    Deleted,
}

impl NamedState {
    pub(super) fn of_record(text: Option<Vec<u8>>) -> Self {
        match text {
            None => Self::Draft,
            Some(text) if text == DELETED => Self::Deleted,
            Some(text) => Self::Whole(text),
        }
    }
}

/// A step, with what it expects to find beside the state, and what it leaves.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step<'a> {
    /// Several processes may make the same volume; only the first commits.
    Commit {
        record: &'a [u8],
    },
    /// The volume's record is changed.
    Replace {
        was: &'a [u8],
        record: &'a [u8],
    },
    /// Its daemon, if it is alive after all, cannot commit it any more.
    Discard,
    /// As `Discard`, of a draft that has names and no image: the mark is put where the image would
    /// be, and librbd makes none where something is.
    Prevent,
    /// `joined`: the mark that changes whenever the volume joins a group.
    Delete {
        was: &'a [u8],
        joined: Option<&'a [u8]>,
    },
    /// Its name is free afterwards.
    Trash {
        name: &'a str,
    },
    /// Only what has a name can be copied.
    Restore {
        name: &'a str,
    },
    Free,
}

impl ImageState {
    /// `None`: there is no such step from here.
    pub(super) const fn after(self, step: &Step<'_>) -> Option<Self> {
        match (self, step) {
            (Self::Draft, Step::Commit { .. }) | (Self::Whole, Step::Replace { .. }) => {
                Some(Self::Whole)
            }
            (Self::Draft, Step::Discard | Step::Prevent)
            | (Self::Whole, Step::Delete { .. })
            | (Self::Trashed, Step::Restore { .. }) => Some(Self::Deleted),
            (Self::Deleted, Step::Trash { .. }) => Some(Self::Trashed),
            (Self::Trashed, Step::Free) => Some(Self::Freed),
            (
                Self::Draft | Self::Whole | Self::Deleted | Self::Trashed | Self::Freed,
                Step::Commit { .. }
                | Step::Replace { .. }
                | Step::Discard
                | Step::Prevent
                | Step::Delete { .. }
                | Step::Trash { .. }
                | Step::Restore { .. }
                | Step::Free,
            ) => None,
        }
    }
}

impl Step<'_> {
    /// `Differs`: the image is not, or no longer, in the state `from`; nothing was changed.
    pub(super) fn take(
        &self,
        io: &IoCtx,
        image_id: &str,
        from: ImageState,
    ) -> orlop_sys::Result<UpdateOutcome> {
        if from.after(self).is_none() {
            return Ok(UpdateOutcome::Differs);
        }
        let key = metadata_key(&record_key(image_id));
        let expecting = |was: Option<&[u8]>| Update::default().expect(&key, was);
        match *self {
            Self::Commit { record } => write(io, image_id, &expecting(None).set(&key, record)),
            Self::Replace { was, record } => {
                write(io, image_id, &expecting(Some(was)).set(&key, record))
            }
            Self::Discard => write(io, image_id, &expecting(None).set(&key, DELETED)),
            Self::Prevent => {
                let update = Update::of_new_object().set(&key, DELETED);
                match io.update(&header_of(image_id), &update) {
                    Err(error) if error.is_taken() => Ok(UpdateOutcome::Differs),
                    outcome => outcome,
                }
            }
            Self::Delete { was, joined } => {
                let update =
                    expecting(Some(was)).expect(&metadata_key(&joined_key(image_id)), joined);
                write(io, image_id, &update.set(&key, DELETED))
            }
            Self::Trash { name } => io.ensure_trashed(name, image_id).map(|()| UpdateOutcome::Done),
            Self::Restore { name } => match io.restore_from_trash(image_id, name) {
                // Another process was faster.
                Err(error) if error.is_not_found() || error.is_taken() => {
                    Ok(UpdateOutcome::Differs)
                }
                done => done.map(|()| UpdateOutcome::Done),
            },
            Self::Free => Ok(match io.try_free_trashed(image_id)? {
                true => UpdateOutcome::Done,
                false => UpdateOutcome::Differs,
            }),
        }
    }
}

/// `Differs` also if the image itself is gone.
fn write(io: &IoCtx, image_id: &str, update: &Update) -> orlop_sys::Result<UpdateOutcome> {
    match io.update(&header_of(image_id), update) {
        Err(error) if error.is_not_found() => Ok(UpdateOutcome::Differs),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [ImageState; 5] = [
        ImageState::Draft,
        ImageState::Whole,
        ImageState::Deleted,
        ImageState::Trashed,
        ImageState::Freed,
    ];

    fn steps_from(state: ImageState) -> Vec<ImageState> {
        let steps = [
            Step::Commit { record: b"r" },
            Step::Replace { was: b"r", record: b"s" },
            Step::Discard,
            Step::Prevent,
            Step::Delete { was: b"r", joined: None },
            Step::Trash { name: "n" },
            Step::Restore { name: "n" },
            Step::Free,
        ];
        steps.iter().filter_map(|step| state.after(step)).collect()
    }

    #[test]
    fn only_deleted_and_trashed_images_are_freed() {
        for state in ALL {
            let frees = steps_from(state).contains(&ImageState::Freed);
            assert_eq!(frees, state == ImageState::Trashed, "{state:?}");
            let trashes = steps_from(state).contains(&ImageState::Trashed);
            assert_eq!(trashes, state == ImageState::Deleted, "{state:?}");
        }
    }

    #[test]
    fn deleted_image_never_becomes_a_volume() {
        let mut reached = vec![ImageState::Deleted];
        while let Some(next) = reached
            .iter()
            .flat_map(|state| steps_from(*state))
            .find(|state| !reached.contains(state))
        {
            reached.push(next);
        }
        assert!(!reached.contains(&ImageState::Whole), "{reached:?}");
        assert!(!reached.contains(&ImageState::Draft), "{reached:?}");
        assert!(reached.contains(&ImageState::Freed), "{reached:?}");
    }
}
