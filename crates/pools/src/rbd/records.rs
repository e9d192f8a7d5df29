//! `orlop.records`: the keys of a pool that are no image's.
//!
//! The object is made before the pool header, so a pool without it has lost it. What was in it is
//! unknown then: no list is empty, and nothing is gone.

use std::sync::Arc;

use orlop_model::{Error, PoolInfo, Reason, Result};
use orlop_sys::ceph::{IoCtx, Update, UpdateOutcome};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::layout::RECORDS;
use super::session::Session;
use crate::recorded::{Recorded, parse_record};

/// A record and where its data is, in one JSON object.
#[derive(Debug, Serialize)]
pub(crate) struct RecordEntry<Location, Record> {
    #[serde(flatten)]
    pub(crate) location: Location,
    #[serde(flatten)]
    pub(crate) record: Record,
}

impl<Location: Serialize + DeserializeOwned, Record: Recorded> RecordEntry<Location, Record> {
    pub(crate) fn parse(id: &Record::Id, text: &[u8]) -> Result<Self> {
        let damaged = |reason| Error::damaged(format!("{} {id}", Record::KIND), reason);
        let record = parse_record(id, &"record", text).map_err(damaged)?;
        let location = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
        Ok(Self { location, record })
    }

    pub(crate) fn text(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| {
            let writing = format!("write the record of {} {}", Record::KIND, self.record.id());
            Error::failed(writing, Reason::of(error))
        })
    }
}

#[derive(Debug)]
pub(super) struct Records {
    session: Arc<Session>,
    info: Arc<PoolInfo>,
}

impl Records {
    pub(super) fn new(session: &Arc<Session>, info: &Arc<PoolInfo>) -> Self {
        Self { session: Arc::clone(session), info: Arc::clone(info) }
    }

    pub(super) fn get(&self, reading: impl Fn() -> String, key: &str) -> Result<Option<Vec<u8>>> {
        let found = self.session.ask(reading, |io| match io.omap_get(RECORDS, key)? {
            None if !exist(io)? => Ok(None),
            found => Ok(Some(found)),
        })?;
        found.ok_or_else(|| self.lost())
    }

    /// Keys that begin with `prefix`, after `after`, at most `limit` (0: all).
    pub(super) fn list(
        &self,
        listing: impl Fn() -> String,
        after: &str,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<(String, Vec<u8>)>> {
        let found = self.session.ask(listing, |io| {
            let page = io.omap_list(RECORDS, after, prefix, limit)?;
            Ok(if page.is_empty() && !exist(io)? { None } else { Some(page) })
        })?;
        found.ok_or_else(|| self.lost())
    }

    pub(super) fn update(
        &self,
        writing: impl Fn() -> String,
        update: &Update,
    ) -> Result<UpdateOutcome> {
        let outcome = self.session.ask(writing, |io| match io.update(RECORDS, update) {
            Err(error) if error.is_not_found() => Ok(None),
            outcome => outcome.map(Some),
        })?;
        outcome.ok_or_else(|| self.lost())
    }

    /// For the probe.
    pub(super) fn check(&self, checking: impl Fn() -> String) -> Result<()> {
        match self.session.ask_unguarded(checking, |io| exist(io))? {
            true => Ok(()),
            false => Err(self.lost()),
        }
    }

    fn lost(&self) -> Error {
        Error::damaged(
            format!("pool {}", self.info.name),
            format!(
                "its object {RECORDS} is lost, and with it the records of snapshots and groups; \
                 restore it from a backup of the Ceph pool. The data of volumes and snapshots is \
                 untouched"
            ),
        )
    }
}

fn exist(io: &IoCtx) -> orlop_sys::Result<bool> {
    match io.read(RECORDS) {
        Err(error) if error.is_not_found() => Ok(false),
        read => read.map(|_| true),
    }
}
