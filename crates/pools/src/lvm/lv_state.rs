//! The life of a logical volume, and the one place where it goes from one state to the next.
//!
//! ```text
//!            commit          delete            remove
//!   Draft ----------> Whole ---------> Deleted ------> gone
//!     |                ^  | replace                     ^
//!     |                +--+                             |
//!     +-------------------------------------------------+
//!            remove
//! ```
//!
//! The state is one of its tags, beside those of the record of a whole one. Each step but the last changes tags, all in
//! one commit of LVM: a crash leaves the state before it or the one after it. What is a draft or deleted is removed at
//! the next start; nothing else is ever removed.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::layout::{OwnTag, RECORD, own_tag, word_tag};
use super::record_tags::{TaggedRecord, read_record};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LvState {
    /// Being made, or the orphan of an attempt.
    Draft,
    /// A volume or snapshot, with its record.
    Whole,
    /// For good. It is still there because something had it open, or because the daemon ended.
    Deleted,
}

/// A step, with the tags that it brings.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step<'a> {
    Commit { record: &'a [String] },
    Replace { record: &'a [String] },
    Delete,
    Remove,
}

/// What a step asks of LVM.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    ChangeTags { remove: Vec<String>, add: Vec<String> },
    RemoveLv,
}

impl LvState {
    const ALL: [Self; 3] = [Self::Draft, Self::Whole, Self::Deleted];

    fn tag(self) -> String {
        word_tag(&self.to_string())
    }
}

/// As its tag has it.
impl fmt::Display for LvState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Draft => "draft",
            Self::Whole => "whole",
            Self::Deleted => "deleted",
        })
    }
}

impl FromStr for LvState {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let state = Self::ALL.into_iter().find(|state| state.to_string() == word);
        state.ok_or_else(|| format!("its tag {word:?} is no state"))
    }
}

/// The tags of ours that a logical volume has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LvTags {
    state: LvState,
    tags: BTreeSet<String>,
}

impl LvTags {
    /// Of a logical volume that is created with them.
    pub(super) fn draft() -> Self {
        Self::of(LvState::Draft, &[])
    }

    /// The same, of one that needs no more than to be created.
    pub(super) fn whole(record: &[String]) -> Self {
        Self::of(LvState::Whole, record)
    }

    fn of(state: LvState, record: &[String]) -> Self {
        let tags = record.iter().cloned().chain([state.tag()]).collect();
        Self { state, tags }
    }

    /// `None`: it is not ours. The error says what is wrong with one that is.
    pub(super) fn parse<'a>(
        tags: impl IntoIterator<Item = &'a str>,
    ) -> Result<Option<Self>, String> {
        let (mut states, mut own) = (BTreeSet::new(), BTreeSet::new());
        for tag in tags {
            match own_tag(tag).transpose()? {
                None => continue,
                Some(OwnTag::Word(word)) => drop(states.insert(word)),
                Some(OwnTag::Piece { key: RECORD, .. }) => {}
                Some(OwnTag::Pool(_) | OwnTag::Piece { .. }) => {
                    return Err(format!("its tag {tag:?} is one of a thin pool"));
                }
            }
            own.insert(tag.to_owned());
        }
        match states.pop_first() {
            None if own.is_empty() => Ok(None),
            None => Err("it has tags of a record, and none of a state".to_owned()),
            Some(_) if !states.is_empty() => Err("it has tags of several states".to_owned()),
            Some(word) => Ok(Some(Self { state: word.parse()?, tags: own })),
        }
    }

    pub(super) fn state(&self) -> LvState {
        self.state
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.tags.iter().map(String::as_str)
    }

    /// Of a whole one. The error says what is wrong with it.
    pub(super) fn record<R: TaggedRecord>(&self, id: &R::Id) -> Result<R, String> {
        let piece = |tag| match own_tag(tag) {
            Some(Ok(OwnTag::Piece { piece, .. })) => Some(piece),
            Some(Ok(OwnTag::Word(_) | OwnTag::Pool(_)) | Err(_)) | None => None,
        };
        let pieces: Vec<&str> = self.iter().filter_map(piece).collect();
        read_record(id, &pieces)
    }

    /// `None`: there is no such step from here.
    pub(super) fn after(&self, step: Step<'_>) -> Option<(Action, Option<Self>)> {
        let next = match (self.state, step) {
            (LvState::Draft, Step::Commit { record })
            | (LvState::Whole, Step::Replace { record }) => Self::whole(record),
            (LvState::Whole, Step::Delete) => Self::of(LvState::Deleted, &[]),
            (LvState::Draft | LvState::Deleted, Step::Remove) => {
                return Some((Action::RemoveLv, None));
            }
            (LvState::Draft, Step::Replace { .. } | Step::Delete)
            | (LvState::Whole, Step::Commit { .. } | Step::Remove)
            | (LvState::Deleted, Step::Commit { .. } | Step::Replace { .. } | Step::Delete) => {
                return None;
            }
        };
        let remove = self.tags.difference(&next.tags).cloned().collect();
        let add = next.tags.difference(&self.tags).cloned().collect();
        Some((Action::ChangeTags { remove, add }, Some(next)))
    }
}

#[cfg(test)]
mod tests;
