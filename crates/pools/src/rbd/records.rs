//! `orlop.records`: the keys of a pool that are no image's.
//!
//! The object is made before the pool's mark, so a pool without it has lost it. What was in it is
//! unknown then: no list is empty, and nothing is gone.

use orlop_model::{Error, Result};
use orlop_sys::ceph::{IoCtx, Outcome, Update};

use super::layout::RECORDS;
use super::store::Store;

impl Store {
    pub(super) fn record(
        &self,
        reading: impl Fn() -> String,
        key: &str,
    ) -> Result<Option<Vec<u8>>> {
        let found = self.ask(reading, |io| match io.omap_get(RECORDS, key)? {
            None if !are_there(io)? => Ok(None),
            found => Ok(Some(found)),
        })?;
        found.ok_or_else(|| self.records_lost())
    }

    /// Keys that begin with `prefix`, after `after`, at most `limit` (0: all).
    pub(super) fn records(
        &self,
        listing: impl Fn() -> String,
        after: &str,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<(String, Vec<u8>)>> {
        let found = self.ask(listing, |io| {
            let page = io.omap_list(RECORDS, after, prefix, limit)?;
            Ok(if page.is_empty() && !are_there(io)? { None } else { Some(page) })
        })?;
        found.ok_or_else(|| self.records_lost())
    }

    pub(super) fn update_records(
        &self,
        writing: impl Fn() -> String,
        update: &Update,
    ) -> Result<Outcome> {
        let outcome = self.ask(writing, |io| match io.update(RECORDS, update) {
            Err(error) if error.is_not_found() => Ok(None),
            outcome => outcome.map(Some),
        })?;
        outcome.ok_or_else(|| self.records_lost())
    }

    pub(super) fn check_records(&self, checking: impl Fn() -> String) -> Result<()> {
        match self.connection.ask_anyway(checking, |io| are_there(io))? {
            true => Ok(()),
            false => Err(self.records_lost()),
        }
    }

    fn records_lost(&self) -> Error {
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

fn are_there(io: &IoCtx) -> orlop_sys::Result<bool> {
    match io.read(RECORDS) {
        Err(error) if error.is_not_found() => Ok(false),
        read => read.map(|_| true),
    }
}
